"""Neighbouring accesses that ptxas joins are joined by the emulator, and no others."""

import random
from collections import Counter
from functools import cache
from pathlib import Path

import joins
import numpy as np
import pytest
from machine import TIERS

import gemmlab
from gemmlab import sass

EXACT = [
    # Stores: in any order, nothing else of shared memory between them.
    *("4s0 4s4 4s8 4s12", "4s12 4s8 4s4 4s0", "4s8 4s0 4s12 4s4", "4s0 4s4", "4s4 4s8"),
    *("4s0 4s4 4s8", "4s4 4s8 4s12", "4s0 4s12 4s4", "4s8 4s12 4s16 4s20 4s24 4s28", "4s0 4s8"),
    *("4s0 4s16 4s4 4s20 4s8 4s24 4s12 4s28", "4s0 4s4 4s64 4s8 4s12", "4s0 4s64 4s4"),
    *("4s0 b4s0 4s4 b4s4", "4s0 4s4 4l64 4s8 4s12", "4l64 4s0 4s4", "4s0 4s4 4s0"),
    # Other widths, vectors.
    *("8s0 8s8", "8s8 8s16", "2s0 2s2", "2s2 2s4", "2s0 2s2 2s4 2s6", "1s0 1s1 1s2 1s3"),
    *("2s0 2s2 2s4 2s6 2s8 2s10 2s12 2s14", "2s0 2s2 4s4", "8s0 4s8 4s12", "2x4s0 2x4s8"),
    *("2x4s0 4s8 4s12", "4s8 4s12 2x4s0", "4s0 2x4s8 4s4", "4x4s0 4s16 4s20", "4x4s0 4s4"),
    # What is known of the alignment.
    *("b4s0 b4s4 b4s8 b4s12", "d4s0 d4s4 d4s8 d4s12", "d4s0 d4s8 d4s4 d4s12", "e4s0 e4s4"),
    *("d8s0 d8s8", "4s1024 4s1028 c4s0 c4s4", "c4s0 c4s4 c4s8 c4s12", "c4s8 c4s12 c4s16 c4s20"),
    # Loads: past loads of other places, and past all that does not write to shared memory.
    *("4l0 4l4 4l8 4l12", "4l12 4l0 4l8 4l4", "4l4 4l8", "4l0 4l8", "4l0 4l64 4l4 4l68", "1l0 1l1"),
    *("4l0 b4l64 4l4 b4l68", "4l1032 c4l4", "8l0 8l8", "2l0 2l2", "2l0 2l2 2l4 2l6", "2x4l0 2x4l8"),
    *("2x4l0 4l8 4l12", "4l8 4l12 2x4l0", "d4l0 d4l4 d4l8 d4l12", "e4l0 e4l4", "d8l0 d8l8"),
    *(f"4{what}0 {other} 4{what}4" for what in "sl" for other in joins.OTHERS),
    *("4l0 4s64 4l4", "4l0 b4s64 4l4"),
]
# What ptxas does otherwise: docs/emulator.md tells of it.
OTHERWISE = {
    "4l0 4l4 4l8": ({"load 16": 1}, {"load 8": 1, "load 4": 1}),
    "4l0 4l4 4l12": ({"load 16": 1}, {"load 8": 1, "load 4": 1}),
    "4l0 4l0 4l4": ({"load 8": 1}, {"load 8": 1, "load 4": 1}),
    "4s0 4l0": ({"store 4": 1}, {"store 4": 1, "load 4": 1}),
    "4s0 4s4 2x4s0": ({"store 8": 1}, {"store 8": 2}),
    "2x2s8 4s12": ({"store 8": 1}, {"store 4": 2}),
}
LOCAL = ["4s0 4s4 4s8 4s12", "4s4 4s8", "4l0 4l4 4l8 4l12", "4l0 4s256 4l4", "8l0 8l8"]
KERNELS = Path(__file__).with_name("joins.cu")
STAGED = Path(__file__).with_name("staged.cu")


@cache
def compared(space, *cases):
    """What machine code and the emulator have of each case."""
    text = joins.module(cases, space)
    machine = joins.of_machine_code(gemmlab.load(text, entry="k0", arch=joins.ARCH).cubin)
    names = {x: f"k{i}" for i, x in enumerate(cases)}
    return {x: (machine[name], joins.of_emulator(text, name)) for x, name in names.items()}


@pytest.mark.parametrize("words", EXACT)
def test_shared_accesses_are_those_of_the_machine_code(words):
    machine, emulated = compared("shared", *EXACT)[words]
    assert emulated == machine


@pytest.mark.parametrize("words", LOCAL)
def test_local_accesses_are_those_of_the_machine_code(words):
    machine, emulated = compared("local", *LOCAL)[words]
    assert emulated == machine


@pytest.mark.parametrize("words", OTHERWISE)
def test_what_is_not_joined_as_ptxas_does_is_known(words):
    machine, emulated = compared("shared", *OTHERWISE)[words]
    known = [{f"shared {x}": n for x, n in one.items()} for one in OTHERWISE[words]]
    assert [machine - emulated, emulated - machine] == [
        Counter(one) - Counter(other) for one, other in (known, known[::-1])
    ]


def test_accesses_of_cuda_kernels_are_those_of_the_machine_code():
    artifact = gemmlab.load(KERNELS, entry="variables", arch=joins.ARCH)
    machine = joins.of_machine_code(artifact.cubin)
    assert machine["variables"]["shared store 16"] == 1
    assert {name: joins.of_emulator(artifact.ptx, name) for name in machine} == machine


def test_random_sequences_are_those_of_the_machine_code():
    rng = random.Random(20)
    cases = []
    for _ in range(100):
        width = rng.choice([2, 4, 4, 4, 8])
        places = rng.sample(range(0, 48, width), rng.randint(2, 6))
        words = [f"{rng.choice(['', '', 'b'])}{width}s{place}" for place in places]
        if rng.random() < 0.5:
            words.insert(rng.randrange(len(words)), rng.choice([*joins.OTHERS]))
        cases.append(" ".join(words))
    cases = [*dict.fromkeys(cases)]
    found = compared("shared", *cases)
    assert {x: two[1] for x, two in found.items()} == {x: two[0] for x, two in found.items()}


@pytest.mark.parametrize("tier", TIERS)
def test_a_tile_staged_word_by_word_counts_as_on_hardware(tier):
    """At 1024³ an H200 counts 327,680 shared store instructions: the four of A's tile are one."""
    m, n, k = 128, 128, 16
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-8, 8, (rows, k)).astype(np.float32) for rows in (m, n))
    c = np.zeros((n, m), np.float32)
    artifact = gemmlab.load(STAGED, arch=joins.ARCH)
    run = gemmlab.emulate(artifact, grid=1, block=256, args=[a, b, c, m, n, k], tier=tier)
    assert np.array_equal(c.T, a @ b.T)
    warps, steps = 8, k // 8
    instructions = "smsp__inst_executed_op_shared_st.sum"
    assert run.counters[instructions] == 5 * warps * steps
    assert run.counters[instructions] * 64 * 128 // steps == 327_680
    assert sass.counters(artifact, run)[instructions] == run.counters[instructions]
    # One STS.128 of four phases, and four stores in which two lanes meet in each bank.
    waves = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"
    assert run.counters[waves] == (4 + 4 * 2) * warps * steps
