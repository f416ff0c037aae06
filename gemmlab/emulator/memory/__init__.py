"""Memory: the global arena, the state spaces that check and count loads, stores and atomics, and
asynchronous copies (cp.async, bulk copies and reductions, tensor maps).
"""
