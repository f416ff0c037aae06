"""The emulator joins the adjacent accesses that ptxas joins, and no others."""

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
    # Stores: in any order, without other accesses to shared memory in between.
    *("4s0 4s4 4s8 4s12", "4s12 4s8 4s4 4s0", "4s8 4s0 4s12 4s4", "4s0 4s4", "4s4 4s8"),
    *("4s0 4s4 4s8", "4s4 4s8 4s12", "4s0 4s12 4s4", "4s8 4s12 4s16 4s20 4s24 4s28", "4s0 4s8"),
    *("4s0 4s16 4s4 4s20 4s8 4s24 4s12 4s28", "4s0 4s4 4s64 4s8 4s12", "4s0 4s64 4s4"),
    *("4s0 b4s0 4s4 b4s4", "4s0 4s4 4l64 4s8 4s12", "4l64 4s0 4s4", "4s0 4s4 4s0"),
    # Other widths, vectors.
    *("8s0 8s8", "8s8 8s16", "2s0 2s2", "2s2 2s4", "2s0 2s2 2s4 2s6", "1s0 1s1 1s2 1s3"),
    *("2s0 2s2 2s4 2s6 2s8 2s10 2s12 2s14", "2s0 2s2 4s4", "8s0 4s8 4s12", "2x4s0 2x4s8"),
    *("2x4s0 4s8 4s12", "4s8 4s12 2x4s0", "4s0 2x4s8 4s4", "4x4s0 4s16 4s20", "4x4s0 4s4"),
    # Known alignment.
    *("b4s0 b4s4 b4s8 b4s12", "d4s0 d4s4 d4s8 d4s12", "d4s0 d4s8 d4s4 d4s12", "e4s0 e4s4"),
    *("d8s0 d8s8", "4s1024 4s1028 c4s0 c4s4", "c4s0 c4s4 c4s8 c4s12", "c4s8 c4s12 c4s16 c4s20"),
    # Loads: past loads of other addresses, and past anything that does not write to shared memory.
    *("4l0 4l4 4l8 4l12", "4l12 4l0 4l8 4l4", "4l4 4l8", "4l0 4l8", "4l0 4l64 4l4 4l68", "1l0 1l1"),
    *("4l0 b4l64 4l4 b4l68", "4l1032 c4l4", "8l0 8l8", "2l0 2l2", "2l0 2l2 2l4 2l6", "2x4l0 2x4l8"),
    *("2x4l0 4l8 4l12", "4l8 4l12 2x4l0", "d4l0 d4l4 d4l8 d4l12", "e4l0 e4l4", "d8l0 d8l8"),
    *(f"4{what}0 {other} 4{what}4" for what in "sl" for other in joins.OTHERS),
    *("4l0 4s64 4l4", "4l0 b4s64 4l4"),
]
# Known deviations of ptxas; see docs/emulator.md.
OTHERWISE = {
    "4l0 4l4 4l8": ({"load 16": 1}, {"load 8": 1, "load 4": 1}),
    "4l0 4l4 4l12": ({"load 16": 1}, {"load 8": 1, "load 4": 1}),
    "4l0 4l0 4l4": ({"load 8": 1}, {"load 8": 1, "load 4": 1}),
    "4s0 4l0": ({"store 4": 1}, {"store 4": 1, "load 4": 1}),
    "4s0 4s4 2x4s0": ({"store 8": 1}, {"store 8": 2}),
    "2x2s8 4s12": ({"store 8": 1}, {"store 4": 2}),
}
LOCAL = ["4s0 4s4 4s8 4s12", "4s4 4s8", "4l0 4l4 4l8 4l12", "4l0 4s256 4l4", "8l0 8l8"]
ADDRESSES = """
shl.b32 %z0, %y0, 4;
shl.b32 %z0, %y0, 3;
shl.b32 %z1, %y0, 4; shl.b32 %z0, %z1, %y1;
shl.b32 %z1, %y0, 8; shr.u32 %z0, %z1, 4;
mul.lo.s32 %z0, %y0, 48;
mul.lo.s32 %z0, %y0, 20;
shl.b32 %z1, %y0, 2; shl.b32 %z2, %y1, 2; mul.lo.s32 %z0, %z1, %z2;
mul24.lo.u32 %z0, %y0, 16;
mad24.lo.u32 %z0, %y0, 16, 32;
mad.lo.s32 %z0, %y0, 16, 8;
cvt.u16.u32 %v0, %y0; mul.wide.u16 %z0, %v0, 16;
mul.wide.s32 %w0, %y0, 16; cvt.u32.u64 %z0, %w0;
mul.wide.s32 %w0, %y0, 16; neg.s64 %w1, %w0; cvt.u32.u64 %z0, %w1;
mul.wide.s32 %w0, %y0, 16; cvt.sat.s32.s64 %z0, %w0;
shl.b32 %z1, %y0, 4; neg.s32 %z0, %z1;
shl.b32 %z1, %y0, 4; abs.s32 %z0, %z1;
shl.b32 %z1, %y0, 4; not.b32 %z0, %z1;
shl.b32 %z1, %y0, 4; min.s32 %z0, %z1, 256;
shl.b32 %z1, %y0, 4; sub.s32 %z0, 512, %z1;
shl.b32 %z1, %y0, 4; add.sat.s32 %z0, %z1, 16;
shl.b32 %z1, %y0, 4; add.s32 %z2, %z1, 8; add.s32 %z0, %z2, 8;
shl.b32 %z1, %y0, 4; xor.b32 %z0, %z1, 48;
shl.b32 %z1, %y0, 4; or.b32 %z0, %z1, 4;
shl.b32 %z1, %y0, 4; and.b32 %z0, %z1, %y1;
and.b32 %z0, %y0, -16;
and.b32 %z0, %y0, 40;
lop3.b32 %z0, %y0, -16, 0, 0xC0;
shl.b32 %z1, %y0, 4; selp.b32 %z0, %z1, 64, %p;
shl.b32 %z1, %y0, 4; selp.b32 %z0, %z1, 8, %p;
shl.b32 %z1, %y0, 4; slct.s32.s32 %z0, %z1, 64, %y1;
shl.b32 %z1, %y0, 4; rem.u32 %z0, %z1, 48;
shl.b32 %z1, %y0, 4; rem.s32 %z0, %z1, 512;
shl.b32 %z1, %y0, 5; bfi.b32 %z0, %y1, %z1, 4, 8;
shl.b32 %z1, %y0, 5; bfi.b32 %z0, %y1, %z1, 2, 8;
shf.l.wrap.b32 %z0, 0, %y0, 4;
shl.b32 %z1, %y0, 4; cvt.rn.f32.s32 %f0, %z1; cvt.rzi.s32.f32 %z0, %f0;
shl.b32 %z1, %y0, 4; cvt.rn.f32.s32 %f0, %z1; mov.b32 %z0, %f0;
"""
KERNELS = Path(__file__).with_name("joins.cu")
STAGED = Path(__file__).with_name("staged.cu")


def both(*kernels):
    """Return the accesses of kernels k0, k1, … in machine code and in the emulator."""
    text = joins.module(kernels)
    cubin = gemmlab.load(text, entry="k0", arch=joins.ARCH).cubin
    assert cubin is not None
    machine = joins.of_machine_code(cubin)
    return [(machine[f"k{i}"], joins.of_emulator(text, f"k{i}")) for i in range(len(kernels))]


@cache
def compared(space, *cases):
    kernels = [joins.kernel(f"k{i}", words, space) for i, words in enumerate(cases)]
    return dict(zip(cases, both(*kernels), strict=True))


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


@pytest.mark.slow
def test_alignment_is_proved_where_ptxas_proves_it():
    ways = ADDRESSES.strip().splitlines()
    words = "z4s0 z4s4 z4s8 z4s12"
    kernels = [joins.kernel(f"k{i}", words, address=way) for i, way in enumerate(ways)]
    found = dict(zip(ways, both(*kernels), strict=True))
    assert {way: two[1] for way, two in found.items()} == {
        way: two[0] for way, two in found.items()
    }


WIDER = """
mul.wide.u32 %w0, %y0, 5; st.shared.u32 [%a], %w0; st.shared.u32 [%a+4], %w0;
st.shared.u16 [%a], %y0; st.shared.u16 [%a+2], %y1;
ld.shared.u32 %w0, [%a]; ld.shared.u32 %w1, [%a+4]; st.global.v2.u64 [%g], {%w0, %w1};
ld.shared.s32 %w0, [%a]; ld.shared.s32 %w1, [%a+4]; st.global.v2.u64 [%g], {%w0, %w1};
ld.shared.u16 %z1, [%a]; ld.shared.u16 %z2, [%a+2]; st.global.v2.u32 [%g], {%z1, %z2};
"""


def test_accesses_of_wider_registers_are_those_of_the_machine_code():
    ways = [f"{way} mov.u32 %z0, 0;" for way in WIDER.strip().splitlines()]
    for machine, emulated in both(
        *(joins.kernel(f"k{i}", "", address=x) for i, x in enumerate(ways))
    ):
        assert emulated == machine


@pytest.mark.slow
@pytest.mark.parametrize("alignment", [4, 8, 16])
def test_the_stack_is_aligned_as_ptxas_aligns_it(alignment):
    words = "4s0 4s4 4s8 4s12 4s16"
    text = joins.kernel("k0", words, "local").replace(".align 16", f".align {alignment}")
    ((machine, emulated),) = both(text)
    assert emulated == machine


@pytest.mark.slow
def test_accesses_of_cuda_kernels_are_those_of_the_machine_code():
    artifact = gemmlab.load(KERNELS, entry="variables", arch=joins.ARCH)
    assert artifact.cubin is not None
    machine = joins.of_machine_code(artifact.cubin)
    assert machine["variables"]["shared store 16"] == 1
    assert {name: joins.of_emulator(artifact.ptx, name) for name in machine} == machine


@pytest.mark.slow
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
    # One STS.128 of four phases, and four stores in which two lanes share each bank.
    waves = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"
    assert run.counters[waves] == (4 + 4 * 2) * warps * steps
