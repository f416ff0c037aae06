"""Threads that wait for memory that no thread will change are reported at once, with what they wait
for."""

import numpy as np
import pytest
from snippets import ptx

from gemmlab.emulator import run
from gemmlab.emulator.run import execute
from gemmlab.errors import DeadlockError

LOAD = "ld.param.u64 %q1, [p0];"
SPIN = "L: ld.volatile.global.u32 %r1, [%q1+4]; setp.eq.u32 %p1, %r1, 0; {pause} @%p1 bra L;"
ORDERS = ["in-order", "reversed", 0]


def launch(body, y, grid=1, threads=32, order="in-order", module=""):
    text = ptx(LOAD + body + "ret;", ["u64"], module)
    return run(text, "k", (grid, 1, 1), (threads, 1, 1), [y], order=order, max_instructions=20000)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("pause", ["", "nanosleep.u32 20;"])
def test_who_spins_on_what(order, pause):
    y = np.array([7, 0], np.uint32)
    with pytest.raises(DeadlockError) as caught:
        launch(SPIN.format(pause=pause), y, grid=3, order=order)
    text = str(caught.value)
    assert "warp 0 of block (2, 0, 0) spins on argument 0+4, which holds 0" in text
    assert caught.value.address is not None and caught.value.address % 256 == 4
    assert "ld.volatile" in text and y.tolist() == [7, 0]


def test_a_flag_in_shared_memory():
    body = (
        "mov.u32 %r2, s; st.shared.u32 [%r2+8], 3; bar.sync 0;"
        "L: ld.volatile.shared.u32 %r1, [%r2+8]; setp.eq.u32 %p1, %r1, 3; @%p1 bra L;"
    )
    with pytest.raises(DeadlockError, match="spins on shared address 0x8, which holds 3"):
        launch(body, np.zeros(2, np.uint32), threads=64, module=".shared .b8 s[16];")


def test_a_lock_that_nobody_gives_back():
    body = "L: atom.global.cas.b32 %r1, [%q1+4], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra L;"
    with pytest.raises(DeadlockError, match=r"spins on argument 0.4, which holds 1"):
        launch(body, np.zeros(2, np.uint32), grid=2, threads=1)


@pytest.mark.parametrize("order", ORDERS)
def test_loops_that_give_up_are_not_stuck(order):
    count = "add.u32 %r2, %r2, 1; setp.lt.and.u32 %p1, %r2, 300, %p1;"
    y = np.zeros(2, np.uint32)
    launch(SPIN.format(pause=count) + "st.global.u32 [%q1], %r2;", y, order=order)
    assert y[0] == 300


def test_loops_that_look_at_a_clock_are_not_stuck():
    late = "mov.u64 %q3, %clock64; sub.u64 %q3, %q3, %q2; setp.lt.and.u64 %p1, %q3, 500, %p1;"
    y = np.zeros(2, np.uint32)
    launch("mov.u64 %q2, %clock64;" + SPIN.format(pause=late), y)


@pytest.mark.parametrize("order", ORDERS)
def test_flags_that_somebody_sets_are_seen(order):
    body = (
        "mov.u32 %r3, %ctaid.x; setp.eq.u32 %p2, %r3, 0; @%p2 bra W;"
        "st.volatile.global.u32 [%q1+4], 1; bra E;" + "W: " + SPIN.format(pause="") + "E: "
    )
    y = np.zeros(2, np.uint32)
    launch(body, y, grid=2, threads=1, order=order)
    assert y[1] == 1


def test_blocks_that_have_no_room(monkeypatch):
    monkeypatch.setitem(execute.__globals__, "RESIDENT_LANES", 8192)
    everybody = (
        "mov.u32 %r9, %tid.x; setp.ne.u32 %p3, %r9, 0; @%p3 bra E; mov.u32 %r3, %nctaid.x;"
        "red.global.add.u32 [%q1], 1;"
        "L: ld.volatile.global.u32 %r1, [%q1]; setp.lt.u32 %p1, %r1, %r3; @%p1 bra L;"
        "E: bar.sync 0;"
    )
    with pytest.raises(DeadlockError, match=r"which holds 8, .*; 4 blocks have not started"):
        launch(everybody, np.zeros(1, np.uint32), grid=12, threads=1024)


@pytest.mark.parametrize("order", ORDERS)
def test_blocks_meet_where_the_driver_lets_them(order):
    body = (
        "mov.u32 %r2, %envreg1; mov.u32 %r3, %envreg2; mov.b64 %q4, {%r3, %r2};"
        "mov.u32 %r4, %nctaid.x; mov.u32 %r5, %ctaid.x; mul.wide.u32 %q5, %r5, 4;"
        "add.u64 %q5, %q1, %q5; atom.global.add.u32 %r6, [%q4+4], 1; st.global.u32 [%q5], %r6;"
        "L: ld.volatile.global.u32 %r1, [%q4+4]; setp.lt.u32 %p1, %r1, %r4; @%p1 bra L;"
    )
    y = np.full(5, 99, np.uint32)
    launch(body, y, grid=5, threads=1, order=order)
    assert sorted(y.tolist()) == [0, 1, 2, 3, 4]
