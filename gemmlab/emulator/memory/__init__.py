"""Global memory as one arena, the state spaces in which loads, stores and atomics are checked and
counted, and what moves bytes by itself: cp.async, bulk copies and reductions, tensor maps.
"""
