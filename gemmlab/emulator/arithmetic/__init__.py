"""Registers as NumPy arrays (`lanes.py`), and arithmetic on them with the hardware's bits: integers
and float32, float64, pairs of 16-bit floats, conversions between formats, and the sums of products
of tensor cores. Nothing here knows of instructions or memory.
"""
