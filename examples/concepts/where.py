"""Prints which block, warp and lane wrote each element: 1000·block + 100·warp + lane."""

import numpy as np

import gemmlab

kernel = gemmlab.load("examples/concepts/where.cu")
y = np.zeros(128, np.int32)
gemmlab.emulate(kernel, grid=2, block=64, args=[y])
for warp in y.reshape(4, 32):
    print(*warp[:4], "…", warp[31])
