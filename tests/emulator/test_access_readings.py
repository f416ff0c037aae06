"""Counters of one-warp accesses of every kind, against Nsight Compute's on an H200."""

from __future__ import annotations

import json

import accesses
import numpy as np
import pytest

import gemmlab

FILE = accesses.FILE.parents[2] / "benchmarks" / "h200" / "accesses.json"
READINGS = json.loads(FILE.read_text())
# What hardware counts besides in a launch of one warp, whatever the warp does.
BESIDES = {"l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": 4}
# Where no lane takes part, ptxas has the instruction executed with a false predicate. PTX branches
# around it, so there it is not executed.
NO_LANE, EXECUTED = "no lane", "smsp__inst_executed_op_"
# Atomics to this many lines at once touch a few sectors once more than the rule says.
MANY_LINES = {("global_red_b64", "random 4"): 1, ("global_atom_b64", "random 4"): 1}
KERNELS = [(group, kernel) for group, kernels in accesses.GROUPS.items() for kernel in kernels]


def test_every_access_was_read():
    for group, kernels in accesses.GROUPS.items():
        readings = READINGS["groups"][group]["readings"]
        assert list(readings) == kernels
        assert all(list(found) == list(accesses.PATTERNS) for found in readings.values())


@pytest.mark.parametrize(("group", "kernel"), KERNELS)
def test_counters_are_the_hardwares(group, kernel):
    names = READINGS["groups"][group]["counters"]
    artifact = gemmlab.load(str(accesses.FILE), entry=kernel, arch=READINGS["arch"])
    others = [np.zeros(accesses.NBYTES, np.uint8) for _ in range(accesses.arrays(kernel) - 1)]
    readings = READINGS["groups"][group]["readings"][kernel]
    found, wanted = {}, {}
    for pattern, at in accesses.PATTERNS.items():
        args = [accesses.indices(at), *others]
        counters = gemmlab.emulate(artifact, grid=1, block=32, args=args).counters
        for name, reading in zip(names, readings[pattern], strict=True):
            if (pattern, name.startswith(EXECUTED)) == (NO_LANE, True):
                continue
            more = BESIDES.get(name, 0)
            if "sectors" in name and reading:
                more += MANY_LINES.get((kernel, pattern), 0)
            found[pattern, name], wanted[pattern, name] = counters[name] + more, reading
    assert found == wanted
