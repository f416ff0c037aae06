"""Launches of the kernels in this folder whose machine code was measured with Nsight Compute."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import gemmlab
from gemmlab.compile.artifact import Artifact
from gemmlab.emulator import Run

FOLDER = Path(__file__).parent
ARCH = "sm_90a"
Rng = np.random.Generator


@dataclass(frozen=True)
class Launch:
    """One launch of one kernel. `make` draws its arguments."""

    entry: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    make: Callable[[Rng], list[Any]]

    def artifact(self) -> Artifact:
        file = "loop.ptx" if self.entry == "unrolled" else "kernels.cu"
        return gemmlab.load(FOLDER / file, entry=self.entry, arch=ARCH)

    def args(self) -> list[Any]:
        return self.make(np.random.default_rng(zlib.crc32(self.entry.encode())))

    def run(self) -> Run:
        return gemmlab.emulate(self.artifact(), grid=self.grid, block=self.block, args=self.args())


def floats(rng: Rng, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def ints(rng: Rng, count: int, most: int = 1000) -> np.ndarray:
    return rng.integers(0, most, count).astype(np.int32)


N = np.int32(1000)
ROUGH = (4,), (256,)  # 1024 threads for 1000 elements
LAUNCHES = {
    "calls": Launch("calls", *ROUGH, lambda rng: [floats(rng, 1000), N]),
    "float-division": Launch(
        "float_division",
        *ROUGH,
        lambda rng: [floats(rng, 1000) + np.float32(9), abs(floats(rng, 1000)) + np.float32(1), N],
    ),
    "float-division-rare": Launch(
        "float_division",
        *ROUGH,
        lambda rng: [floats(rng, 1000), np.float32(1e-40) * abs(floats(rng, 1000)), N],
    ),
    "integer-division": Launch(
        "integer_division",
        *ROUGH,
        lambda rng: [rng.integers(1, 1 << 20, 1000), rng.integers(1, 1 << 30, 1000), N],
    ),
    "integer-division-wide": Launch(
        "integer_division",
        *ROUGH,
        lambda rng: [rng.integers(1, 1 << 20, 1000), rng.integers(1 << 40, 1 << 60, 1000), N],
    ),
    "collatz": Launch("collatz", *ROUGH, lambda rng: [np.zeros(1000, np.int32), N]),
    "jump-table": Launch("jump_table", *ROUGH, lambda rng: [ints(rng, 6000), N]),
    "grid-stride-sum": Launch(
        "grid_stride_sum", *ROUGH, lambda rng: [floats(rng, 1), floats(rng, 10007), np.int32(10007)]
    ),
    "mandelbrot": Launch(
        "mandelbrot",
        (4, 8),
        (32, 4),
        lambda rng: [np.zeros(3000, np.int32), np.int32(100), np.int32(30), np.int32(50)],
    ),
    "spills": Launch("spills", (1,), (64,), lambda rng: [floats(rng, 96 * 100), np.int32(20)]),
    "indexed-registers": Launch(
        "indexed_registers",
        (2,),
        (64,),
        lambda rng: [floats(rng, 4096), ints(rng, 100), np.int32(100)],
    ),
    "rolled": Launch(
        "rolled", (2,), (64,), lambda rng: [floats(rng, 128), floats(rng, 4000), np.int32(100)]
    ),
    "bitonic-sort": Launch("bitonic_sort", (3,), (256,), lambda rng: [ints(rng, 1536)]),
    "binary-search": Launch(
        "binary_search",
        *ROUGH,
        lambda rng: (
            [
                ints(rng, 1000),
                np.sort(ints(rng, 5000, 99999)),
                ints(rng, 1000, 99999),
                np.int32(5000),
                N,
            ]
        ),
    ),
    "nested-branches": Launch("nested_branches", *ROUGH, lambda rng: [floats(rng, 2000), N]),
    "stencil": Launch(
        "stencil",
        (4, 4),
        (32, 16),
        lambda rng: [floats(rng, 6000), floats(rng, 6000), np.int32(100), np.int32(60)],
    ),
    "scan": Launch("scan", (4,), (256,), lambda rng: [floats(rng, 1024)]),
    "shared-float-atomics": Launch(
        "shared_float_atomics", *ROUGH, lambda rng: [floats(rng, 16), floats(rng, 1000), N]
    ),
    "tiled-product": Launch(
        "tiled_product",
        (2, 2),
        (256,),
        lambda rng: (
            [
                floats(rng, 10000),
                floats(rng, 10000),
                floats(rng, 10000),
                np.int32(100),
                np.int32(90),
                np.int32(70),
            ]
        ),
    ),
    "ballots": Launch("ballots", *ROUGH, lambda rng: [ints(rng, 1024), ints(rng, 1000), N]),
    "unrolled": Launch(
        "unrolled",
        (2,),
        (64,),
        lambda rng: [floats(rng, 128), floats(rng, 4000), np.int32(103), np.int32(0)],
    ),
    "unrolled-unevenly": Launch(
        "unrolled",
        (2,),
        (64,),
        lambda rng: [floats(rng, 128), floats(rng, 4000), np.int32(50), np.int32(31)],
    ),
}
