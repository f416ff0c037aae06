"""Executes a program on the NumPy tier: the grid, the machine that runs a chunk of its blocks, the
scheduling order, and the detection of endless loops and livelocks.
"""
