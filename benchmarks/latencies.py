"""Latencies and rates that gemmlab/timing/gpus has as fitted values. 20 seconds of GPU time.

    python -m benchmarks latencies benchmarks/h200/latencies.json

Cycles of one warp for a chain of dependent instructions of each kind, and cycles of an SM per
instruction if four or more warps issue them. Compare with the GPU's file.
"""

from __future__ import annotations

from functools import partial

import numpy as np

import gemmlab
from benchmarks.gpu import Gpu
from benchmarks.measurement import Measurement

LENGTH = 512  # instructions in a chain
WORDS = 1 << 26  # of the buffer for chains of loads: more than L2 holds

CHAIN = """
extern "C" __global__ void chain(unsigned *data, unsigned *out, unsigned long long *cycles) {{
    __shared__ unsigned shared[1024];
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) shared[i] = (i + 33) % 1024;
    __syncthreads();
    unsigned x = threadIdx.x % 32, y = 1;
    float f = x, g = 0.5f;
    for (int turn = 0; turn < 2; turn++) {{ // the first fills caches
        __syncthreads();
        unsigned long long start = clock64();
        #pragma unroll 16
        for (int i = 0; i < {length}; i++) {{ {body} }}
        unsigned long long end = clock64();
        if (threadIdx.x == 0 && blockIdx.x == 0) *cycles = end - start;
    }}
    out[blockIdx.x * blockDim.x + threadIdx.x] = x + y + (unsigned)(f + g);
}}
"""

BODIES = {
    "ffma": "f = f * g + g;",
    "imad": "x = x * y + x;",
    "xor": "x = (x ^ y) + (x >> 1);",
    "rsqrt": "f = rsqrtf(f);",
    "shuffle": "x = __shfl_xor_sync(~0u, x, 1);",
    "shared load": "x = shared[x & 1023];",
    "load, L1": "x = data[x & 1023];",
    "load, L2": "x = __ldcg(data + (x & 1023));",
    "load, device memory": "x = data[(x * 1664525u + 1013904223u + i * 7919u) & {last}u];",
    "atomic, one address": "x += atomicAdd(out, 1);",
    "barrier": "__syncthreads();",
}
WARPS = (1, 4, 16, 32)


def cycles(body: str, gpu: Gpu) -> dict[str, float]:
    """Cycles per instruction of a chain, by the number of warps."""
    words = np.arange(WORDS, dtype=np.uint32)
    data = gpu.placed(((words + 32) % 1024).astype(np.uint32))
    out, taken = gpu.placed(np.zeros(1 << 20, np.uint32)), gpu.placed(np.zeros(1, np.uint64))
    kernel = gemmlab.load(
        CHAIN.format(length=LENGTH, body=body.format(last=WORDS - 1)), arch=gpu.device.arch
    )
    found = {}
    for warps in WARPS:
        gpu.device.launch(kernel, (1, 1, 1), (32 * warps, 1, 1), [data, out, taken])
        count = int(taken.buffer.read().view(np.uint64)[0])
        found[f"{warps} warps"] = round(count / LENGTH, 2)
    return found


MEASUREMENT = Measurement(
    parts={"cycles per instruction": {name: partial(cycles, body) for name, body in BODIES.items()}}
)
