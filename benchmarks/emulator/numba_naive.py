"""A naive product in Numba. Prints JSON: `compile`, its PTX; `simulate M N K`, its seconds in
Numba's CUDA simulator (NUMBA_ENABLE_CUDASIM=1)."""

import json
import sys
import time
from typing import Any

import numpy as np
from numba import cuda, float32, void


def naive(a: Any, b: Any, c: Any) -> None:
    i, j = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y, cuda.grid(1)
    if i < c.shape[0] and j < c.shape[1]:
        s = float32(0)
        for k in range(a.shape[1]):
            s += a[i, k] * b[k, j]
        c[i, j] = s


if sys.argv[1] == "compile":
    matrix = float32[:, ::1]
    ptx, _ = cuda.compile_ptx(naive, void(matrix, matrix, matrix), cc=(9, 0))
    entry = ptx.split(".entry ")[1].split("(")[0]
    print(json.dumps({"ptx": ptx, "entry": entry}))
else:
    m, n, k = map(int, sys.argv[2:])
    a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
    c = np.zeros((m, n), np.float32)
    wall, processor = time.perf_counter(), time.process_time()
    cuda.jit(naive)[(n // 16, m // 16), (16, 16)](a, b, c)
    times = {"wall_s": time.perf_counter() - wall, "processor_s": time.process_time() - processor}
    assert (c == k).all()
    print(json.dumps(times))
