"""Counters of one-warp accesses of every kind, against Nsight Compute's on an H200."""

from __future__ import annotations

import json

import accesses
import numpy as np
import pytest

import gemmlab

FILE = accesses.FILE.parents[1] / "readings" / "accesses.json"
READINGS = json.loads(FILE.read_text())
# Counts that the hardware adds to every launch of one warp.
BESIDES = {"l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": 4}
# If no lane is active, ptxas issues the instruction with a false predicate, which takes a
# wavefront. PTX branches around it, so it is not executed there.
NO_LANE, EXECUTED = "no lane", ("smsp__inst_executed_op_", *BESIDES)
# Tolerance: atomics to this many lines touch a few sectors more than the rule says, and wide copies
# from many unordered lines are split differently.
WIDE_ATOMICS = ("global_red_b64", "global_atom_b64", "global_red_v4_f32")
TOLERANCE = {(kernel, "random 4"): 1 for kernel in WIDE_ATOMICS}
TOLERANCE |= {("copy_ld_b64", "random, some lanes 0"): 1}
TOLERANCE |= {("copy_ld_b128", f"random {k}"): 3 for k in (2, 3, 4)}
TOLERANCE |= {("copy_ld_b128", f"random, some lanes {k}"): 5 for k in (0, 1, 2)}
KERNELS = [(group, kernel) for group, kernels in accesses.GROUPS.items() for kernel in kernels]


def test_every_access_was_read():
    for group, kernels in accesses.GROUPS.items():
        readings = READINGS["groups"][group]["readings"]
        assert list(readings) == kernels
        assert all(list(found) == list(accesses.PATTERNS) for found in readings.values())


@pytest.mark.parametrize(("group", "kernel"), KERNELS)
@pytest.mark.slow
def test_counters_are_the_hardwares(group, kernel):
    names = READINGS["groups"][group]["counters"]
    artifact = gemmlab.load(str(accesses.FILE), entry=kernel, arch=READINGS["arch"])
    dtype = (
        "u2" if kernel.endswith("b16") else "u1"
    )  # byte arrays stand for words, but not for 16-bit elements
    count = accesses.arrays(kernel) - 1
    others = [np.zeros(accesses.NBYTES, np.uint8).view(dtype) for _ in range(count)]
    readings = READINGS["groups"][group]["readings"][kernel]
    off: dict[tuple[str, str], int] = {}
    for pattern, at in accesses.PATTERNS.items():
        args = [accesses.indices(at), *others]
        counters = gemmlab.emulate(artifact, grid=1, block=32, args=args).counters
        for name, reading in zip(names, readings[pattern], strict=True):
            if (pattern, name.startswith(EXECUTED)) != (NO_LANE, True):
                difference = abs(counters[name] + BESIDES.get(name, 0) - reading)
                if difference > TOLERANCE.get((kernel, pattern), 0):
                    off[pattern, name] = difference
    assert not off
