"""Matrix instructions: mma.sync, ldmatrix, stmatrix and movmatrix (`matrices.py`), wmma
(`fragments.py`), and wgmma. Their arithmetic is in `arithmetic/tensor_core.py`.
"""
