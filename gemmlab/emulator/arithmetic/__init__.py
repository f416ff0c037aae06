"""Bit-exact arithmetic on registers, which are NumPy arrays (`lanes.py`): integers, float32,
float64, packed 16-bit floats, format conversions, and tensor core dot products. This package does
not depend on instructions or memory.
"""
