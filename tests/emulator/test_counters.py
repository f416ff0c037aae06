"""Sectors and wavefronts against a slow reference implementation and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmlab.emulator.counters import rules

WIDTHS = st.sampled_from([1, 2, 4, 8, 16])
MASKS = st.one_of(st.just((1 << 32) - 1), st.integers(1, (1 << 32) - 1))


@st.composite
def accesses(draw) -> tuple[int, list[int], list[bool]]:
    """Width, byte addresses and active lanes of one warp."""
    width, bits = draw(WIDTHS), draw(MASKS)
    kind = draw(st.sampled_from(["strided", "xor", "pairs", "random"]))
    base = draw(st.integers(0, 64))
    a, b = draw(st.integers(0, 40)), draw(st.integers(0, 31))
    if kind == "strided":
        units = [base + a * lane for lane in range(32)]
    elif kind == "xor":
        units = [base + (lane ^ b) for lane in range(32)]
    elif kind == "pairs":
        units = [base + (lane & ~b) * a for lane in range(32)]
    else:
        units = draw(st.lists(st.integers(0, 300), min_size=32, max_size=32))
    return width, [u * width for u in units], [bool(bits >> lane & 1) for lane in range(32)]


def slow_sectors(width: int, addresses: list[int], on: list[bool]) -> int:
    return len(
        {(a + k) // 32 for a, x in zip(addresses, on, strict=True) if x for k in range(width)}
    )


def phase_cost(width: int, addresses: dict[int, int]) -> int:
    words = {(a + k) // 4 for a in addresses.values() for k in range(width)}
    banks = [word % 32 for word in words]
    return max((banks.count(b) for b in set(banks)), default=0)


def slow_wavefronts(width: int, addresses: list[int], on: list[bool], is_load: bool) -> int:
    num_phases = max(width // 4, 1)
    size = 32 // num_phases
    phases = [
        {lane: addresses[lane] for lane in range(p * size, (p + 1) * size) if on[lane]}
        for p in range(num_phases)
    ]
    total = 0
    for p in range(0, num_phases, 2):
        pair = phases[p : p + 2]
        lanes = [x for phase in pair for x in phase]
        merged = any(
            all(on[x ^ s] is False or addresses[x] == addresses[x ^ s] for x in lanes)
            for s in (1, 2)
        )
        if is_load and num_phases > 1 and merged:
            pair = [pair[0] | pair[1]]
        total += sum(phase_cost(width, phase) for phase in pair)
    return total


@settings(max_examples=300, deadline=None, derandomize=True)
@given(accesses())
@pytest.mark.slow
def test_sectors_agree_with_sets(access):
    width, addresses, on = access
    rows, enabled = np.array([addresses]), np.array([on])
    assert rules.sectors(rows, enabled) == slow_sectors(width, addresses, on)
    assert rules.sectors(rows) == slow_sectors(width, addresses, [True] * 32)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, derandomize=True)
@given(accesses(), st.booleans())
def test_wavefronts_agree_with_sets(access, is_load):
    width, addresses, on = access
    rows, enabled = np.array([addresses]), np.array([on])
    cost, ideal = rules.wavefronts(rows, enabled, width, is_load)
    assert cost.tolist() == [slow_wavefronts(width, addresses, on, is_load)]
    assert 1 <= ideal[0] <= cost[0]
    cost, _ = rules.wavefronts(rows, None, width, is_load)
    assert cost.tolist() == [slow_wavefronts(width, addresses, [True] * 32, is_load)]


def test_warps_are_counted_one_by_one():
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 500, (40, 32)) * 8
    on = rng.random((40, 32)) < 0.7
    one_by_one = [
        rules.wavefronts(r[None], x[None], 8, True)[0][0] for r, x in zip(rows, on, strict=True)
    ]
    assert rules.wavefronts(rows, on, 8, True)[0].tolist() == one_by_one
    assert rules.sectors(rows, on) == sum(
        rules.sectors(r[None], x[None]) for r, x in zip(rows, on, strict=True)
    )


@pytest.mark.parametrize(
    ("width", "stride", "sectors"),
    [(4, 1, 4), (4, 2, 8), (4, 0, 1), (4, 8, 32), (1, 1, 1), (8, 1, 8), (16, 1, 16), (16, 2, 32)],
)
def test_sectors_of_strided_loads(launch, width, stride, sectors):
    type_ = {1: "u8", 4: "f32", 8: "f64", 16: "v4.f32"}[width]
    target = {1: "%h0", 4: "%f0", 8: "%g0", 16: "{%f0, %f1, %f2, %f3}"}[width]
    x = np.zeros(32 * 16 * 2, np.float32)
    got = launch(
        f"mad.wide.u32 %q1, %r0, {width * stride}, %q0; ld.global.{type_} {target}, [%q1];", [x]
    ).counters
    assert got["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == 1
    assert got["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == sectors


@pytest.mark.parametrize(
    ("op", "width", "index", "wavefronts", "ideal"),
    [
        ("ld", 4, "lane", 1, 1),
        ("ld", 4, "lane * 32", 32, 1),
        ("st", 4, "lane * 2", 2, 1),
        ("ld", 4, "lane * 33", 1, 1),
        ("ld", 4, "lane * 0", 1, 1),
        ("ld", 8, "lane", 2, 2),
        ("ld", 8, "lane // 2", 1, 1),  # lanes l and l ^ 1 read the same word: two phases merge
        ("st", 8, "lane // 2", 2, 2),  # stores never merge
        ("ld", 16, "lane", 4, 4),
        ("ld", 16, "lane // 2", 2, 2),
        ("ld", 16, "lane // 4 * 2 + lane % 2", 2, 2),  # l and l ^ 2
        ("ld", 16, "lane * 0", 2, 2),
        ("st", 16, "lane // 2", 4, 4),
    ],
)
def test_wavefronts_of_patterns(op, width, index, wavefronts, ideal):
    rows = eval(index, {"lane": np.arange(32)})[None] * width
    cost, least = rules.wavefronts(rows, None, width, op == "ld")
    assert (cost[0], least[0]) == (wavefronts, ideal)


def test_a_launch_reports_conflicts(launch):
    got = launch(
        ".shared .align 4 .b8 s[4096]; mov.u32 %r1, s; mad.lo.u32 %r2, %r0, 128, %r1;"
        "mad.lo.u32 %r3, %r0, 4, %r1; st.shared.u32 [%r3], %r0; ld.shared.u32 %r4, [%r2];"
    ).counters
    assert got["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"] == 32
    assert got["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"] == 1
    assert got["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"] == 31
    assert got["derived__memory_l1_wavefronts_shared_excessive"] == 31


def test_generic_accesses_count_in_the_space_they_reach(launch):
    x = np.zeros(32, np.uint32)
    got = launch(
        ".shared .align 4 .b8 s[128]; mov.u64 %q1, s; cvta.shared.u64 %q1, %q1;"
        "setp.lt.u32 %p1, %r0, 16; add.u64 %q2, %q0, %q31; add.u64 %q3, %q1, %q31;"
        "selp.b64 %q4, %q2, %q3, %p1; st.u32 [%q4], %r0;",
        [x],
    ).counters
    assert got["smsp__inst_executed_op_global_st.sum"] == 1
    assert got["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"] == 2
    assert got["smsp__inst_executed_op_shared_st.sum"] == 1
    assert x.tolist() == [*range(16), *[0] * 16]


def test_local_memory_is_interleaved_by_lane(launch):
    got = launch(
        ".local .align 8 .b8 m[16]; st.local.u64 [m], %q0; ld.local.u32 %r1, [m+4];"
    ).counters
    assert got["l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum"] == 8
    assert got["l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum"] == 4


def test_guards_are_counted_once_per_instruction(launch):
    x = np.zeros(32, np.uint64)
    base = launch("", [x]).counters
    got = launch(
        "setp.lt.u32 %p1, %r0, 8; @%p1 add.s32 %r1, %r0, 1;"
        "@%p1 ld.global.v2.u32 {%r2, %r3}, [%q0];"
        "@!%p1 setp.eq.u32 %p2|%p3, %r0, 9;",
        [x],
    ).counters
    name = "ptx_thread_inst_executed"
    assert got[f"{name}.sum"] - base[f"{name}.sum"] == 4 * 32
    assert got[f"{name}_pred_on.sum"] - base[f"{name}_pred_on.sum"] == 32 + 8 + 8 + 24
    assert got["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == 1


def test_aligned_neighbouring_shared_loads_count_as_one(launch):
    got = launch(
        ".shared .align 16 .b8 s[512]; mov.u32 %r1, s; ld.shared.f32 %f0, [%r1];"
        "ld.shared.f32 %f1, [%r1+4]; ld.shared.f32 %f2, [%r1+8]; ld.shared.f32 %f3, [%r1+12];"
    ).counters
    assert got["smsp__inst_executed_op_shared_ld.sum"] == 1
