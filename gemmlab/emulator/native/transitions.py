"""Transitions of a warp between fast and slow code, which keep uniform registers as scalars and as
vectors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gemmlab.emulator.native.builder import Function, Variable
from gemmlab.emulator.native.layout import (
    BITS,
    CORE,
    UNIFORM,
)
from gemmlab.emulator.native.support import (
    PTR,
    first_lane,
    lane_offset,
    routine,
)
from gemmlab.emulator.native.values import (
    ALL,
    BOOL,
    I64,
    U8,
    U32,
    Pointer,
    Value,
)
from gemmlab.emulator.native.warps import field


def _each(f: Function, core: Pointer, index: Value, body: Callable[..., None]) -> None:
    """Emit `body` for each entry of a list of uniform registers."""
    starts = f.load_pointer(core.at(CORE["uniform_starts"])).at(index * 8)
    entry, end = Variable(f, f.load(starts, I64)), f.load(starts.at(8), I64)
    table = f.load_pointer(core.at(CORE["uniform"]))
    with f.loop(lambda: entry.value < end):
        place = table.at(entry.value * (8 * len(UNIFORM)))
        vector, scalar, nbytes = (f.load(place.at(8 * k), I64) for k in range(len(UNIFORM)))
        for size in (2, 4, 8, BITS):
            with f.when(nbytes == size):
                body(vector, scalar, size)
        entry.value = entry.value + 1


@routine(None, warp=PTR)
def broadcast_registers(f: Function, core: Pointer, warp: Pointer) -> None:
    """Store all uniform registers as vectors."""

    def one(vector: Value, scalar: Value, size: int) -> None:
        if size == BITS:
            holds = f.load(warp.at(scalar), U8) != 0
            f.store(warp.at(vector), f.bits(holds))
        else:
            value = f.load(warp.at(scalar), np.dtype(f"u{size}"))
            f.store(warp.at(vector), value.broadcast(), align=64)

    _each(f, core, f.load(core.at(CORE["num_code_blocks"]), I64), one)
    f.ret()


@routine(BOOL, warp=PTR, pc=I64)
def enter(f: Function, core: Pointer, warp: Pointer, pc: Value) -> None:
    """Return whether a reconverged warp can run the fast code of a basic block: each live uniform
    register must have one value in all live lanes. If so, the values are stored as scalars."""
    live = field(f, warp, "live")
    lane = first_lane(live)

    def agree(vector: Value, _scalar: Value, size: int) -> None:
        if size == BITS:
            bits = f.load(warp.at(vector), U32) & live
            same = (bits == 0) | (bits == live)
        else:
            dtype = np.dtype(f"u{size}")
            first = f.load(warp.at(vector).at(lane_offset(lane, dtype)), dtype)
            values = f.load(warp.at(vector), dtype, True, align=64)
            same = (f.bits(values == first) | ~live) == ALL
        with f.when(~same):
            f.ret(f.constant(np.bool_(False)))

    def take(vector: Value, scalar: Value, size: int) -> None:
        if size == BITS:
            holds = (f.load(warp.at(vector), U32) & live) != 0
            f.store(warp.at(scalar), holds.astype(U8))
        else:
            dtype = np.dtype(f"u{size}")
            first = f.load(warp.at(vector).at(lane_offset(lane, dtype)), dtype)
            f.store(warp.at(scalar), first)

    _each(f, core, pc, agree)
    _each(f, core, pc, take)
    f.ret(f.constant(np.bool_(True)))
