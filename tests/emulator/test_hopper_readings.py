"""Results and counters of Hopper instructions against readings of the same kernels on an H200."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hopper import Kernel, box_load, box_store, module
from hopper_cases import CASES, digest, make
from machine import TIERS, needs_native
from test_tensor_maps import launch
from test_wgmma import pipeline

from gemmlab import TensorMap
from gemmlab.emulator import run

FILE = Path(__file__).parents[1] / "readings" / "hopper.json"
READINGS = json.loads(FILE.read_text())


def test_every_case_was_read():
    assert READINGS["digests"].keys() == CASES.keys()
    assert READINGS["counters"].keys() == COUNTED.keys()


# LLVM takes a second for each of these products. The sums of f32 show the other pairs of types.
HALVES = ("wgmma/f16.e4m3.e5m2", "wgmma/f16.e5m2.e4m3", "wgmma/f16.e5m2.e5m2")


@pytest.mark.parametrize(
    ("name", "tier"),
    [
        *((name, "numpy") for name in CASES),
        *(
            pytest.param(name, "native", marks=needs_native)
            for name in CASES
            if not name.startswith(HALVES)
        ),
    ],
)
@pytest.mark.slow
def test_bits_are_the_hardwares(name, tier):
    kernel = make(name)
    launch(kernel, tier=tier)
    assert digest(kernel.results) == READINGS["digests"][name]


def counted_pipeline() -> Kernel:
    a, b = np.zeros((64, 256), np.float16), np.zeros((128, 256), np.float16)
    maps = [TensorMap(x, (64, 64), swizzle="128B") for x in (a, b)]
    c = np.zeros((64, 128), np.float32)
    return Kernel(pipeline(256), [*maps, c], [c], 160, 32768, grid=(1, 2, 1))


def counted_bulk() -> Kernel:
    x = np.zeros(64, np.uint32)
    body = (
        "mov.u32 %r1, s;"
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%q0], [%r1], 16;"
        "cp.async.bulk.global.shared::cta.bulk_group [%q0+64], [%r1], 64;"
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
    )
    text = module(["u64"], body, ".shared .align 16 .b8 s[64];")
    return Kernel(text, [x], [x], threads=1)


NUMBERS = np.zeros((64, 64), np.uint16)
COUNTED = {
    "pipeline": counted_pipeline,
    "load": lambda: box_load(TensorMap(NUMBERS, (32, 64)), (0, 40)),
    "store": lambda: box_store(TensorMap(NUMBERS, (32, 32)), np.zeros(512, np.uint32), (16, 8)),
    "reduce": lambda: box_store(
        TensorMap(NUMBERS.astype(np.uint32), (16, 16)), np.zeros(256, np.uint32), (16, 8), "add"
    ),
    "bulk": counted_bulk,
}


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("name", COUNTED)
def test_counters_are_the_hardwares(name, tier):
    kernel = COUNTED[name]()
    block = (kernel.threads, 1, 1)
    given = kernel.grid, block, kernel.args, kernel.dynamic_smem
    found = run(kernel.text, "k", *given, tier=tier).counters
    hardware = READINGS["counters"][name]
    assert {key: found[key] for key in hardware} == hardware
