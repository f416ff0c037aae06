"""atom and red, and collectives of a warp's lanes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gemmlab.errors import DeadlockError, EmulationError

RNG = np.random.default_rng(5)

REFERENCES: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda old, b: old + b,
    "min": min,
    "max": max,
    "and": lambda old, b: old & b,
    "or": lambda old, b: old | b,
    "xor": lambda old, b: old ^ b,
    "exch": lambda old, b: b,
    "inc": lambda old, b: 0 if old >= b else old + 1,
    "dec": lambda old, b: b if old == 0 or old > b else old - 1,
}
ROWS = [("add", t) for t in ("u32", "s32", "u64", "f32", "f64")]
ROWS += [(op, t) for op in ("min", "max") for t in ("u32", "s32", "u64", "s64")]
ROWS += [(op, t) for op in ("and", "or", "xor", "exch") for t in ("b32", "b64")]
ROWS += [("inc", "u32"), ("dec", "u32")]


@pytest.mark.parametrize("space", ["global", "shared", ""])
@pytest.mark.parametrize("guard", ["", "@%p1 "])
@pytest.mark.parametrize(("op", "type_"), ROWS)
def test_atomics_go_in_lane_order(launch, op, type_, space, guard):
    kind = np.dtype({"b": "u", "u": "u", "s": "i", "f": "f"}[type_[0]] + str(int(type_[1:]) // 8))
    width, lanes, cells = kind.itemsize, 96, 5
    values = RNG.integers(0 if kind.kind == "u" else -9, 40, lanes).astype(kind)
    where = RNG.integers(0, cells, lanes).astype(np.uint32)
    where[40:] = 2  # many lanes share one cell
    memory = RNG.integers(0, 20, cells).astype(kind)
    old = np.zeros(lanes, kind)
    wanted, olds = memory.tolist(), []
    for lane, (cell, value) in enumerate(zip(where.tolist(), values.tolist(), strict=True)):
        on = not guard or lane < 70
        olds.append(wanted[cell] if on else 0)
        wanted[cell] = REFERENCES[op](wanted[cell], value) if on else wanted[cell]
    shared = space == "shared"
    copies = (
        "mov.u64 %q0, s; setp.ge.u32 %p2, %r0, 5; @%p2 bra A;"
        f"mad.wide.u32 %q6, %r0, {width}, %q5; mad.wide.u32 %q7, %r0, {width}, %q0;"
        f"ld.global.b{8 * width} %v, [%q6]; st.shared.b{8 * width} [%q7], %v; A: bar.sync 0;"
    )
    back = (
        f"bar.sync 0; @%p2 bra B; ld.shared.b{8 * width} %v, [%q7];"
        f"st.global.b{8 * width} [%q6], %v; B:"
    )
    dot = f".{space}" if space else ""
    counters = launch(
        f".reg .b{8 * width} %v, %w; .shared .align 8 .b8 s[64]; mov.u64 %q5, %q0;"
        f"{copies if shared else ''} setp.lt.u32 %p1, %r0, 70; mov.b{8 * width} %w, 0;"
        f"mad.wide.u32 %q4, %r0, {width}, %q2; add.u64 %q10, %q1, %q31;"
        f"ld.global.u32 %r1, [%q10]; ld.global.b{8 * width} %v, [%q4];"
        f"mad.wide.u32 %q11, %r1, {width}, %q0; mad.wide.u32 %q12, %r0, {width}, %q3;"
        f"{guard}atom{dot}.{op}.{type_} %w, [%q11], %v; st.global.b{8 * width} [%q12], %w;"
        f"{back if shared else ''}",
        [memory, where, values, old],
        block=lanes,
    ).counters
    np.testing.assert_array_equal(memory, np.array(wanted).astype(kind))
    np.testing.assert_array_equal(old, np.array(olds).astype(kind))
    assert counters[f"smsp__inst_executed_op_{space or 'global'}_atom.sum"] == 3


@pytest.mark.parametrize("opcode", ["atom.global", "atom", "red.global"])
@pytest.mark.parametrize(
    ("type_", "count", "op"),
    [
        *itertools.product(["f16x2"], [1, 4], ["add", "max"]),
        *(("f16", 8, "add"), ("f16", 8, "max"), ("f32", 4, "add")),
    ],
)
def test_atomics_on_vectors_and_pairs(launch, opcode, type_, count, op):
    dtype = np.dtype("f4" if type_ == "f32" else "f2")
    per_register = 2 if type_ == "f16x2" else 1
    lanes, size = 48, count * per_register
    register = ".b16 %v" if type_ == "f16" else ".b32 %v"
    names = [f"%v{k}" for k in range(count)]
    values = RNG.integers(-8, 8, (lanes, size)).astype(dtype)
    memory, old = np.zeros((2, size), dtype), np.zeros((lanes, size), dtype)
    bits, vector = 8 * dtype.itemsize * per_register, f".v{count}" * (count > 1)
    listed = f"{{{', '.join(names)}}}" if count > 1 else names[0]
    loads, stores = (
        "".join(f"{op}.b{bits} {form(k * bits // 8, name)};" for k, name in enumerate(names))
        for op, form in (
            ("ld.global", lambda at, name: f"{name}, [%q10+{at}]"),
            ("st.global", lambda at, name: f"[%q11+{at}], {name}"),
        )
    )
    noftz = ".noftz" * (type_ != "f32")
    gives = opcode.startswith("atom")
    counters = launch(
        f".reg {register}<{count}>; mad.wide.u32 %q10, %r0, {values.itemsize * size}, %q1;"
        f"mad.wide.u32 %q11, %r0, {values.itemsize * size}, %q2; and.b32 %r1, %r0, 1;"
        f"mad.wide.u32 %q12, %r1, {values.itemsize * size}, %q0; {loads}"
        f"{opcode}.{op}{noftz}{vector}.{type_} {listed + ',' if gives else ''} [%q12], {listed};"
        f"{stores if gives else ''}",
        [memory, values, old],
        block=lanes,
    ).counters
    function = np.add if op == "add" else np.maximum
    for cell in (0, 1):
        expected = function.accumulate(np.r_[np.zeros((1, size), dtype), values[cell::2]])
        np.testing.assert_array_equal(memory[cell], expected[-1])
        if gives:
            np.testing.assert_array_equal(old[cell::2], expected[:-1])
    assert counters[f"smsp__inst_executed_op_global_{opcode[:4].rstrip('.')}.sum"] == 2


def test_a_cache_policy_changes_nothing(launch):
    x = np.arange(32, dtype=np.uint32)
    launch(
        "createpolicy.fractional.L2::evict_last.b64 %q2, 1.0; add.u64 %q1, %q0, %q31;"
        "ld.global.L1::evict_last.L2::cache_hint.u32 %r1, [%q1], %q2; add.u32 %r1, %r1, 1;"
        "st.global.L2::cache_hint.u32 [%q1], %r1, %q2; bar.sync 0;"
        "red.global.add.L2::cache_hint.u32 [%q1], 2, %q2;"
        "atom.global.add.L2::cache_hint.u32 %r1, [%q1], 3, %q2;",
        [x],
    )
    np.testing.assert_array_equal(x, np.arange(32) + 6)


def test_atoms_whose_result_nobody_reads_count_as_red(launch):
    x = np.zeros(4, np.uint32)
    counters = launch(
        "red.global.add.u32 [%q0], 1; atom.global.add.u32 %r1, [%q0+4], %r0; mov.u32 %r2, %r1;"
        "atom.global.add.u32 %r3, [%q0+8], 1; atom.global.exch.b32 %r4, [%q0+12], 7;",
        [x],
        block=64,
        grid=3,
    ).counters
    assert x.tolist() == [192, 192 * 191 // 2, 192, 7]
    assert counters["smsp__inst_executed_op_global_red.sum"] == 2 * 6
    assert counters["smsp__inst_executed_op_global_atom.sum"] == 2 * 6


def test_compare_and_swap_lets_one_lane_win(launch):
    x, won = np.zeros(1, np.uint32), np.zeros(64, np.uint32)
    launch(
        "add.u32 %r1, %r0, 1; atom.global.cas.b32 %r2, [%q0], 0, %r1; add.u64 %q2, %q1, %q31;"
        "st.global.u32 [%q2], %r2;",
        [x, won],
        block=64,
    )
    assert x[0] == 1
    assert won.tolist() == [0, *[1] * 63]


def test_a_spin_lock_inside_a_warp_makes_progress(launch):
    x = np.zeros(2, np.uint32)
    launch(
        "LOCK: atom.global.cas.b32 %r1, [%q0], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra LOCK;"
        "ld.global.u32 %r2, [%q0+4]; add.u32 %r2, %r2, 1; st.global.u32 [%q0+4], %r2;"
        "atom.global.exch.b32 %r1, [%q0], 0;",
        [x],
        block=8,
    )
    assert x.tolist() == [0, 8]


def shuffled(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    fixed, clamp = c >> 8 & 31, c & 31
    high, low = lane & fixed | clamp & ~fixed, lane & fixed
    j = {"up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": low | b & ~fixed}[mode]
    inside = j >= high if mode == "up" else j <= high
    return (j if inside else lane), inside


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("b", [0, 1, 5, 16, 31])
@pytest.mark.parametrize("segment", [32, 8])
def test_shuffles(compute, mode, b, segment):
    c = 32 - segment << 8 | (0 if mode == "up" else 31)
    x = RNG.integers(0, 1 << 32, 64).astype(np.uint32)
    got, inside = compute(
        f"shfl.sync.{mode}.b32 %x|%y, %a, {b}, {c}, -1;", [("b32", x)], ["b32", "pred"]
    )
    pairs = [shuffled(mode, lane % 32, b, c) for lane in range(64)]
    wanted = [x[lane // 32 * 32 + j] for lane, (j, _) in enumerate(pairs)]
    assert got.tolist() == wanted
    assert inside.tolist() == [p for _, p in pairs]


def test_shuffle_index_may_differ_by_lane(compute):
    x, b = RNG.permutation(32).astype(np.uint32), RNG.integers(0, 32, 32)
    [got] = compute("shfl.sync.idx.b32 %x, %a, %b, 31, -1;", [("b32", x), ("u32", b)], ["b32"])
    np.testing.assert_array_equal(got, x[b])


@pytest.mark.parametrize("lanes", [32, 20])
def test_votes_match_and_redux(compute, lanes):
    x = RNG.integers(0, 4, lanes).astype(np.uint32)
    full = (1 << lanes) - 1

    def one(instruction, type_="u32"):
        [got] = compute(f"setp.eq.u32 %p1, %a, 1; {instruction}", [("u32", x)], [type_])
        return got.tolist()

    ones = sum(1 << int(i) for i in np.flatnonzero(x == 1))
    assert one(f"vote.sync.ballot.b32 %x, %p1, {full};") == [ones] * lanes
    assert one(f"vote.sync.ballot.b32 %x, !%p1, {full};") == [full ^ ones] * lanes
    assert one(f"vote.sync.any.pred %x, %p1, {full};", "pred") == [1] * lanes
    assert one(f"vote.sync.all.pred %x, %p1, {full};", "pred") == [0] * lanes
    assert one(f"vote.sync.uni.pred %x, %p1, {full};", "pred") == [0] * lanes
    none = f"setp.ne.u32 %p2, 0, 0; vote.sync.uni.pred %x, %p2, {full};"
    assert one(none, "pred") == [1] * lanes
    assert one("activemask.b32 %x;") == [full] * lanes
    same = [sum(1 << i for i in range(lanes) if x[i] == v) for v in x]
    assert one(f"match.any.sync.b32 %x, %a, {full};") == same
    assert one(f"match.all.sync.b32 %x|%p2, %a, {full};") == [0] * lanes
    assert one(f"redux.sync.add.u32 %x, %a, {full};") == [x.sum()] * lanes
    assert one(f"redux.sync.min.u32 %x, %a, {full};") == [0] * lanes
    assert one(f"redux.sync.max.s32 %x, %a, {full};") == [3] * lanes
    assert one(f"elect.sync _|%x, {full};", "pred") == [1, *[0] * (lanes - 1)]


def test_a_collective_waits_for_lanes_on_longer_paths(launch):
    """The even lanes' path is after the reconvergence point, as for out-of-line code."""
    x = np.zeros(32, np.uint32)
    launch(
        "and.b32 %r1, %r0, 1; setp.eq.u32 %p1, %r1, 0; mov.u32 %r2, 1; @%p1 bra FAR;"
        "MEET: vote.sync.ballot.b32 %r3, %p1, -1; add.u64 %q1, %q0, %q31;"
        "st.global.u32 [%q1], %r3; ret; FAR: mov.u32 %r2, 2; bra MEET;",
        [x],
    )
    assert x.tolist() == [0x55555555] * 32


def test_bar_warp_sync_orders_the_halves_of_a_warp(launch):
    """The lower half reads what the upper half writes on its own path before the barrier."""
    x = np.zeros(32, np.uint32)
    launch(
        ".shared .align 4 .b8 s[128]; mov.u64 %q1, s; add.u64 %q2, %q1, %q31; mov.u32 %r5, 0;"
        "setp.ge.u32 %p1, %r0, 16; @%p1 bra UPPER;"
        "bar.warp.sync -1; ld.shared.u32 %r5, [%q2+64]; bra OUT;"
        "UPPER: add.u32 %r4, %r0, 100; st.shared.u32 [%q2], %r4; bar.warp.sync -1;"
        "OUT: add.u64 %q3, %q0, %q31; st.global.u32 [%q3], %r5;",
        [x],
    )
    assert x.tolist() == [*range(116, 132), *[0] * 16]


def test_half_a_warp_may_sync_by_itself(launch):
    x = np.zeros(32, np.uint32)
    launch(
        "setp.ge.u32 %p1, %r0, 16; @%p1 bra OUT; bar.warp.sync 65535;"
        "shfl.sync.down.b32 %r2, %r0, 1, 31, 65535; OUT: add.u64 %q1, %q0, %q31;"
        "st.global.u32 [%q1], %r2;",
        [x],
    )
    assert x.tolist() == [*range(1, 17), *[0] * 16]


@pytest.mark.parametrize(
    ("op", "type_", "wanted"), [("popc", "u32", 40), ("and", "pred", 0), ("or", "pred", 1)]
)
@pytest.mark.parametrize("block", [128, 100])
def test_barrier_reductions(compute, op, type_, wanted, block):
    x = np.arange(block)
    [got] = compute(
        f"setp.lt.u32 %p1, %a, 40; barrier.cta.red.{op}.aligned.{type_} %x, 0, %p1;",
        [("u32", x)],
        [type_],
    )
    assert got.tolist() == [wanted] * block


@pytest.mark.parametrize(
    ("operands", "message"), [("16", "barriers 0 to 15"), ("0, 33", "multiple of 32")]
)
def test_barrier_operands_are_checked(launch, operands, message):
    with pytest.raises(EmulationError, match=message) as error:
        launch(f"bar.sync {operands};", block=64)
    assert not isinstance(error.value, DeadlockError)
