"""Named barriers (PTX ISA, bar) of one block in IR. The NumPy version is
synchronization/barriers.py."""

from __future__ import annotations

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.native.builder import Function, Variable
from gemmlab.emulator.native.layout import BARRIER, CORE, END_FAULT, FAULT, REDUCTIONS, WARP_STATE
from gemmlab.emulator.native.support import (
    PTR,
    call,
    count_lanes,
    first_lane,
    number,
    record_fault,
    reduced,
    routine,
)
from gemmlab.emulator.native.values import BOOL, I64, NONE, U32, Pointer, Value, apply, where
from gemmlab.emulator.native.warps import STATUS, field, put, status, vector, warp_at, warps_of
from gemmlab.emulator.synchronization import barriers
from gemmlab.emulator.synchronization.barriers import NUM_BARRIERS


@routine(STATUS, warp=PTR)
def arrive(f: Function, core: Pointer, warp: Pointer) -> None:
    """Lanes in `barrier_lanes` arrive at the barriers in `ids`."""
    lanes = f.load(core.at(CORE["barrier_lanes"]), U32)
    ids = f.load(core.at(CORE["ids"]), U32, vector=True, align=64)
    counts = f.load(core.at(CORE["counts"]), U32, vector=True, align=64)
    counted = f.load(core.at(CORE["barrier_has_counts"]), U32) != 0
    is_arrive = f.load(core.at(CORE["barrier_is_arrive"]), U32) != 0
    bad_count = f.bits(barriers.is_bad_count(counts)) & f.bits(counted)
    bad = (f.bits(ids >= np.uint32(NUM_BARRIERS)) | bad_count) & lanes
    with f.when(bad != 0):
        record_fault(f, core, END_FAULT, f.load(core.at(CORE["instruction"]), I64), lanes)
        f.ret(status(f, FAULT))
    left = Variable(f, lanes)
    with f.loop(lambda: left.value != 0):
        lane = first_lane(left.value).astype(I64)
        barrier = f.load(core.at(CORE["ids"]).at(lane * 4), U32)
        group = f.bits(ids == barrier) & left.value
        left.value = left.value & ~group
        offset = barrier.astype(I64) * 4
        with f.when(counted):
            expected = core.at(CORE["expected"]).at(offset)
            most = reduced("umax", where(f.lanes(group), counts, NONE))
            f.store(expected, apply(np.maximum, f.load(expected, U32), most))
        stays, behind = f.label("stays"), f.label("behind")
        passes = f.label("passes")
        f.branch(is_arrive, passes, stays)
        f.place(passes)
        f.increment(core.at(CORE["arrived"]).at(offset), f.constant(np.uint32(WARP)))
        f.jump(behind)
        f.place(stays)
        at_barrier = field(f, warp, "at_barrier")
        f.increment(core.at(CORE["num_at_barrier"]), (at_barrier == 0).astype(I64))
        put(f, warp, "at_barrier", at_barrier | group)
        at = where(f.lanes(group), barrier, vector(f, warp, "barrier"))
        f.store(warp.at(WARP_STATE["barrier"]), at, align=64)
        votes = f.load(core.at(CORE["barrier_votes"]), U32)
        put(f, warp, "votes", field(f, warp, "votes") & ~group | votes & group)
        put(f, warp, "operation", f.load(core.at(CORE["barrier_operation"]), U32))
        f.store(warp.at(WARP_STATE["result"]), f.load(core.at(CORE["barrier_result"]), I64))
        f.jump(behind)
        f.place(behind)
        call(f, core, "release", barrier)
    f.ret(status(f, BARRIER))


@routine(None)
def release_all(f: Function, core: Pointer) -> None:
    barrier = Variable(f, f.constant(NONE))
    with f.loop(lambda: barrier.value < np.uint32(NUM_BARRIERS)):
        call(f, core, "release", barrier.value)
        barrier.value = barrier.value + np.uint32(1)
    f.ret()


def _here(f: Function, warp: Pointer, barrier: Value) -> Value:
    """Return the lanes of a warp that wait at a barrier."""
    return f.bits(vector(f, warp, "barrier") == barrier) & field(f, warp, "at_barrier")


@routine(None, barrier=U32)
def release(f: Function, core: Pointer, barrier: Value) -> None:
    """Release the lanes waiting at a barrier if all expected threads have arrived. A warp counts as
    arrived once all its live lanes wait there."""
    offset = barrier.astype(I64) * 4
    arrived, expected = (core.at(CORE[x]).at(offset) for x in ("arrived", "expected"))
    whole, alive = Variable(f, f.constant(NONE)), Variable(f, f.constant(NONE))
    yes, lanes = Variable(f, number(f, 0)), Variable(f, number(f, 0))
    index, count = warps_of(f, core)
    with f.loop(lambda: index.value < count):
        warp = warp_at(f, core, index.value)
        live, here = field(f, warp, "live"), _here(f, warp, barrier)
        alive.value = alive.value + (live != 0).astype(U32)
        whole.value = whole.value + ((live == here) & (live != 0)).astype(U32)
        yes.value = yes.value + count_lanes(here & field(f, warp, "votes"))
        lanes.value = lanes.value + count_lanes(here)
        index.value = index.value + 1
    total = f.load(arrived, U32) + whole.value * np.uint32(WARP)
    wanted = barriers.wanted(f.load(expected, U32), alive.value * np.uint32(WARP))
    with f.when(~barriers.is_complete(total, wanted)):
        f.ret()
    f.store(arrived, f.constant(NONE))
    f.store(expected, f.constant(NONE))
    index.value = number(f, 0)
    with f.loop(lambda: index.value < count):
        warp = warp_at(f, core, index.value)
        here, at_barrier = _here(f, warp, barrier), field(f, warp, "at_barrier")
        with f.when(here != 0):
            _leave_result(f, warp, here, yes.value, lanes.value)
            put(f, warp, "at_barrier", at_barrier & ~here)
            gone = (at_barrier == here).astype(I64)
            f.increment(core.at(CORE["num_at_barrier"]), -gone)
        index.value = index.value + 1
    f.ret()


def _leave_result(f: Function, warp: Pointer, here: Value, yes: Value, lanes: Value) -> None:
    """Store the result of bar.red to the destination registers of the released lanes."""
    operation = field(f, warp, "operation")
    place = warp.at(f.load(warp.at(WARP_STATE["result"]), I64))
    for name, number_of in REDUCTIONS.items():
        result = barriers.reduction(name, yes, lanes)
        with f.when(operation == np.uint32(number_of)):
            if result.dtype == BOOL:
                old = f.load(place, U32)
                f.store(place, where(result, old | here, old & ~here))
            else:
                old = f.load(place, U32, vector=True, align=64)
                f.store(place, where(f.lanes(here), result.astype(U32), old), align=64)
