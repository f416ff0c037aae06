"""Memory: the global arena and its heap, and the state spaces that check and count loads, stores
and atomics.
"""
