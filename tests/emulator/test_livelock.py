"""Endless loops are reported soon: with what a warp spins on, or else with the loop's line."""

import time

import numpy as np
import pytest
from machine import needs_native
from snippets import ptx

from gemmlab.core import status
from gemmlab.emulator import run, tiers
from gemmlab.emulator.execution.grid import execute
from gemmlab.emulator.native import launch as native_launch
from gemmlab.errors import BudgetError, LivelockError, Site

LOAD = "ld.param.u64 %q1, [p0];"
SPIN = "L: ld.volatile.global.u32 %r1, [%q1+4]; setp.eq.u32 %p1, %r1, 0; {pause} @%p1 bra L;"
ORDERS = ["in-order", "reversed", 0]


COUNT = "L: add.u32 %r1, %r1, 1; and.b32 %r1, %r1, 1023; st.global.u32 [%q1], %r1;\nbra L;\n"


def launch(body, y, grid=1, threads=32, order="in-order", module=""):
    text = ptx(LOAD + body + "ret;", ["u64"], module)
    return run(text, "k", (grid, 1, 1), (threads, 1, 1), [y], order=order, max_instructions=20000)


@pytest.fixture
def impatient(monkeypatch):
    """After how many seconds a launch is long, and examined."""
    monkeypatch.setattr(native_launch, "PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(tiers, "LONG_SECONDS", 0.2)
    monkeypatch.setattr("gemmlab.emulator.checks.launch.LONG_SECONDS", 0.2)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("pause", ["", "nanosleep.u32 20;"])
def test_who_spins_on_what(order, pause):
    y = np.array([7, 0], np.uint32)
    with pytest.raises(LivelockError) as caught:
        launch(SPIN.format(pause=pause), y, grid=3, order=order)
    text = str(caught.value)
    assert "warp 0 of block (2, 0, 0) spins on argument 0[1], which holds 0" in text
    assert caught.value.address is not None and caught.value.address % 256 == 4
    assert "ld.volatile" in text and y.tolist() == [7, 0]


def test_a_flag_in_shared_memory():
    body = (
        "mov.u32 %r2, s; st.shared.u32 [%r2+8], 3; bar.sync 0;"
        "L: ld.volatile.shared.u32 %r1, [%r2+8]; setp.eq.u32 %p1, %r1, 3; @%p1 bra L;"
    )
    with pytest.raises(LivelockError, match=r"spins on s\[2\], which holds 3"):
        launch(body, np.zeros(2, np.uint32), threads=64, module=".shared .b8 s[16];")


def test_a_lock_that_nobody_gives_back():
    body = "L: atom.global.cas.b32 %r1, [%q1+4], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra L;"
    with pytest.raises(LivelockError, match=r"spins on argument 0\[1\], which holds 1"):
        launch(body, np.zeros(2, np.uint32), grid=2, threads=1)


@pytest.mark.parametrize("order", ORDERS)
def test_loops_that_give_up_are_no_livelock(order):
    count = "add.u32 %r2, %r2, 1; setp.lt.and.u32 %p1, %r2, 300, %p1;"
    y = np.zeros(2, np.uint32)
    launch(SPIN.format(pause=count) + "st.global.u32 [%q1], %r2;", y, order=order)
    assert y[0] == 300


def test_loops_that_read_a_clock_are_no_livelock():
    late = "mov.u64 %q3, %clock64; sub.u64 %q3, %q3, %q2; setp.lt.and.u64 %p1, %q3, 500, %p1;"
    y = np.zeros(2, np.uint32)
    launch("mov.u64 %q2, %clock64;" + SPIN.format(pause=late), y)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "more",
    [
        "add.u32 %r2, %r2, 1;",
        "mov.u64 %q2, %clock64;",
        "add.u32 %r2, %r2, 3; nanosleep.u32 %r2;",
        "add.cc.u32 %r2, %r2, -5; addc.u32 %r3, %r3, 1;",
    ],
)
def test_loops_that_count_or_time_their_turns_are_livelocks(order, more):
    """What a loop counts decides nothing before it ends."""
    y = np.zeros(2, np.uint32)
    after = "st.global.u32 [%q1], %r2; st.global.u64 [%q1], %q2;"
    with pytest.raises(LivelockError, match=r"spins on argument 0\[1\], which holds 0"):
        launch(SPIN.format(pause=more) + after, y, grid=2, threads=64, order=order)


@pytest.mark.parametrize("order", ORDERS)
def test_loops_whose_turns_decide_what_they_read_are_no_livelocks(order):
    """The loop polls the second word 300 times, then the first."""
    address = "add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 300; selp.u64 %q2, 4, 0, %p2;"
    body = (
        f"L: {address} add.u64 %q2, %q1, %q2; ld.volatile.global.u32 %r1, [%q2];"
        "setp.eq.u32 %p1, %r1, 0; @%p1 bra L; st.global.u32 [%q1], %r2;"
    )
    y = np.array([1, 0], np.uint32)
    launch(body, y, threads=1, order=order)
    assert y.tolist() == [300, 0]


@pytest.mark.parametrize(
    "how",
    [{"tier": "numpy"}, pytest.param({"tier": "native"}, marks=pytest.mark.slow), {"check": "all"}],
)
@needs_native
@pytest.mark.usefixtures("impatient")
def test_loops_that_only_sleep(how):
    text = ptx("L: nanosleep.u32 20;\nbra L;\nret;")
    try:
        (found,) = run(text, "k", (2, 1, 1), (64, 1, 1), [], **how).findings
        assert found.kind == "livelock"
        said: tuple[str, Site | None] = found.message, found.site
    except LivelockError as error:
        said = error.message, error.site
    assert "warp 0 of block (0, 0, 0) repeats a loop, PTX line" in said[0]
    assert said[1] is not None and said[1].ptx == "bra L;"


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
    with pytest.raises(LivelockError, match=r"which holds 8, .*; 4 blocks have not started"):
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


@pytest.mark.slow
@needs_native
@pytest.mark.parametrize(
    "how", [{"tier": "numpy"}, {"tier": "native"}, {"check": "all"}, {"order": 1}]
)
def test_an_endless_loop_is_named_within_seconds(how, request):
    if "tier" not in how:
        request.getfixturevalue("impatient")
    text, began = ptx(LOAD + COUNT + "ret;", ["u64"]), time.process_time()
    sites = list[Site | None]()
    try:
        last = run(text, "k", (2, 1, 1), (64, 1, 1), [np.zeros(4, np.uint32)], **how).findings[-1]
        sites += [last.site] if last.kind == "never ends" else []
    except BudgetError as error:
        sites.append(error.site)
    assert [site.ptx for site in sites if site] == ["bra L;"]
    assert time.process_time() - began < 10


@pytest.mark.slow
@needs_native
@pytest.mark.usefixtures("impatient")
def test_the_native_tier_names_what_a_warp_spins_on():
    text = ptx(LOAD + SPIN.format(pause="") + "ret;", ["u64"])
    with pytest.raises(
        LivelockError, match=r"livelock: .* spins on argument 0\[1\], which holds 0"
    ):
        run(text, "k", (2, 1, 1), (64, 1, 1), [np.zeros(4, np.uint32)], tier="native")


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_a_long_launch_that_ends_is_run_to_its_end():
    count = (
        "L: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 60000; @%p1 bra L; st.global.u32 [%q1], %r1;"
    )
    x, text = np.zeros(4, np.uint32), ptx(LOAD + "mov.u32 %r1, 0;" + count + "ret;", ["u64"])
    assert run(text, "k", (1, 1, 1), (1, 1, 1), [x], check="races").findings == ()
    assert x.tolist() == [60000, 0, 0, 0]


def test_the_status_line_counts_blocks(monkeypatch):
    said = list[str]()
    monkeypatch.setattr(status, "detail", said.append)
    text, x = ptx(LOAD + "st.global.u32 [%q1], 1;ret;", ["u64"]), np.zeros(4, np.uint32)
    run(text, "k", (20, 1, 1), (1024, 1, 1), [x], tier="numpy", order="reversed")
    assert said[0] == "2 of 20 blocks, order reversed" and said[-1].startswith("20 of 20 blocks")
