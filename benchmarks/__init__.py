"""Measurements, one file each, and their records; `python -m benchmarks` lists them.

A measurement needs what no user of gemmlab does (PyTorch, JAX, ncu, a GPU to itself for
minutes), so it is no part of the package. `README.md` says how to run one and how to add one.
"""
