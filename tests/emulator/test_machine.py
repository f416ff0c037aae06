"""Control flow, barriers, memories and faults of whole launches."""

from __future__ import annotations

import numpy as np
import pytest
from snippets import HEADER, ptx

import gemmlab
from gemmlab.emulator import run
from gemmlab.errors import (
    DeadlockError,
    EmulationError,
    MisalignedAddressError,
    OutOfBoundsError,
    UnsupportedInstructionError,
)

STORE = "add.u64 %q20, %q0, %q31; st.global.u32 [%q20], %r1;"


def test_a_kernel_of_no_instructions_does_nothing():
    text = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k() { }"
    assert not any(run(text, "k", (2, 1, 1), (32, 1, 1), []).counters.values())


def test_divergence_and_reconvergence_are_counted(launch):
    x = np.zeros(64, np.uint32)
    counters = launch(
        "mov.u32 %r1, 5; setp.lt.u32 %p1, %r0, 8; @%p1 bra L; mov.u32 %r1, 6; bra OUT;"
        f"L: mov.u32 %r1, 7; OUT: {STORE}",
        [x],
        block=64,
    ).counters
    assert x.tolist() == [7] * 8 + [6] * 56
    # Warp 0 parts, warp 1 does not; both sides of warp 0 meet again before the store.
    assert counters["ptx_branch_divergent.sum"] == 1
    assert counters["smsp__inst_executed_op_global_st.sum"] == 2
    prologue, store = 6 + 3, 3
    assert counters["ptx_inst_executed.sum"] == 2 * (prologue + store) + 2 * 2 + 1
    assert counters["ptx_thread_inst_executed.sum"] == 64 * (prologue + store) + 56 * 2 + 8


@pytest.mark.parametrize("block", [32, 33, 100, 256])
def test_loops_with_lane_dependent_trip_counts(launch, block):
    x = np.zeros(block * 3, np.uint32)
    launch(
        "mov.u32 %r1, 0; rem.u32 %r2, %r0, 7; LOOP: setp.eq.u32 %p1, %r2, 0; @%p1 bra OUT;"
        f"add.u32 %r1, %r1, %r2; sub.u32 %r2, %r2, 1; bra LOOP; OUT: {STORE}",
        [x],
        grid=3,
        block=block,
    )
    assert x.tolist() == [i % 7 * (i % 7 + 1) // 2 for i in range(block * 3)]


def test_early_exit_before_a_barrier(launch):
    x = np.zeros(96, np.uint32)
    launch(
        ".shared .align 4 .b8 s[384]; setp.ge.u32 %p1, %r0, 70; @%p1 ret; mov.u64 %q1, s;"
        "add.u64 %q2, %q1, %q31; st.shared.u32 [%q2], %r0; bar.sync 0; mov.u32 %r2, 69;"
        f"sub.u32 %r3, %r2, %r0; mad.wide.u32 %q3, %r3, 4, %q1; ld.shared.u32 %r1, [%q3]; {STORE}",
        [x],
        block=96,
    )
    assert x.tolist() == [*range(69, -1, -1), *[0] * 26]


def test_named_barriers_with_counts(launch):
    """Each half of the block meets at its own barrier; only there do its threads see the sums."""
    x = np.zeros(128, np.uint32)
    launch(
        ".shared .align 4 .b8 s[512]; mov.u64 %q1, s; add.u64 %q2, %q1, %q31;"
        "shr.u32 %r2, %r0, 6; add.u32 %r3, %r2, 1; st.shared.u32 [%q2], %r0; bar.sync %r3, 64;"
        f"xor.b32 %r4, %r0, 32; mad.wide.u32 %q3, %r4, 4, %q1; ld.shared.u32 %r1, [%q3]; {STORE}",
        [x],
        block=128,
    )
    assert x.tolist() == [i ^ 32 for i in range(128)]


@pytest.mark.parametrize("consumer_first", [False, True])
def test_producer_arrives_and_consumer_waits(launch, consumer_first):
    """Warp 0 hands three values to warp 1 through one slot: full is barrier 1, empty barrier 2."""
    produce = (
        "mov.u32 %r2, 0; P: bar.sync 2, 64; add.u32 %r3, %r2, 10; st.shared.u32 [s], %r3;"
        "bar.arrive 1, 64; add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 3; @%p2 bra P; bra OUT;"
    )
    consume = (
        "mov.u32 %r2, 0; mov.u32 %r1, 0; bar.arrive 2, 64; C: bar.sync 1, 64;"
        "ld.shared.u32 %r4, [s]; mad.lo.u32 %r1, %r1, 100, %r4; add.u32 %r2, %r2, 1;"
        "setp.ge.u32 %p2, %r2, 3; @%p2 bra OUT; bar.arrive 2, 64; bra C;"
    )
    compare, first, second = (
        ("lt", produce, consume) if consumer_first else ("ge", consume, produce)
    )
    x = np.zeros(64, np.uint32)
    launch(
        f".shared .align 4 .b8 s[4]; mov.u32 %r1, 0; setp.{compare}.u32 %p1, %r0, 32;"
        f"@%p1 bra B; {second} B: {first} OUT: {STORE}",
        [x],
        block=64,
    )
    assert x.tolist() == [0] * 32 + [101112] * 32


def test_guarded_barrier(launch):
    launch("setp.lt.u32 %p1, %r0, 32; @%p1 bar.sync 3, 32;", block=64)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("setp.lt.u32 %p1, %r0, 32; @%p1 bra A; ret; A: bar.sync 1, 64;", "32 of 64 threads wait"),
        (
            "setp.lt.u32 %p1, %r0, 32; @%p1 bra A; bar.sync 1; bra O; A: bar.sync 2; O:",
            "32 of 64 threads wait at barrier 1.*32 of 64 threads wait at barrier 2",
        ),
        ("shr.u32 %r1, %r0, 5; bar.sync %r1;", "barrier 0.*barrier 1"),
    ],
)
def test_deadlock_says_who_waits(launch, body, message):
    with pytest.raises(DeadlockError, match=message) as error:
        launch(body, block=64)
    assert error.value.block == (0, 0, 0)
    assert "PTX line" in str(error.value)


@pytest.mark.parametrize(
    ("grid", "block"), [((2, 3, 2), (4, 3, 5)), ((3, 1, 1), (32, 2, 1)), ((1, 2, 1), (1, 1, 7))]
)
def test_coordinates(grid, block):
    names = [f"%{r}.{a}" for r in ("tid", "ctaid", "ntid", "nctaid") for a in "xyz"]
    moves = " ".join(f"mov.u32 %r{i}, {n};" for i, n in enumerate(names))
    stores = " ".join(f"st.global.u32 [%q1+{4 * i}], %r{i};" for i in range(12))
    text = ptx(
        f"ld.param.u64 %q0, [p0]; {moves}"
        "mad.lo.u32 %r20, %r5, %r10, %r4; mad.lo.u32 %r20, %r20, %r9, %r3;"
        "mad.lo.u32 %r21, %r2, %r7, %r1; mad.lo.u32 %r21, %r21, %r6, %r0;"
        "mul.lo.u32 %r22, %r6, %r7; mul.lo.u32 %r22, %r22, %r8; mad.lo.u32 %r23, %r20, %r22, %r21;"
        f"mad.wide.u32 %q1, %r23, 48, %q0; {stores} ret;",
        ["u64"],
    )
    threads, blocks = int(np.prod(block)), int(np.prod(grid))
    x = np.full((blocks, threads, 4, 3), 99, np.uint32)
    run(text, "k", grid, block, [x])
    for b in range(blocks):
        for t in range(threads):
            tid = t % block[0], t // block[0] % block[1], t // (block[0] * block[1])
            ctaid = b % grid[0], b // grid[0] % grid[1], b // (grid[0] * grid[1])
            assert x[b, t].tolist() == [list(tid), list(ctaid), list(block), list(grid)]


def test_lane_registers(launch):
    x = np.zeros((7, 64), np.uint32)
    names = ["%laneid", "%warpid", "WARP_SZ", "%lanemask_lt", "%lanemask_ge", "%nwarpid"]
    stores = " ".join(
        f"mov.u32 %r1, {n}; st.global.u32 [%q1+{256 * i}], %r1;" for i, n in enumerate(names)
    )
    launch(f"add.u64 %q1, %q0, %q31; {stores}", [x], block=64)
    lane = np.arange(64) % 32
    wanted = [lane, np.arange(64) // 32, lane * 0 + 32, (1 << lane) - 1, 2**32 - (1 << lane), 2]
    for row, value in zip(x, wanted, strict=False):
        np.testing.assert_array_equal(row, value)


def test_brx_idx(launch):
    x = np.zeros(32, np.uint32)
    body = (
        "T: .branchtargets A, B, C; and.b32 %r2, %r0, {mask}; brx.idx %r2, T;"
        f"A: mov.u32 %r1, 10; bra O; B: mov.u32 %r1, 11; bra O; C: mov.u32 %r1, 12; O: {STORE}"
    )
    launch(body.replace("{mask}", "1"), [x])
    assert x.tolist() == [10, 11] * 16
    with pytest.raises(EmulationError, match="past the table of 3"):
        launch(body.replace("{mask}", "3"), [x])


def test_what_is_not_defined_here_fails_only_when_reached(launch):
    module = ".extern .func (.param .b64 r) strlen(.param .b64 a);"
    body = (
        "setp.eq.u32 %p1, %r0, {n}; @!%p1 bra OUT; {{ .param .b64 a; .param .b64 r;"
        "call.uni (r), strlen, (a); }} OUT:"
    )
    launch(body.format(n=99), module=module)
    with pytest.raises(UnsupportedInstructionError, match="strlen is not defined"):
        launch(body.format(n=9), module=module)


@pytest.mark.parametrize(
    "instruction",
    [
        "setmaxnreg.inc.sync.aligned.u32 100;",
        "vmad.u32.u32.u32 %r1, %r2, %r3, %r1;",
        "mov.u32 %r1, %pm0;",
        "ld.global.v8.f32 {%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, [%q1];",
        "tcgen05.fence::before_thread_sync;",
        "vote.sync.some.pred %p2, %p1, -1;",
        "atom.global.mul.u32 %r1, [%q1], %r2;",
        "cvt.s32.f32 %r1, %f1;",
    ],
)
def test_unsupported_instructions_name_themselves_when_reached(launch, instruction):
    x = np.zeros(32, np.uint32)
    body = "setp.eq.u32 %p1, %r0, {n}; @!%p1 bra OUT; st.global.u32 [%q0], %r0; {i} OUT:"
    launch(body.format(n=99, i=instruction), [x])
    with pytest.raises(UnsupportedInstructionError) as error:
        launch(body.format(n=9, i=instruction), [x])
    assert instruction.split()[0].rstrip(";") in str(error.value)
    assert error.value.site is not None
    assert not x.any()


def test_generic_addresses_reach_every_space(launch):
    x = np.zeros(32, np.uint32)
    launch(
        ".shared .align 4 .b8 s[128]; .local .align 4 .b8 m[4]; mov.u64 %q1, s; mov.u64 %q2, m;"
        "cvta.shared.u64 %q3, %q1; add.u64 %q3, %q3, %q31; cvta.local.u64 %q4, %q2;"
        "cvta.global.u64 %q5, %q0; add.u64 %q5, %q5, %q31; st.u32 [%q3], 1; st.u32 [%q4], 2;"
        "ld.shared.u32 %r1, [s]; ld.local.u32 %r2, [m]; isspacep.shared %p1, %q3;"
        "isspacep.global %p2, %q3; selp.u32 %r3, 10, 0, %p1; selp.u32 %r4, 100, 0, %p2;"
        "add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3; add.u32 %r1, %r1, %r4; st.u32 [%q5], %r1;"
        "cvta.to.shared.u64 %q6, %q3; st.shared.u32 [%q6], 0;",
        [x],
    )
    assert x.tolist() == [13] * 32


def test_local_memory_belongs_to_the_thread(launch):
    x = np.zeros(64, np.uint32)
    launch(
        ".local .align 8 .b8 m[32]; and.b32 %r2, %r0, 7; mul.wide.u32 %q2, %r2, 4; mov.u64 %q3, m;"
        f"add.u64 %q4, %q3, %q2; st.local.u32 [%q4], %r0; ld.local.u32 %r1, [%q4]; {STORE}",
        [x],
        block=64,
    )
    assert x.tolist() == list(range(64))


def test_static_and_dynamic_shared_memory(launch):
    x = np.zeros(64, np.uint32)
    body = (
        ".shared .align 4 .b8 s[20]; st.shared.u32 [s+16], 7; mov.u32 %r2, dyn;"
        "shl.b32 %r3, %r0, 2; add.u32 %r4, %r2, %r3; st.shared.u32 [%r4], %r0; bar.sync 0;"
        "sub.u32 %r5, 252, %r3; add.u32 %r5, %r5, %r2; ld.shared.u32 %r6, [%r5];"
        f"ld.shared.u32 %r7, [s+16]; add.u32 %r1, %r6, %r7; {STORE}"
    )
    module = ".extern .shared .align 16 .b8 dyn[];"
    launch(body, [x], block=64, module=module, dynamic_smem=256)
    assert x.tolist() == [63 - i + 7 for i in range(64)]
    with pytest.raises(OutOfBoundsError, match="bytes of shared memory"):
        launch(body, [x], block=64, module=module, dynamic_smem=252)


def test_a_32_bit_base_below_zero_wraps(launch):
    """Compilers keep an address minus a constant in a register and add it back in the access."""
    x = np.zeros(32, np.uint32)
    launch(
        ".shared .align 4 .b8 s[8]; mov.u32 %r2, s; sub.u32 %r3, %r2, 16;"
        "st.shared.u32 [%r3+20], 9;"
        f"ld.shared.u32 %r1, [s+4]; {STORE}",
        [x],
    )
    assert x.tolist() == [9] * 32


def test_shared_patterns_of_equal_bytes_and_other_shape_are_told_apart(launch):
    """First by lane, then by warp: the same 32 offsets along another axis."""
    x = np.zeros(1024, np.uint32)
    launch(
        ".shared .align 4 .b8 s[128]; mov.u32 %r10, %tid.x; and.b32 %r2, %r10, 31;"
        "mov.u32 %r11, %warpid; shl.b32 %r3, %r2, 2; mov.u32 %r4, %laneid; shl.b32 %r4, %r4, 2;"
        "mov.u32 %r5, s; add.u32 %r4, %r4, %r5; mov.u32 %r7, %laneid; st.shared.u32 [%r4], %r7;"
        "bar.sync 0; mov.u32 %r8, 0; L: ld.shared.u32 %r1, [%r4]; shl.b32 %r4, %r11, 2;"
        "add.u32 %r4, %r4, %r5; add.u32 %r8, %r8, 1; setp.lt.u32 %p1, %r8, 2; @%p1 bra L;" + STORE,
        [x],
        block=1024,
    )
    assert x.tolist() == [i // 32 for i in range(1024)]


@pytest.mark.parametrize(
    "body",
    [
        # The second load's register is an address until the third instruction.
        "ld.shared.u32 %r1, [%r10]; ld.shared.u32 %r3, [%r2]; ld.shared.u32 %r2, [%r10+4];",
        "ld.shared.u32 %r2, [%r10+4]; ld.shared.u32 %r1, [%r10]; mov.u32 %r3, 4;",
        "ld.shared.u32 %r2, [%r10+4]; mov.u32 %r3, 4; ld.shared.u32 %r10, [%r10];"
        "mov.u32 %r1, %r10;",
        "ld.shared.u32 %r4, [%r10]; st.u32 [%q9], 7; ld.shared.u32 %r2, [%r10+4]; st.u32 [%q9], 1;"
        "sub.u32 %r2, %r2, 6; mov.u32 %r1, %r4; mov.u32 %r3, 4;",
        "st.shared.u32 [s+4], -1; ld.shared.s32 %q1, [s]; ld.shared.s32 %q2, [s+4];"
        "shr.s64 %q2, %q2, 32; neg.s64 %q2, %q2; cvt.u32.u64 %r1, %q1; cvt.u32.u64 %r2, %q2;"
        "mov.u32 %r3, 4;",
        "mov.b64 %q8, {%r10, %r10}; mov.b64 {%r5, %r6}, %q8; ld.shared.u32 %r1, [%r6];"
        "ld.shared.u32 %r2, [%r6+4]; mov.u32 %r3, 4;",
    ],
)
def test_joined_shared_loads_give_what_single_ones_do(launch, body):
    x = np.zeros(4, np.uint32)
    launch(
        ".shared .align 16 .b8 s[64]; mov.u32 %r10, s; mov.u32 %r2, s; add.u32 %r2, %r2, 16;"
        "mov.u64 %q9, s; add.u64 %q9, %q9, 4; cvta.shared.u64 %q9, %q9; mov.u32 %r4, 0;"
        "st.shared.u32 [s], 10; st.shared.u32 [s+4], 1; st.shared.u32 [s+16], 4; bar.sync 0;"
        f"{body} st.global.u32 [%q0], %r1; st.global.u32 [%q0+4], %r2; st.global.u32 [%q0+8], %r3;",
        [x],
    )
    assert x.tolist() == [10, 1, 4, 0]


@pytest.mark.parametrize(
    "body",
    [
        "st.shared.u32 [%r10+4], 2; st.shared.u32 [%r10], 1;",
        "mov.u32 %r2, 1; st.shared.u32 [%r10], %r2; mov.u32 %r2, 2; st.shared.u32 [%r10+4], %r2;",
        "add.u32 %r2, %r10, 4; st.shared.u32 [%r2], 2; st.shared.u32 [%r2+-4], 1;",
        "st.shared.u32 [%r10], 1; add.u32 %r10, %r10, 4; st.shared.u32 [%r10], 2;",
        "st.shared.u32 [%r10], 1; add.u32 %r10, %r10, 8; st.shared.u32 [%r10+-4], 2;",
        "st.shared.u32 [%r10], 7; ld.shared.u32 %r2, [%r10]; sub.u32 %r2, %r2, 5;"
        "st.shared.u32 [%r10+4], %r2; st.shared.u32 [%r10], 1;",
        "st.shared.u32 [%r10], 7; st.u32 [%q9], 1; st.shared.u32 [%r10+4], 2;",
        "st.shared.u32 [%r10], 7; st.shared.u32 [s], 1; st.shared.u32 [s+4], 2;",
        "mov.b16 %h1, 1; mov.b16 %h2, 0; mov.b16 %h3, 2; st.shared.u16 [s], %h1;"
        "st.shared.u16 [s+6], %h2; st.shared.u16 [s+4], %h3; st.shared.u16 [s+2], %h2;",
        "mov.b32 %f1, 0f00000002; st.shared.u32 [s], 1; st.shared.f32 [s+4], %f1;",
        "st.shared.f32 [s], 0f00000001; st.shared.b32 [s+4], 2;",
        "mov.u64 %q1, 0x500000001; mov.u64 %q2, 0x700000002; st.shared.u32 [s], %q1;"
        "st.shared.u32 [s+4], %q2;",
        "mov.u64 %q1, 0x500000001; mov.b32 %f1, 0f00000002; st.shared.f32 [s+4], %f1;"
        "st.shared.u32 [s], %q1;",
        "setp.eq.u32 %p1, %r0, 5; st.shared.u32 [s], 7; @%p1 st.shared.u32 [s], 1;"
        "st.shared.u32 [s+4], 2;",
        "setp.ne.u32 %p1, %r0, 5; @%p1 bra L; st.shared.u32 [s], 1; st.shared.u32 [s+4], 2; L:",
        "mov.u32 %r2, s; sub.u32 %r2, %r2, 4; bra.uni L; L: st.shared.u32 [s], 7;"
        "st.shared.u32 [%r2+4], 1; st.shared.u32 [s+4], 2;",
        "mov.u32 %r2, %r10; setp.eq.u32 %p1, %r0, 99; @%p1 add.u32 %r2, %r10, 4;"
        "st.shared.u32 [%r10], 7; st.shared.u32 [%r2], 1; st.shared.u32 [%r10+4], 2;",
    ],
)
def test_joined_shared_stores_give_what_single_ones_do(launch, body):
    x = np.zeros(2, np.uint32)
    launch(
        ".shared .align 16 .b8 s[64]; .reg .b16 %h<4>; mov.u32 %r10, s; mov.u64 %q9, s;"
        f"cvta.shared.u64 %q9, %q9; {body} bar.sync 0;"
        "ld.shared.u32 %r1, [s]; st.global.u32 [%q0], %r1;"
        "ld.shared.u32 %r2, [s+4]; st.global.u32 [%q0+4], %r2;",
        [x],
    )
    assert x.tolist() == [1, 2]


def test_variables_have_initial_values(launch):
    x = np.zeros(4, np.uint32)
    launch(
        "and.b32 %r2, %r0, 3; mul.wide.u32 %q1, %r2, 4; mov.u64 %q2, table; add.u64 %q3, %q2, %q1;"
        "ld.const.u32 %r1, [%q3]; ld.global.u32 %r3, [one]; add.u32 %r1, %r1, %r3;"
        "add.u64 %q4, %q0, %q1; st.global.u32 [%q4], %r1;",
        [x],
        module=".const .align 4 .u32 table[4] = {5, 6, 7, 0xFFFFFFFF}; .global .u32 one = 1;",
    )
    assert x.tolist() == [6, 7, 8, 0]


def test_registers_start_at_zero_whatever_their_type(launch):
    x = np.zeros(32, np.uint32)
    launch(
        ".reg .b64 %z, %y; setp.lt.u32 %p1, %r0, 8; @%p1 bra L; mov.b64 %z, 5; L: mov.b64 %y, %z;"
        f"cvt.u32.u64 %r1, %y; {STORE}",
        [x],
    )
    assert x.tolist() == [0] * 8 + [5] * 24


def test_trap(launch):
    with pytest.raises(EmulationError, match="trap") as error:
        launch("setp.eq.u32 %p1, %r0, 37; @%p1 trap;", block=64)
    assert (error.value.thread, error.value.lane) == (37, 5)


FAULT = HEADER + (
    '.file 1 "kernel.cu"\n.visible .entry k(.param .u64 p)\n{\n.reg .b64 %q<4>; .reg .b32 %r<4>;'
    ".reg .pred %p<2>;\n.loc 1 12 3\nld.param.u64 %q0, [p]; mov.u32 %r0, %tid.x;"
    "mov.u32 %r1, %ctaid.y; st.global.u32 [%q0], 1;\nsetp.ne.u32 %p1, %r1, 1; @%p1 ret;\n"
    "setp.lt.u32 %p1, %r0, 40; @%p1 ret; mul.wide.u32 %q1, %r0, STEP; add.u64 %q2, %q0, %q1;\n"
    "ACCESS\nret; }\n"
)


@pytest.mark.parametrize("access", ["ld.global.u32 %r2, [%q2];", "st.global.u32 [%q2], %r0;"])
@pytest.mark.parametrize(
    ("step", "error", "message"),
    [
        (4, OutOfBoundsError, "4 bytes past the end of argument 0 \\(160 bytes\\)"),
        (1, MisalignedAddressError, "not a multiple of the access width, 4 bytes"),
    ],
)
def test_faults_say_where(access, step, error, message):
    text = FAULT.replace("STEP", str(step)).replace("ACCESS", access)
    x = np.zeros(40, np.uint32)
    with pytest.raises(error, match=message) as caught:
        run(text, "k", (2, 3, 1), (64, 1, 1), [x])
    fault = caught.value
    first = 40 if step == 4 else 41
    assert (fault.block, fault.thread, fault.lane) == ((0, 1, 0), first, first - 32)
    assert fault.address == 0x7F00_0000_0000 + step * first
    assert fault.site is not None
    assert (fault.site.ptx, fault.site.source) == (access, "kernel.cu:12")
    assert text.split("\n")[fault.site.ptx_line - 1] == access
    assert not x.any()  # the store before the fault does not show


@pytest.mark.parametrize("pointer", [0, 400])
def test_a_null_pointer_is_called_one(launch, pointer):
    with pytest.raises(OutOfBoundsError, match="null pointer"):
        launch(f"mov.u64 %q1, {pointer}; ld.global.u32 %r1, [%q1];", [np.zeros(1, np.uint32)])


@pytest.mark.parametrize("space", ["shared", "local"])
@pytest.mark.parametrize(
    ("offset", "error"), [(64, OutOfBoundsError), (62, MisalignedAddressError)]
)
def test_faults_in_other_spaces(launch, space, offset, error):
    declared = f".{space} .align 4 .b8 m[64];"
    with pytest.raises((error, OutOfBoundsError)) as caught:
        launch(f"{declared} mov.u64 %q1, m; ld.{space}.u32 %r1, [%q1+{offset}];")
    assert caught.value.address == offset
    with pytest.raises(MisalignedAddressError):
        launch(f"{declared} mov.u64 %q1, m; ld.{space}.u32 %r1, [%q1+2];")


def test_lanes_that_are_off_may_hold_any_address(launch):
    x = np.zeros(32, np.uint32)
    launch(
        ".shared .align 4 .b8 s[16]; setp.lt.u32 %p1, %r0, 4; mad.wide.u32 %q1, %r0, 999999, %q0;"
        "mov.u64 %q2, s; selp.b64 %q1, %q0, %q1, %p1; selp.b64 %q2, %q2, %q1, %p1;"
        "@%p1 ld.global.u32 %r2, [%q1]; @%p1 st.shared.u32 [%q2], %r0; @!%p1 bra OUT;"
        "ld.shared.u32 %r1, [%q2]; selp.b64 %q3, 0, %q1, %p1; ld.param.u32 %r3, [p0]; OUT:",
        [x],
    )


CUDA = """
extern "C" __global__ void columns(const float *a, float *sums, int rows, int cols) {
    __shared__ float part[8][33];
    int x = blockIdx.x * 32 + threadIdx.x;
    float s = 0.0f;
    for (int r = threadIdx.y; r < rows; r += 8)
        if (x < cols) s += a[r * cols + x];
    part[threadIdx.y][threadIdx.x] = s;
    __syncthreads();
    if (threadIdx.y == 0 && x < cols) {
        for (int k = 1; k < 8; k++) s += part[k][threadIdx.x];
        sums[x] = s;
    }
}
extern "C" __global__ void histogram(const unsigned char *data, unsigned *bins, int n) {
    __shared__ unsigned local[256];
    local[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&local[data[i]], 1u);
    __syncthreads();
    if (local[threadIdx.x]) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}
extern "C" __global__ void total(const int *x, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, v = i < n ? x[i] : 0;
    for (int k = 16; k; k >>= 1) v += __shfl_down_sync(0xffffffffu, v, k);
    if ((threadIdx.x & 31) == 0) atomicAdd(out, v);
}
extern "C" __global__ void below(const float *x, int *out, float limit) {
    int c = __syncthreads_count(x[threadIdx.x] < limit);
    unsigned m = __ballot_sync(0xffffffffu, x[threadIdx.x] < limit);
    out[threadIdx.x] = c * 100 + __popc(m & ((1u << (threadIdx.x & 31)) - 1));
}
"""


@pytest.fixture(scope="module")
def cuda(tmp_path_factory):
    path = tmp_path_factory.mktemp("cuda") / "kernels.cu"
    path.write_text(CUDA)
    return lambda entry: gemmlab.load(path, entry=entry)


def test_cuda_column_sums(cuda):
    a = np.random.default_rng(0).integers(-9, 9, (37, 75)).astype(np.float32)
    sums = np.zeros(75, np.float32)
    gemmlab.emulate(cuda("columns"), grid=3, block=(32, 8), args=[a, sums, 37, 75])
    np.testing.assert_array_equal(sums, a.sum(axis=0))


def test_cuda_histogram(cuda):
    data = np.random.default_rng(0).integers(0, 200, 5000).astype(np.uint8)
    bins = np.zeros(256, np.uint32)
    run = gemmlab.emulate(cuda("histogram"), grid=4, block=256, args=[data, bins, data.size])
    np.testing.assert_array_equal(bins, np.bincount(data, minlength=256))
    assert run.counters["smsp__inst_executed_op_shared_atom.sum"] > 0


def test_cuda_warp_sum(cuda):
    x, out = np.arange(1000, dtype=np.int32), np.zeros(1, np.int32)
    gemmlab.emulate(cuda("total"), grid=8, block=128, args=[x, out, x.size])
    assert out[0] == x.sum()


def test_cuda_votes(cuda):
    x, out = np.random.default_rng(0).random(128).astype(np.float32), np.zeros(128, np.int32)
    gemmlab.emulate(cuda("below"), grid=1, block=128, args=[x, out, 0.5])
    before = [(x[i // 32 * 32 : i] < 0.5).sum() for i in range(128)]
    np.testing.assert_array_equal(out, (x < 0.5).sum() * 100 + np.array(before))
