"""Latencies and rates of a GPU, for the model of gemmlab/timing. A minute of GPU time.

    python -m benchmarks latencies benchmarks/h200/latencies.json

For each microbenchmark, by warps: cycles per instruction until the last warp ends, and those of a
warp on average; of bursts, cycles until all are issued. Bandwidths of L2, by the size of what is
read again and again, and of device memory, by the share of the multiprocessors that read.
"""

from __future__ import annotations

from functools import partial

import numpy as np

import gemmlab
from benchmarks import microbenchmarks
from benchmarks.gpu import Gpu
from benchmarks.measurement import Measurement
from benchmarks.microbenchmarks import LINES, UNROLL, Case
from benchmarks.record import Row

DATA_WORDS, OUT_WORDS, REPEATS = 1 << 28, 1 << 22, 3
PART = 1 << 20  # words of `data` that a case reads, unless it walks through more
STREAM = """
extern "C" __global__ void stream(uint4* data, unsigned* out, long long count, long long wrap) {
  uint4 s = make_uint4(0, 0, 0, 0);
  const long long step = (long long)gridDim.x * blockDim.x;
  long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x;
#pragma unroll 8
  for (long long i = at; i < count; i += step) {
    BODY
    at += step;
    if (at >= wrap) at -= wrap;
  }
  if ((s.x ^ s.y ^ s.z ^ s.w) == 12345) out[0] = s.x;
}
"""
READ = "uint4 v = __ldcg(data + at);"
BODIES = {
    "read": READ + " s.x ^= v.x; s.y ^= v.y; s.z ^= v.z; s.w ^= v.w;",
    "write": "data[at] = s;",
    "copy": READ + " data[at + wrap] = v;",
    "nothing": "",
}
MB16 = 1 << 16  # elements of 16 bytes in a MB
# name: body, elements that are distinct, elements in all, blocks per multiprocessor, their threads
STREAMS: dict[str, tuple[str, int, int, float, int]] = {
    "device memory, read": ("read", 512 * MB16, 512 * MB16, 8, 256),
    "device memory, write": ("write", 512 * MB16, 512 * MB16, 8, 256),
    "device memory, copy": ("copy", 512 * MB16, 512 * MB16, 8, 256),
    "L2, read": ("read", 8 * MB16, 1024 * MB16, 8, 256),
    "L2, write": ("write", 8 * MB16, 1024 * MB16, 8, 256),
    "no work, few blocks": ("nothing", 1, 0, 1, 256),
    "no work, many blocks": ("nothing", 1, 0, 512, 256),
}
for mb in (12, 16, 20, 24, 28, 32, 40, 48, 56):
    STREAMS[f"L2, read of {mb} MB"] = ("read", mb * MB16, 1024 * MB16, 8, 256)
for share in (0.06, 0.25, 0.5, 0.75, 1):
    STREAMS[f"device memory, read by {share:.0%}"] = ("read", 512 * MB16, 512 * MB16, share, 1024)


def cycles(case: Case, gpu: Gpu) -> dict[str, list[float]]:
    """Cycles per instruction by number of warps."""
    kernel = gemmlab.load(case.source, arch=gpu.device.arch)
    links = np.zeros(PART, np.uint32)
    if case.chain:
        places = np.arange(0, case.chain, 4, dtype=np.int64) + 128 * LINES
        links = (places % case.chain).astype(np.uint32)
    data, out = gpu.placed(links), gpu.placed(np.zeros(PART, np.uint32))
    taken, row = gpu.placed(np.zeros(128, np.uint64)), {}
    for warps in case.warps:
        found = []
        for turn in range(REPEATS):
            first = turn * case.chain // 4 if case.chain >= 1 << 30 else 0  # not yet in L2
            args = [data, out, taken, case.turns, 1, first]
            gpu.device.launch(kernel, (1, 1, 1), (32 * warps, 1, 1), args)
            read = taken.buffer.read().view(np.uint64).astype(np.int64)
            if case.is_burst:
                found.append((float(read[64]), float(read[64])))
                continue
            start, end = read[: 2 * warps : 2], read[1 : 2 * warps : 2]
            count = case.turns * UNROLL * case.per
            found.append(
                (float(end.max() - start.min()) / count, float(np.mean(end - start)) / count)
            )
        row[f"{warps} warps"] = [round(x, 2) for x in min(found)]
    return row


def stream(name: str, gpu: Gpu) -> Row:
    """Seconds, and GB/s where data move."""
    body, distinct, count, per_sm, threads = STREAMS[name]
    kernel = gemmlab.load(STREAM.replace("BODY", BODIES[body]), arch=gpu.device.arch)
    data, out = (gpu.placed(np.zeros(n, np.uint32)) for n in (8 * distinct, 4))
    grid = (round(gpu.device.facts.sms * per_sm), 1, 1)
    time_s = gpu.device.measure(kernel, grid, (threads, 1, 1), [data, out, count, distinct])
    moved = 16 * count * (2 if body == "copy" else 1)
    return {"seconds": time_s, "gbs": round(moved / time_s / 1e9, 1)}


MEASUREMENT = Measurement(
    parts={
        "cycles": {case.name: partial(cycles, case) for case in microbenchmarks.cases(90)},
        "streams": {name: partial(stream, name) for name in STREAMS},
    },
    depth=2,
)
