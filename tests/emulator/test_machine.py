"""Control flow, barriers, special registers and unsupported instructions of whole launches."""

from __future__ import annotations

import numpy as np
import pytest
from snippets import ptx

from gemmlab.emulator import run
from gemmlab.errors import (
    DeadlockError,
    EmulationError,
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
    # Warp 0 diverges, warp 1 does not; warp 0 reconverges before the store.
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
    """Each half of the block synchronizes at its own barrier, which makes its stores visible."""
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
    """Warp 0 passes three values to warp 1 through one buffer. Barrier 1 means full, barrier 2
    empty."""
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
