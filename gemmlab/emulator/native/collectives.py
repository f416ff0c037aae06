"""Shuffles, votes and their like in IR, for one warp; in NumPy: synchronization/collectives.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.native.builder import Function, Variable
from gemmlab.emulator.native.support import (
    first_lane,
    gather,
    lane_numbers,
    lane_offset,
    reduced,
    shuffled,
)
from gemmlab.emulator.native.values import I32, U32, Value, where
from gemmlab.emulator.synchronization import collectives

if TYPE_CHECKING:
    from gemmlab.emulator.native.tracer import Lanes

NONE = np.uint32(0)


class Collectives:
    """Stands in for the module. The active lanes are those that execute the instruction."""

    f: Function  # that is written to

    def bits_of(self, active: Lanes) -> Value:
        return active.bits

    def ballot(self, active: Lanes, predicate: Any) -> Value:
        f = active.bits.f
        predicate = predicate if isinstance(predicate, Value) else f.constant(predicate)
        return active.bits & f.bits(predicate)

    def vote(self, mode: str, active: Lanes, predicate: Any) -> Value:
        yes = self.ballot(active, predicate)
        if mode == "any":
            return yes != NONE
        everyone = yes == active.bits
        return everyone if mode == "all" else everyone | (yes == NONE)

    def shuffle(self, mode: str, value: Any, distance: Any, segment: Any) -> tuple[Any, Any]:
        f = self.f
        value = (value if isinstance(value, Value) else f.constant(value)).settled()
        if not isinstance(distance, Value) and not isinstance(segment, Value):
            return self._known(f, mode, value, distance, segment)
        lane = lane_numbers(f)
        distance = _signed(f, distance) & np.int32(31)
        segment = _signed(f, segment)
        fixed, clamp = (segment >> np.int32(8)) & np.int32(31), segment & np.int32(31)
        low = fixed & lane
        high = low | (clamp & ~fixed)
        source = {
            "up": lane - distance,
            "down": lane + distance,
            "bfly": lane ^ distance,
            "idx": low | (distance & ~fixed),
        }[mode]
        inside = source >= high if mode == "up" else source <= high
        source = where(inside, source, lane)
        spilled = f.reserve(value.spread().type)
        f.store(spilled, value.spread(), align=64)
        return gather(spilled, source * np.int32(value.dtype.itemsize), value.dtype), inside

    def _known(
        self, f: Function, mode: str, value: Value, distance: Any, segment: Any
    ) -> tuple[Value, Value]:
        """Where each lane looks is known now: the NumPy tier says it."""
        lanes = np.arange(WARP, dtype=np.uint32).reshape(1, 1, WARP)
        sources, inside = collectives.shuffle(mode, lanes, distance, segment)
        on = f.table(np.broadcast_to(inside, (1, 1, WARP)).reshape(WARP))
        return shuffled(value.spread(), sources.reshape(WARP).tolist()), on

    def match_any(self, active: Lanes, value: Any) -> Value:
        f = active.bits.f
        value = (value if isinstance(value, Value) else f.constant(value)).spread()
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
        return found.value

    def match_all(self, active: Lanes, value: Any) -> tuple[Value, Value]:
        f, matched = active.bits.f, self.match_any(active, value)
        agree = (f.bits(matched == active.bits) & active.bits) == active.bits
        return where(agree, active.bits, NONE), agree

    def reduce(self, mode: str, active: Lanes, value: Any) -> Value:
        f = active.bits.f
        value = (value if isinstance(value, Value) else f.constant(value)).spread()
        kind, signed = value.dtype.type, value.dtype.kind == "i"
        info = np.iinfo(value.dtype)
        word, neutral = {
            "add": ("add", 0),
            "or": ("or", 0),
            "xor": ("xor", 0),
            "and": ("and", -1 if signed else info.max),
            "min": ("smin" if signed else "umin", info.max),
            "max": ("smax" if signed else "umax", info.min),
        }[mode]
        return reduced(word, where(active.array, value, kind(neutral)))

    def elect(self, active: Lanes) -> tuple[Value, Value]:
        leader = first_lane(active.bits)
        return leader, lane_numbers(active.bits.f).view(U32) == leader


def _signed(f: Function, x: Any) -> Value:
    return (x if isinstance(x, Value) else f.constant(x)).view(I32)
