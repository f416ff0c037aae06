"""mbarrier objects, and warps that wait for each other in any order."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine import TIERS, without_native_tier
from snippets import ptx

from gemmlab.emulator import run
from gemmlab.errors import DeadlockError, EmulationError, InputError, MisalignedAddressError


@pytest.fixture(params=TIERS)
def tier(request):
    return request.param


ORDERS = ["in-order", "reversed", 1, 2]
STORE = "add.u64 %q20, %q0, %q31; st.global.u32 [%q20], %r1;"
# One thread remains; m is initialized for one arrival per phase.
ALONE = (
    ".shared .align 8 .b64 m[4]; setp.ne.u32 %p7, %r0, 0; @%p7 ret;mbarrier.init.shared.b64 [m], 1;"
)


@dataclass
class Model:
    """The behaviour of an mbarrier object according to the PTX manual."""

    expected: int
    phase: int = 0
    tx: int = 0

    def __post_init__(self):
        self.pending = self.expected

    def arrive(self, count=1, tx=0, drops=False):
        self.tx += tx
        self.pending -= count
        self.expected -= count if drops else 0
        if self.pending == self.tx == 0:
            self.phase, self.pending = self.phase ^ 1, self.expected


# PTX of one step, and its effect on the model.
STEPS = {
    "arrive": ("mbarrier.arrive.shared.b64 %q1, [m];", lambda m, n: m.arrive()),
    "arrive n": (
        "mbarrier.arrive.release.cta.shared::cta.b64 %q1, [m], {n};",
        lambda m, n: m.arrive(n),
    ),
    "arrive and expect": (
        "mbarrier.arrive.expect_tx.shared.b64 _, [m], {n};",
        lambda m, n: m.arrive(1, n),
    ),
    "drop": ("mbarrier.arrive_drop.shared.b64 %q1, [m];", lambda m, n: m.arrive(1, 0, True)),
    "expect": (
        "mbarrier.expect_tx.relaxed.cta.shared.b64 [m], {n};",
        lambda m, n: m.arrive(0, n),
    ),
    "complete": (
        "mbarrier.complete_tx.relaxed.cta.shared.b64 [m], {n};",
        lambda m, n: m.arrive(0, -n),
    ),
}


@settings(max_examples=40, deadline=None)
@given(st.integers(4, 9), st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(1, 4))))
@pytest.mark.slow
def test_any_sequence_of_steps_is_what_the_manual_says(count, wanted):
    model, body = Model(count), list[str]()
    phases: list[Any] = []
    pending: list[Any] = []
    for name, n in wanted[:12]:
        text, change = STEPS[name]
        arrivals = {"arrive n": n, "expect": 0, "complete": 0}.get(name, 1)
        if arrivals > model.pending or (name == "drop" and model.expected < 2):
            continue
        before = model.pending
        change(model, n)
        row = len(phases) * 8
        body.append(text.format(n=n))
        body.append(
            f"mbarrier.test_wait.parity.shared.b64 %p1, [m], 0; selp.u32 %r1, 1, 0, %p1;"
            f"st.global.u32 [%q0+{row}], %r1;"
        )
        phases.append(model.phase)
        if "%q1" in text:
            body.append(f"mbarrier.pending_count.b64 %r2, %q1; st.global.u32 [%q0+{row + 4}], %r2;")
        pending.append(before if "%q1" in text else 0)
    x = np.zeros((len(phases) + 1, 2), np.uint32)
    text = (
        "ld.param.u64 %q0, [p0]; .shared .align 8 .b64 m[1];"
        f"mbarrier.init.shared.b64 [m], {count}; {' '.join(body)} ret;"
    )
    for tier in ("numpy", "native") if not without_native_tier() else ("numpy",):
        x[:] = 0
        run(ptx(text, ["u64"]), "k", (1, 1, 1), (1, 1, 1), [x], tier=tier)
        # Parity 0 is complete during phase 1.
        assert x[:-1, 0].tolist() == phases
        assert x[:-1, 1].tolist() == pending


def test_a_state_is_complete_when_its_phase_is(launch):
    x = np.zeros(4, np.uint32)
    launch(
        f"{ALONE} mbarrier.init.shared.b64 [m+8], 2; mbarrier.arrive.shared.b64 %q1, [m+8];"
        "mbarrier.test_wait.shared.b64 %p1, [m+8], %q1; selp.u32 %r1, 1, 0, %p1;"
        "st.global.u32 [%q0], %r1; mbarrier.arrive.shared.b64 %q2, [m+8];"
        "mbarrier.try_wait.shared.b64 %p1, [m+8], %q1, 1000; selp.u32 %r1, 1, 0, %p1;"
        "st.global.u32 [%q0+4], %r1; mov.u64 %q3, m; cvta.shared.u64 %q3, %q3;"
        "mbarrier.arrive.b64 %q4, [%q3+8]; mbarrier.test_wait.b64 %p1, [%q3+8], %q2;"
        "selp.u32 %r1, 1, 0, %p1; st.global.u32 [%q0+8], %r1;"
        "mbarrier.test_wait.b64 %p1, [%q3+8], %q4; selp.u32 %r1, 1, 0, %p1;"
        "st.global.u32 [%q0+12], %r1;",
        [x],
    )
    assert x.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("count", [1, 3, 16, 32, 96, 128])
def test_lanes_that_arrive_together_take_turns(launch, tier, count):
    """128 lanes of one instruction complete 128/count phases, and each gets the state it found. The
    order of warps is unspecified on the native tier."""
    threads, x = count * (128 // count), np.zeros(128, np.uint32)
    launch(
        ".shared .align 8 .b64 m; setp.eq.u32 %p1, %r0, 0;"
        f"@%p1 mbarrier.init.shared.b64 [m], {count}; bar.sync 0;"
        f"setp.ge.u32 %p2, %r0, {threads}; @!%p2 mbarrier.arrive.shared.b64 %q1, [m];"
        "bar.sync 0; @%p2 bra OUT; mbarrier.pending_count.b64 %r1, %q1;"
        "mbarrier.test_wait.shared.b64 %p3, [m], %q1;"
        f"@%p3 add.u32 %r1, %r1, 1000; OUT: {STORE}",
        [x],
        block=128,
    )
    lane = np.arange(threads)
    # A state holds only the parity, so phases an odd number earlier also appear complete.
    complete = (threads // count - lane // count) % 2
    wanted, found = count - lane % count + 1000 * complete, x[:threads]
    assert sorted(found) == sorted(wanted)
    assert tier == "native" or found.tolist() == wanted.tolist()


RING = """
.shared .align 8 .b64 full[2]; .shared .align 8 .b64 empty[2]; .shared .align 4 .b32 slot[2];
setp.ne.u32 %p1, %r28, 0; @%p1 bra READY;
mbarrier.init.shared.b64 [full], 1; mbarrier.init.shared.b64 [full+8], 1;
mbarrier.init.shared.b64 [empty], 32; mbarrier.init.shared.b64 [empty+8], 32;
READY: bar.sync 0;
mov.u32 %r1, 0; mov.u32 %r2, 0; setp.lt.u32 %p1, %r28, 32; @%p1 bra PRODUCE;
CONSUME: and.b32 %r3, %r2, 1; shr.u32 %r4, %r2, 1; and.b32 %r4, %r4, 1;
mov.u64 %q1, full; mad.wide.u32 %q1, %r3, 8, %q1;
mov.u64 %q2, empty; mad.wide.u32 %q2, %r3, 8, %q2;
C: mbarrier.try_wait.parity.shared.b64 %p2, [%q1], %r4; @!%p2 bra C;
mov.u64 %q3, slot; mad.wide.u32 %q3, %r3, 4, %q3; ld.shared.u32 %r5, [%q3];
mad.lo.u32 %r1, %r1, 10, %r5; mbarrier.arrive.shared.b64 _, [%q2];
add.u32 %r2, %r2, 1; setp.lt.u32 %p3, %r2, 6; @%p3 bra CONSUME; bra OUT;
PRODUCE: setp.ne.u32 %p4, %r28, 0; @%p4 bra OUT;
NEXT: and.b32 %r3, %r2, 1; shr.u32 %r4, %r2, 1; and.b32 %r4, %r4, 1; xor.b32 %r4, %r4, 1;
mov.u64 %q1, full; mad.wide.u32 %q1, %r3, 8, %q1;
mov.u64 %q2, empty; mad.wide.u32 %q2, %r3, 8, %q2;
P: mbarrier.test_wait.parity.shared.b64 %p2, [%q2], %r4; @%p2 bra FREE; nanosleep.u32 20; bra P;
FREE: mov.u64 %q3, slot; mad.wide.u32 %q3, %r3, 4, %q3;
add.u32 %r5, %r2, 1; st.shared.u32 [%q3], %r5;
mbarrier.arrive.shared.b64 _, [%q1]; add.u32 %r2, %r2, 1; setp.lt.u32 %p3, %r2, 6; @%p3 bra NEXT;
OUT:
"""


@pytest.mark.parametrize("order", ORDERS)
def test_a_ring_of_two_slots(launch, order):
    """One thread passes six digits to a warp through a ring of two stages."""
    x = np.zeros(128, np.uint32)
    launch(RING + STORE, [x], grid=2, block=64, order=order)
    assert x.tolist() == ([0] * 32 + [123456] * 32) * 2


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.slow
def test_deadlock_tells_the_state_of_each_object(launch, order):
    """The consumer waits for a seventh digit."""
    body = RING.replace("%r2, 6; @%p3 bra CONSUME", "%r2, 7; @%p3 bra CONSUME")
    with pytest.raises(DeadlockError) as error:
        launch(body + STORE, [np.zeros(64, np.uint32)], block=64, order=order)
    text = str(error.value)
    assert "warp 1 waits for phase 1 of mbarrier full[0]" in text
    assert "(phase 1, 1 of 1 arrivals pending, 0 bytes expected), PTX line" in text
    assert "try_wait" in text
    assert (error.value.block, error.value.thread) == ((0, 0, 0), 32)


def test_deadlock_of_a_barrier_and_an_mbarrier(launch, tier):
    with pytest.raises(DeadlockError, match="32 of 64 threads wait at barrier 0") as error:
        launch(
            ".shared .align 8 .b64 m; setp.lt.u32 %p1, %r28, 32; @%p1 bra B;"
            "setp.ne.u32 %p2, %r28, 32; @%p2 bra W; mbarrier.init.shared.b64 [m], 1;"
            "mbarrier.arrive.expect_tx.shared.b64 _, [m], 16; W: bar.sync 1, 32;"
            "L: mbarrier.try_wait.parity.shared.b64 %p3, [m], 0; @!%p3 bra L; B: bar.sync 0;",
            block=64,
            grid=3,
        )
    text = str(error.value)
    assert "warp 1 waits for phase 0 of" in text and "0 of 1 arrivals pending, 16 bytes" in text
    assert tier == "native" or "2 more blocks also wait" in text


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        ("mbarrier.arrive.shared.b64 _, [m+8];", EmulationError, "no mbarrier .* address 0x8"),
        ("mbarrier.init.shared.b64 [m], 0;", EmulationError, "count is 1 to 1048575"),
        ("mbarrier.arrive.shared.b64 _, [m], 2;", EmulationError, "more arrivals than"),
        ("mbarrier.arrive.shared.b64 _, [m+4];", MisalignedAddressError, "8 bytes"),
        ("mbarrier.expect_tx.shared.b64 [m], 0xFFFFFF;", EmulationError, "more than 1048575 bytes"),
        (
            "mbarrier.inval.shared.b64 [m]; mbarrier.arrive.shared.b64 _, [m];",
            EmulationError,
            "no mbarrier was initialized",
        ),
        (
            "mbarrier.expect_tx.shared.b64 [m], 1; mbarrier.arrive.shared.b64 _, [m];"
            "mbarrier.arrive.shared.b64 _, [m];",
            EmulationError,
            "more arrivals than the mbarrier's phase has pending",
        ),
    ],
)
def test_misuse(launch, body, error, message):
    with pytest.raises(error, match=message) as caught:
        launch(f"{ALONE} {body}")
    assert caught.value.thread == 0


@pytest.mark.parametrize("noinc", ["", ".noinc"])
def test_arrival_of_asynchronous_copies(launch, noinc):
    """All copies of a thread complete before the arrival that tracks them."""
    x, y = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    own = "mbarrier.arrive.shared.b64 _, [m];" if not noinc else ""
    launch(
        ".shared .align 8 .b64 m; .shared .align 16 .b8 s[256];"
        "mov.u64 %q2, s; add.u64 %q3, %q2, %q31;"
        "setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [m], 64; bar.sync 0;"
        "add.u64 %q4, %q0, %q31; cp.async.ca.shared.global [%q3], [%q4], 4;"
        f"cp.async.mbarrier.arrive{noinc}.shared.b64 [m]; {own}"
        "L: mbarrier.try_wait.parity.shared.b64 %p2, [m], 0; @!%p2 bra L; mov.u32 %r2, 63;"
        "sub.u32 %r3, %r2, %r0; mad.wide.u32 %q5, %r3, 4, %q2; ld.shared.u32 %r1, [%q5];"
        "add.u64 %q20, %q1, %q31; st.global.u32 [%q20], %r1;",
        [x, y],
        block=64,
    )
    assert y.tolist() == x[::-1].tolist()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("pause", ["", "nanosleep.u32 100;"])
def test_blocks_wait_for_later_blocks(launch, monkeypatch, order, pause):
    """Each block waits for the flag of the next block, and few of them are resident together."""
    monkeypatch.setattr(import_module("gemmlab.emulator.execution.grid"), "CHUNK_LANES", 128)
    x = np.zeros(13, np.uint32)
    x[12] = 1
    launch(
        "setp.ne.u32 %p1, %r28, 0; @%p1 ret; mad.wide.u32 %q1, %r30, 4, %q0;"
        f"L: {pause} ld.relaxed.gpu.global.u32 %r1, [%q1+4]; setp.eq.u32 %p2, %r1, 0; @%p2 bra L;"
        "add.u32 %r1, %r1, 1; st.release.gpu.global.u32 [%q1], %r1;",
        [x],
        grid=12,
        order=order,
    )
    assert x.tolist() == [*range(13, 0, -1)]


def test_no_such_order(launch):
    with pytest.raises(InputError, match="'sideways' is not 'in-order', 'reversed' or a whole"):
        launch("", order="sideways")


@pytest.mark.parametrize("order", ORDERS)
def test_a_lock_that_all_lanes_want(launch, order):
    """Every thread of six blocks adds to a plain counter under a lock."""
    x = np.zeros(2, np.uint32)
    launch(
        "LOCK: atom.global.cas.b32 %r1, [%q0], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra LOCK;"
        "ld.volatile.global.u32 %r2, [%q0+4]; add.u32 %r2, %r2, 1;"
        "st.volatile.global.u32 [%q0+4], %r2; membar.gl; atom.global.exch.b32 %r3, [%q0], 0;",
        [x],
        grid=6,
        block=3,
        order=order,
    )
    assert x.tolist() == [0, 18]
