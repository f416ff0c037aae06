"""mbarrier objects in IR. The NumPy version is synchronization/mbarriers.py, which defines their
layout.

A warp whose wait fails stays at the wait and retries in its next turn; the wait is counted once. If
no warp of a block makes progress, waits return false, as on the NumPy tier.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmlab.emulator.memory.addresses import excess_bits, within
from gemmlab.emulator.native.builder import Function, Variable
from gemmlab.emulator.native.context import Lanes, TraceContext
from gemmlab.emulator.native.layout import CORE, MBARRIER_FAULT, WARP_STATE
from gemmlab.emulator.native.support import (
    PTR,
    first_lane,
    lane_offset,
    number,
    record_fault,
    routine,
)
from gemmlab.emulator.native.values import BOOL, I64, NONE, U32, U64, Pointer, Value
from gemmlab.emulator.program import Access
from gemmlab.emulator.synchronization.mbarriers import (
    MAX_COUNT,
    OBJECT_BYTES,
    advance,
    fields,
    is_bad_count,
    is_bad_tx,
    is_over,
    phase_of,
    word_of,
)


class Mbarriers:
    """Replaces the NumPy tier's `mbarriers` in traced code."""

    def __init__(self, m: TraceContext) -> None:
        self.m = m

    def init(self, access: Access, address: Any, count: Any, mask: Lanes | None) -> None:
        self._run("init_mbarrier", access, address, self._wide(count), 0, mask)

    def invalidate(self, access: Access, address: Any, mask: Lanes | None) -> None:
        self._run("invalidate_mbarrier", access, address, 0, 0, mask)

    def expect(self, access: Access, address: Any, tx: Any, mask: Lanes | None) -> None:
        self._run("expect_bytes", access, address, 0, tx, mask)

    def arrive(
        self,
        access: Access,
        address: Any,
        count: Any,
        tx: Any,
        mask: Lanes | None,
        drops: bool = False,
    ) -> Value:
        """Return the states before the arrival."""
        name = "arrive_and_drop" if drops else "arrive_at_mbarrier"
        self._run(name, access, address, self._wide(count), self._wide(tx), mask)
        return self.m.f.load(self.m.core.at(CORE["data"]), U64, True, align=64)

    def test(self, access: Access, address: Any, parity: Any, lanes: Value) -> Value:
        """Return the lanes whose phase of this parity is complete."""
        m, f = self.m, self.m.f
        self._put(m.warp.at(WARP_STATE["awaited"]), self._start(access, address))
        self._put(m.warp.at(WARP_STATE["parity"]), self._wide(parity))
        m.require(m.run("test_phases", m.warp, lanes, number(f, access.instruction)))
        return f.load(m.core.at(CORE["data"]), U32)

    def _wide(self, x: Any) -> Value:
        return self.m.value(x).astype(I64)

    def _start(self, access: Access, address: Any) -> Value:
        start: Value = access.at(self.m.value(address))
        return start

    def _put(self, place: Pointer, x: Any) -> None:
        self.m.f.store(place, self.m.value(x).astype(I64).broadcast(), align=64)

    def _run(
        self, name: str, access: Access, address: Any, count: Any, tx: Any, mask: Lanes | None
    ) -> None:
        m = self.m
        for field, x in (("words", self._start(access, address)), ("counted", count), ("tx", tx)):
            self._put(m.core.at(CORE[field]), x if isinstance(x, Value) else np.int64(x))
        m.require(m.run(name, m.bits_of(mask), number(m.f, access.instruction)))


# Runtime functions


def _fails(f: Function, core: Pointer, bad: Value, index: Value, lanes: Value) -> None:
    with f.when(bad):
        record_fault(f, core, MBARRIER_FAULT, index, lanes)
        f.ret(f.constant(np.bool_(False)))


def _outside(f: Function, core: Pointer, address: Value) -> Value:
    """Return whether an mbarrier at this address would be misaligned or outside shared memory."""
    nbytes = f.load(core.at(CORE["shared_bytes"]), I64)
    inside = within(address, np.int64(OBJECT_BYTES), np.int64(0), nbytes)
    outside: Value = ~inside | (excess_bits(address, np.int64(OBJECT_BYTES)) != 0)
    return outside


def _of_lane(f: Function, core: Pointer, name: str, lane: Value) -> Value:
    return f.load(core.at(CORE[name]).at(lane_offset(lane, I64)), I64)


class State:
    """The fields of one mbarrier object, as variables."""

    def __init__(self, f: Function, place: Pointer) -> None:
        self.f, self.place = f, place
        self.pending, self.expected, self.tx, self.phase = (
            Variable(f, number(f, 0)) for _ in range(4)
        )

    def load(self) -> Value:
        """Read the fields. Returns whether the object is valid."""
        word = self.f.load(self.place, I64)
        variables = self.pending, self.expected, self.tx, self.phase
        for variable, value in zip(variables, fields(word), strict=True):
            variable.value = value
        return word < np.int64(0)

    def word(self, pending: Value) -> Value:
        rest = self.expected.value, self.tx.value, self.phase.value
        word: Value = word_of(pending, *rest, np.int64(1))
        return word

    def store(self, core: Pointer) -> Value:
        """Write the fields, after advancing the phase if it is complete. Returns whether the
        pending bytes exceed the limit."""
        f = self.f
        tx = self.tx.value
        done, pending, phase = advance(
            self.pending.value, self.expected.value, tx, self.phase.value
        )
        self.pending.value, self.phase.value = pending, phase
        with f.when(done):
            f.store(core.at(CORE["timeouts"]), number(f, 0))
        f.store(self.place, self.word(self.pending.value))
        bad: Value = is_bad_tx(tx)
        return bad


def _each_object(name: str, body: Any) -> None:
    """Define a routine that applies `body` to each distinct object among the lanes' addresses.
    `body` takes the lanes, the object, and a function that reports a fault if its argument
    holds."""

    def emit(f: Function, core: Pointer, lanes: Value, index: Value) -> None:
        words = f.load(core.at(CORE["words"]), I64, True, align=64)
        f.store(core.at(CORE["data"]), f.constant(np.int64(0), vector=True), align=64)
        left = Variable(f, lanes)
        with f.loop(lambda: left.value != NONE):
            address = _of_lane(f, core, "words", first_lane(left.value))
            group = f.bits(words == address) & left.value
            left.value = left.value & ~group
            _fails(f, core, _outside(f, core, address), index, lanes)
            state = State(f, f.load_pointer(core.at(CORE["shared"])).at(address))
            body(f, core, group, state, lambda bad: _fails(f, core, bad, index, lanes))
        f.ret(f.constant(np.bool_(True)))

    emit.__name__ = name
    routine(BOOL, lanes=U32, index=I64)(emit)


def _init(f: Function, core: Pointer, group: Value, state: State, check: Any) -> None:
    left = Variable(f, group)
    with f.loop(lambda: left.value != NONE):
        count = _of_lane(f, core, "counted", first_lane(left.value))
        left.value = left.value & (left.value - np.uint32(1))
        check(is_bad_count(count, np.int64(MAX_COUNT)))
        state.expected.value = count
        f.store(state.place, state.word(count))


def _invalidate(f: Function, _core: Pointer, _group: Value, state: State, check: Any) -> None:
    check(~state.load())
    f.store(state.place, number(f, 0))


def _expect(f: Function, core: Pointer, group: Value, state: State, check: Any) -> None:
    check(~state.load())
    left = Variable(f, group)
    with f.loop(lambda: left.value != NONE):
        state.tx.value = state.tx.value + _of_lane(f, core, "tx", first_lane(left.value))
        left.value = left.value & (left.value - np.uint32(1))
    check(state.store(core))


def _arrive(drops: bool) -> Any:
    """Lanes arrive in order. Those that arrive in the same phase are processed together, and all
    see the same number of pending bytes."""

    def body(f: Function, core: Pointer, group: Value, state: State, check: Any) -> None:
        left = Variable(f, group)
        with f.loop(lambda: left.value != NONE):
            check(~state.load())
            so_far, tx = Variable(f, number(f, 0)), Variable(f, number(f, 0))
            fits = Variable(f, f.constant(np.bool_(True)))
            with f.loop(lambda: (left.value != NONE) & fits.value):
                lane = first_lane(left.value)
                count = _of_lane(f, core, "counted", lane)
                check(is_bad_count(count, state.pending.value))
                room = state.pending.value - so_far.value
                fits.value = count <= room
                with f.when(fits.value):
                    place = core.at(CORE["data"]).at(lane_offset(lane, I64))
                    f.store(place, state.word(room))
                    so_far.value = so_far.value + count
                    tx.value = tx.value + _of_lane(f, core, "tx", lane)
                    left.value = left.value & (left.value - np.uint32(1))
            state.pending.value = state.pending.value - so_far.value
            state.tx.value = state.tx.value + tx.value
            if drops:
                state.expected.value = state.expected.value - so_far.value
            check(state.store(core))

    return body


_each_object("init_mbarrier", _init)
_each_object("invalidate_mbarrier", _invalidate)
_each_object("expect_bytes", _expect)
_each_object("arrive_at_mbarrier", _arrive(False))
_each_object("arrive_and_drop", _arrive(True))


@routine(BOOL, warp=PTR, lanes=U32, index=I64)
def test_phases(f: Function, core: Pointer, warp: Pointer, lanes: Value, index: Value) -> None:
    """Store to `data` the mask of lanes whose phase is complete."""
    words = f.load(warp.at(WARP_STATE["awaited"]), I64, True, align=64)
    parities = f.load(warp.at(WARP_STATE["parity"]), I64, True, align=64)
    # for the error message of a fault
    for name, values in (("words", words), ("counted", parities)):
        f.store(core.at(CORE[name]), values, align=64)
    left, found = Variable(f, lanes), Variable(f, f.constant(NONE))
    shared = f.load_pointer(core.at(CORE["shared"]))
    with f.loop(lambda: left.value != NONE):
        address = _of_lane(f, core, "words", first_lane(left.value))
        group = f.bits(words == address) & left.value
        left.value = left.value & ~group
        _fails(f, core, _outside(f, core, address), index, lanes)
        word = f.load(shared.at(address), I64)
        _fails(f, core, word >= np.int64(0), index, lanes)
        over = f.bits(is_over(parities, phase_of(word)))
        found.value = found.value | group & over
    f.store(core.at(CORE["data"]), found.value)
    f.ret(f.constant(np.bool_(True)))
