"""Matrices in the registers of a warp and their products: mma.sync with what loads and stores its
operands (`matrices.py`), wmma (`fragments.py`), and wgmma. The sums themselves are in
`arithmetic/tensor_core.py`.
"""
