"""Sizes that the hardware determines."""

MMA_M, MMA_K = 64, 16  # rows and depth of one warpgroup MMA (PTX ISA, wgmma.mma_async)
WARPGROUP = 128  # threads
