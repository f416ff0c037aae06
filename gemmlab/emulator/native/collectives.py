"""Shuffles, votes and other warp collectives in IR. The NumPy version is
synchronization/collectives.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.native.builder import Function, Variable
from gemmlab.emulator.native.context import Lanes
from gemmlab.emulator.native.support import (
    first_lane,
    gather,
    lane_numbers,
    lane_offset,
    reduced,
    shuffled,
)
from gemmlab.emulator.native.values import I32, NONE, U32, Value, apply, where
from gemmlab.emulator.synchronization import collectives


class Collectives:
    """Replaces the collectives module in traced code. The active lanes execute the instruction."""

    f: Function  # the function under construction

    def bits_of(self, active: Lanes) -> Value:
        return active.bits

    def _members(self, active: Lanes, members: Any) -> Value:
        """Return the active lanes in each lane's member mask."""
        return apply(np.bitwise_and, active.bits, members)

    def ballot(self, active: Lanes, members: Any, predicate: Any) -> Value:
        f = self.f
        predicate = predicate if isinstance(predicate, Value) else f.constant(predicate)
        return self._members(active, members) & f.bits(predicate)

    def vote(self, mode: str, active: Lanes, members: Any, predicate: Any) -> Value:
        yes = self.ballot(active, members, predicate)
        result: Value = collectives.verdict(mode, yes, self._members(active, members))
        return result

    def shuffle(self, mode: str, value: Any, distance: Any, segment: Any) -> tuple[Any, Any]:
        f = self.f
        value = (value if isinstance(value, Value) else f.constant(value)).canonical()
        if not isinstance(distance, Value) and not isinstance(segment, Value):
            return self._known(f, mode, value, distance, segment)
        lane, operands = lane_numbers(f), (_signed(f, x) for x in (distance, segment))
        source, inside = collectives.source_lanes(mode, lane, *operands)
        source = where(inside, source, lane)
        spilled = f.reserve(value.broadcast().type)
        f.store(spilled, value.broadcast(), align=64)
        return gather(spilled, source * np.int32(value.dtype.itemsize), value.dtype), inside

    def _known(
        self, f: Function, mode: str, value: Value, distance: Any, segment: Any
    ) -> tuple[Value, Value]:
        """Source lanes are compile-time constants here; the NumPy tier computes them."""
        lanes = np.arange(WARP, dtype=np.uint32).reshape(1, 1, WARP)
        sources, inside = collectives.shuffle(mode, lanes, distance, segment)
        on = f.table(np.broadcast_to(inside, (1, 1, WARP)).reshape(WARP))
        return shuffled(value.broadcast(), sources.reshape(WARP).tolist()), on

    def match_any(self, active: Lanes, members: Any, value: Any) -> Value:
        f = self.f
        value = (value if isinstance(value, Value) else f.constant(value)).broadcast()
        spilled = f.reserve(value.type)
        f.store(spilled, value, align=64)
        left, found = Variable(f, active.bits), Variable(f, f.constant(NONE, True))
        with f.loop(lambda: left.value != NONE):
            lane = first_lane(left.value)
            one = f.load(spilled.at(lane_offset(lane, value.dtype)), value.dtype)
            same = value == one
            group = f.bits(same) & active.bits
            found.value = where(same, group, found.value)
            left.value = left.value & ~group
        return apply(np.bitwise_and, found.value, members)

    def match_all(self, active: Lanes, members: Any, value: Any) -> tuple[Value, Value]:
        same = self.match_any(active, members, value)
        return collectives.agreement(same, self._members(active, members))

    def reduce(self, mode: str, active: Lanes, members: Any, value: Any) -> Value:
        f = self.f
        value = (value if isinstance(value, Value) else f.constant(value)).broadcast()
        sign = "s" if value.dtype.kind == "i" else "u"
        word = f"{sign}{mode}" if mode in ("min", "max") else mode  # as LLVM spells it
        neutral = collectives.neutral(mode, value.dtype)

        def over(lanes: Value) -> Value:
            return reduced(word, where(f.lanes(lanes), value, neutral))

        if not (isinstance(members, Value) and members.vector):
            return over(self._members(active, members))
        # Lanes with the same member mask share a result.
        left, result = Variable(f, active.bits), Variable(f, value)
        with f.loop(lambda: left.value != NONE):
            mask = _of_lane(f, members, first_lane(left.value))
            group = f.bits(members == mask)
            result.value = where(f.lanes(group), over(active.bits & mask), result.value)
            left.value = left.value & ~group
        return result.value

    def elect(self, active: Lanes, members: Any) -> tuple[Value, Value]:
        leader = collectives.lowest(self._members(active, members))
        return leader, lane_numbers(self.f).view(U32) == leader


def _signed(f: Function, x: Any) -> Value:
    return (x if isinstance(x, Value) else f.constant(x)).view(I32)


def _of_lane(f: Function, vector: Value, lane: Value) -> Value:
    """Return one lane's element."""
    spilled = f.reserve(vector.type)
    f.store(spilled, vector, align=64)
    return f.load(spilled.at(lane_offset(lane, vector.dtype)), vector.dtype)
