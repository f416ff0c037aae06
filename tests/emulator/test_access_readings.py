"""Counters of one-warp accesses of every kind, against Nsight Compute's on an H200."""

from __future__ import annotations

import json

import accesses
import numpy as np
import pytest

import gemmlab

FILE = accesses.FILE.parents[2] / "benchmarks" / "h200" / "accesses.json"
READINGS = json.loads(FILE.read_text())
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
    found = {}
    for pattern, at in accesses.PATTERNS.items():
        args = [at, *(np.zeros(nbytes, np.uint8) for nbytes in accesses.arrays(kernel))]
        counters = gemmlab.emulate(artifact, grid=1, block=32, args=args).counters
        found[pattern] = [counters[name] for name in names]
    assert found == READINGS["groups"][group]["readings"][kernel]
