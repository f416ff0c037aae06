"""Launches whose data and code are not cached: the cost of evicting other kernels' lines from L2,
of fetching code, and of reading at random places. Ten seconds of GPU time.

    python -m benchmarks cold benchmarks/h100/cold.json

`launches`: seconds by megabytes that a kernel moves, after another has filled L2 with lines that it
wrote, or only read. Lines that were written must go to device memory before others take their
place. `code`: cycles that straight code takes in each of three turns, by its instructions.
`scattered`: seconds of reading so many bytes each at random places of device memory.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import gemmlab
from benchmarks.gpu import Gpu
from benchmarks.latencies import BODIES, MB16, STREAM
from benchmarks.measurement import Measurement
from benchmarks.record import Row

FLUSH_MB, LAUNCHES, PER_SM = 256, 15, 8
MOVED_MB = (0, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)  # by a launch, read and written
CODE = (64, 256, 1024, 2048, 4096)  # machine instructions
TURNS, SLOTS = 3, 4096  # of straight code; cycles of a turn, one for each warp
PAUSE_CYCLES = 600_000  # 0.3 ms, in which the host enqueues what follows
PAUSE = """
extern "C" __global__ void pause(long long cycles) {
  for (const long long start = clock64(); clock64() - start < cycles;) {}
}
"""
STRAIGHT = """
extern "C" __global__ void straight(float* out, long long* cycles, float y, int turns) {
  float x0 = threadIdx.x, x1 = x0 + 1, x2 = x0 + 2, x3 = x0 + 3;
#pragma unroll 1
  for (int turn = 0; turn < turns; turn++) {
    __syncthreads();
    const long long start = clock64();
    BODY
    if (threadIdx.x % 32 == 0)
      cycles[turn * SLOTS + blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32] = clock64() - start;
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = x0 + x1 + x2 + x3;
}
"""
SCATTERED_MB, PLACES, IN_FLIGHT = 2048, 1 << 22, 4  # the memory, places read, and by a thread
SCATTERED = """
extern "C" __global__ void scattered(const unsigned* data, unsigned* out, unsigned words,
                                     unsigned mask) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, all = gridDim.x * blockDim.x;
  unsigned found = 0;
#pragma unroll
  for (unsigned turn = 0; turn < TURNS; turn++) {
    unsigned hash = (i + turn * all) / words * 2654435761u;
    hash = (hash ^ hash >> 15) * 2246822519u;
    hash = (hash ^ hash >> 13) & mask;
    found |= data[(size_t)hash * words + i % words];
  }
  if (found == 1) out[0] = found;
}
"""


def pause(gpu: Gpu) -> Callable[[], None]:
    """What occupies the GPU while the host enqueues a launch, so that its events have no gap."""
    kernel = gemmlab.load(PAUSE, arch=gpu.device.arch)
    wait: Callable[[], None] = gpu.device.prepare(kernel, (1, 1, 1), (1, 1, 1), [PAUSE_CYCLES])
    return wait


def stream(gpu: Gpu, body: str) -> tuple[Any, tuple[int, int, int]]:
    """A kernel that moves memory, and its grid."""
    kernel = gemmlab.load(STREAM.replace("BODY", BODIES[body]), arch=gpu.device.arch)
    return kernel, (PER_SM * gpu.device.facts.sms, 1, 1)


def moved(body: str, flush: str, flush_mb: int, gpu: Gpu) -> Row:
    """Seconds by megabytes."""
    kernel, grid = stream(gpu, body)
    out = gpu.placed(np.zeros(1, np.uint32))
    data, other = (gpu.placed(np.zeros(mb << 20, np.uint8)) for mb in (max(MOVED_MB), flush_mb))
    reader, all_ = stream(gpu, "read")
    wait, count = pause(gpu), flush_mb * MB16
    read = gpu.device.prepare(reader, all_, (256, 1, 1), [other, out, count, count])
    row = {}
    for mb in MOVED_MB:
        taken = []
        elements = max(1, mb * MB16 // (2 if body == "copy" else 1))
        args = [data, out, elements if mb else 0, elements]
        launch = gpu.device.timed(kernel, grid, (256, 1, 1), args)
        for _ in range(LAUNCHES):
            if flush == "read":
                read()
            else:
                gpu.device.clear(other)
            wait()
            taken.append(launch())
        row[f"{mb} MB"] = statistics.median(taken)
    return row


def straight(instructions: int, warps: int, gpu: Gpu) -> Row:
    """Cycles of the slowest warp, in turns, and seconds of the launch."""
    chain = "".join(
        f'asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(x{i % 4}) : "f"(y));\n'
        for i in range(instructions)
    )
    source = STRAIGHT.replace("BODY", chain).replace("SLOTS", str(SLOTS))
    kernel, sms = gemmlab.load(source, arch=gpu.device.arch), gpu.device.facts.sms
    out = gpu.placed(np.zeros(sms * 32 * warps, np.float32))
    cycles = gpu.placed(np.zeros(TURNS * SLOTS, np.int64))
    other, wait = gpu.placed(np.zeros(FLUSH_MB << 20, np.uint8)), pause(gpu)
    args = [out, cycles, 1.0, TURNS]
    launch = gpu.device.timed(kernel, (sms, 1, 1), (32 * warps, 1, 1), args)
    turns, taken = [], []
    for _ in range(LAUNCHES):
        gpu.device.clear(other)
        wait()
        taken.append(launch())
        found = cycles.buffer.read().view(np.int64).reshape(TURNS, SLOTS)
        turns.append(found.max(axis=1))
    row = {f"turn {i + 1}": float(x) for i, x in enumerate(np.median(turns, axis=0))}
    return row | {"seconds": statistics.median(taken)}


def scattered(nbytes: int, gpu: Gpu) -> Row:
    """Seconds of a launch that reads `nbytes` bytes at each of `PLACES` random places."""
    words = nbytes // 4
    source = SCATTERED.replace("TURNS", str(IN_FLIGHT))
    kernel = gemmlab.load(source, arch=gpu.device.arch)
    data = gpu.placed(np.zeros(SCATTERED_MB << 18, np.uint32))
    out, wait = gpu.placed(np.zeros(1, np.uint32)), pause(gpu)
    args = [data, out, words, (SCATTERED_MB << 20) // nbytes - 1]
    grid = PLACES * words // (256 * IN_FLIGHT), 1, 1
    launch = gpu.device.timed(kernel, grid, (256, 1, 1), args)
    taken = []
    for _ in range(LAUNCHES):
        wait()
        taken.append(launch())
    return {"seconds": statistics.median(taken), "places": PLACES}


MEASUREMENT = Measurement(
    parts={
        "launches": {
            f"{body} after {flush_mb} MB were {flush}": partial(moved, body, flush, flush_mb)
            for body in ("read", "write", "copy")
            for flush, flush_mb in (("written", FLUSH_MB), ("read", FLUSH_MB), ("written", 50))
        },
        "code": {
            f"{n} instructions, {warps} warps": partial(straight, n, warps)
            for n in CODE
            for warps in (1, 8)
        },
        "scattered": {f"{n} bytes": partial(scattered, n) for n in (4, 32, 64, 128, 1024)},
    },
    depth=2,
)
