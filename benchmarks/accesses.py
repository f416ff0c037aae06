"""The counters of one-warp accesses, by Nsight Compute. A few minutes of GPU time.

    python -m benchmarks accesses tests/readings/accesses.json [groups[:WORD]]

Launches every kernel of tests/emulator/accesses.cu with every pattern of accesses.py, and records
the memory counters that both Nsight Compute and the emulator have. Needs ncu.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np

import gemmlab
from benchmarks import ncu
from benchmarks.children import ROOT, command
from benchmarks.gpu import Gpu
from benchmarks.measurement import Measurement
from benchmarks.record import Row

sys.path.append(str(ROOT / "tests" / "emulator"))
import accesses

ARCH = "sm_90a"
# Parts of the names of each group's counters.
WORDS = {
    "global": ("global_op_ld.", "global_op_st.", "global_ld", "global_st"),
    "shared": ("shared_op_ld.", "shared_op_st.", "shared_ld", "shared_st."),
    "local": ("local",),
    "atomic": ("_atom.", "op_red.", "global_red."),
    "copy": ("ldgsts", "shared_op_ld.", "shared_op_st.", "mem_shared."),
    "matrix": ("ldsm", "stsm", "shared_op_ld.", "shared_op_st.", "shared_ld", "shared_st."),
}
ABOUT = (
    "Launches of one warp: kernels of tests/emulator/accesses.cu, patterns of accesses.py. For "
    "each group of kernels the names of its counters, then their values by kernel and pattern."
)


def launch(group: str) -> None:
    """Launch all kernels of a group, in order."""
    device = Gpu().device
    for kernel in accesses.GROUPS[group]:
        artifact = gemmlab.load(str(accesses.FILE), entry=kernel, arch=ARCH)
        count = accesses.arrays(kernel)
        buffer = device.allocate((count + 1) * accesses.SPACING)
        buffer.write(np.zeros(buffer.nbytes, np.uint8))
        first = -(-buffer.address // accesses.SPACING) * accesses.SPACING
        args = [first + i * accesses.SPACING for i in range(count)]
        for at in accesses.PATTERNS.values():
            buffer.write(at, first - buffer.address)
            device.launch(artifact, (1, 1, 1), (32, 1, 1), args)


def counters() -> list[str]:
    """Counters that the emulator and Nsight Compute on this GPU have in common."""
    known = ncu.known()
    kernel = accesses.GROUPS["global"][0]
    args = [np.zeros(accesses.NBYTES, np.uint8)] * accesses.arrays(kernel)
    artifact = gemmlab.load(str(accesses.FILE), entry=kernel, arch=ARCH)
    ours = gemmlab.emulate(artifact, grid=1, block=32, args=args).counters
    return [name for name in ours if name.partition(".")[0] in known]


def read(group: str, gpu: Gpu) -> Row:
    """Counters of all launches of a group."""
    chosen = [name for name in counters() if any(word in name for word in WORDS[group])]
    rows = [counts for _, counts in ncu.read(command("accesses", "launch", group), chosen)]
    launches = [
        (kernel, pattern) for kernel in accesses.GROUPS[group] for pattern in accesses.PATTERNS
    ]
    found: dict[str, Any] = {kernel: {} for kernel in accesses.GROUPS[group]}
    for (kernel, pattern), row in zip(launches, rows, strict=True):
        found[kernel][pattern] = list(row.values())
    return {"counters": chosen, "readings": found}


def head(gpu: Gpu) -> Row:
    tool = f"Nsight Compute {ncu.version()}, --clock-control none"
    return {**gpu.facts(), "tool": tool, "arch": ARCH, "about": ABOUT}


MEASUREMENT = Measurement(
    parts={"groups": {group: partial(read, group) for group in accesses.GROUPS}},
    head=head,
    depth=5,  # a line for each reading
)
