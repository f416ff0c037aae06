"""Latencies, and the effect of occupancy, as the page on concepts shows them. Ten seconds.

    python -m benchmarks concepts benchmarks/h200/concepts.json

Runs the kernels of examples/concepts/latency.cu and occupancy.cu.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

import gemmlab
from benchmarks.children import ROOT
from benchmarks.gpu import Gpu
from benchmarks.measurement import Measurement, Rows
from benchmarks.record import Row
from gemmlab.hardware.occupancy import occupancy
from gemmlab.report.markdown import table

EXAMPLES = ROOT / "examples" / "concepts"
LINE_WORDS = 32  # 128 bytes
STEPS = 20_000
L2_FILL = 2**28  # bytes, several times what L2 holds
CLOCKS = object()  # the place of the pointer to which the kernel writes its clocks
CHAINS = {"L1": 16 * 2**10, "L2": 8 * 2**20, "device memory": 2**29}  # bytes
COPIED = 2**27  # float32 numbers, 512 MB: more than L2 holds
BLOCK = 256
SMEM = (0, 50_000, 100_000, 200_000)  # bytes per block: 8, 4, 2 and 1 blocks per SM


def chain(nbytes: int) -> np.ndarray:
    """Return a cycle through all lines of `nbytes` bytes in random order, one index per line."""
    lines = nbytes // (4 * LINE_WORDS)
    order = np.random.default_rng(0).permutation(lines).astype(np.uint32) * LINE_WORDS
    order = np.roll(order, -int(np.flatnonzero(order == 0)[0]))
    following = np.zeros(nbytes // 4, np.uint32)
    following[order] = np.roll(order, -1)
    return following


def clocks(gpu: Gpu, entry: str, *args: Any) -> float:
    """Clocks of one step of a kernel of latency.cu; the last arguments are added here."""
    counter = gpu.placed(np.zeros(1, np.uint64))
    kernel = gemmlab.load(str(EXAMPLES / "latency.cu"), entry=entry, arch=gpu.device.arch)
    given = [counter if arg is CLOCKS else arg for arg in args]
    gpu.device.launch(kernel, (1, 1, 1), (1, 1, 1), given)  # loads the code
    gpu.device.clear(gpu.placed(np.zeros(L2_FILL, np.uint8)))  # and L2 holds none of the chain
    gpu.device.launch(kernel, (1, 1, 1), (1, 1, 1), given)
    return float(counter.buffer.read().view(np.uint64)[0]) / STEPS


def multiply_add(gpu: Gpu) -> float:
    return clocks(gpu, "multiply_add", 0.5, CLOCKS, STEPS)


def chase_shared(gpu: Gpu) -> float:
    return clocks(gpu, "chase_shared", gpu.placed(chain(4 * 1024)), CLOCKS, 1024, STEPS)


def chase(nbytes: int, warm: bool, gpu: Gpu) -> float:
    """Loads from a chain that is in a cache if `warm`."""
    lines = nbytes // (4 * LINE_WORDS) if warm else 0
    return clocks(gpu, "chase", gpu.placed(chain(nbytes)), CLOCKS, lines, STEPS)


def copies(gpu: Gpu) -> Iterator[Row]:
    """Bandwidth of a copy, by elements per thread and occupancy."""
    arch = gpu.device.arch
    kernel = gemmlab.load(str(EXAMPLES / "occupancy.cu"), arch=arch)
    x, y = gpu.placed(np.ones(COPIED, np.float32)), gpu.placed(np.zeros(COPIED, np.float32))
    assert kernel.resources
    for each in (1, 4):
        for smem in SMEM:
            grid = (COPIED // (BLOCK * each), 1, 1)
            time_s = gpu.device.measure(kernel, grid, (BLOCK, 1, 1), [x, y, each], smem)
            share = occupancy(arch, BLOCK, kernel.resources.registers, smem).fraction
            yield {"loads_in_flight": each, "occupancy": share, "gbs": 8e-9 * COPIED / time_s}


def concepts(record: Row) -> dict[str, str]:
    latency = [[what, f"{value:.0f}"] for what, value in record["latency_clocks"].items()]
    speeds: dict[float, list[str]] = {}
    for row in record["copies"]:
        speeds.setdefault(row["occupancy"], []).append(f"{row['gbs']:,.0f}")
    rows = [[f"{100 * share:.3g} %", *gbs] for share, gbs in speeds.items()]
    headings = ["occupancy", "one load in flight, GB/s", "four loads in flight, GB/s"]
    return {
        "latency": f"{record['gpu']}:\n\n{table(['result of', 'clocks'], latency)}",
        "occupancy": f"{record['gpu']}:\n\n{table(headings, rows)}",
    }


MEASUREMENT = Measurement(
    parts={
        "latency_clocks": {
            "multiply-add in registers": multiply_add,
            "shared memory": chase_shared,
            **{
                level: partial(chase, nbytes, level != "device memory")
                for level, nbytes in CHAINS.items()
            },
        },
        "copies": Rows(copies, ("loads_in_flight", "occupancy")),
    },
    pages={"concepts.md": concepts},
)
