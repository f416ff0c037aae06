"""cp.async in IR. The NumPy version is memory/async_copies.py, which defines when bytes arrive.

Each warp has a ring buffer of pending copies, one entry per instruction: the lanes, the group of
each lane, the destinations and the bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.counters.rules import BANKS, LINE_BYTES, SECTOR_BYTES, TAG_BANKS
from gemmlab.emulator.memory.arena import GLOBAL_BASE
from gemmlab.emulator.memory.spaces import Access
from gemmlab.emulator.native.bounds import byte_of
from gemmlab.emulator.native.builder import Function, Pointer, Variable
from gemmlab.emulator.native.context import Lanes, TraceContext
from gemmlab.emulator.native.costs import distinct, wavefronts
from gemmlab.emulator.native.layout import (
    ACCESS_FAULT,
    COPY,
    COPY_RECORD,
    CORE,
    FLAVOUR,
    GROW_RING,
    INSTRUCTION,
    SITE,
    WARP_STATE,
    WIDTH,
)
from gemmlab.emulator.native.memory import shape_of
from gemmlab.emulator.native.support import (
    PTR,
    call,
    count_lanes,
    first_lane,
    lane_offset,
    last_lane,
    number,
    record_fault,
    routine,
)
from gemmlab.emulator.native.values import ALL, BOOL, I32, I64, NONE, U8, U32, Value, apply, where

LANE_BYTES = 16  # space per lane in a ring entry
BYPASS = 1  # flavour of copies that bypass L1
LINE, SECTOR = LINE_BYTES.bit_length() - 1, SECTOR_BYTES.bit_length() - 1


class Copies:
    """Replaces the NumPy tier's `copies` in traced code."""

    def __init__(self, m: TraceContext) -> None:
        self.m = m

    def issue(
        self,
        to: Access,
        target: Any,
        origin: Access,
        source: Any,
        nbytes: Any,
        bypass: bool,
        mask: Lanes | None,
    ) -> None:
        m = self.m
        lanes, core = m.bits_of(mask), m.core
        for name, address, access in (("words", target, to), ("pointers", source, origin)):
            address = m.value(address)
            wrapped = address + address.dtype.type(
                access.offset % (1 << 8 * address.dtype.itemsize)
            )
            unsigned = wrapped.view(f"u{address.dtype.itemsize}").astype(I64)
            m.f.store(core.at(CORE[name]), unsigned.broadcast(), align=64)
        m.f.store(core.at(CORE["data"]), m.value(nbytes).broadcast(), align=64)
        shape = number(m.f, shape_of(to, 0) & ~(255 << FLAVOUR) | int(bypass) << FLAVOUR)
        sites = m.site(to, "global"), m.site(to, "shared")
        with m.f.when(lanes != NONE):
            record = core.at(m.kernel.copy_record(to.instruction))
            m.require(m.run("copy", m.warp, *sites, record, lanes, shape))

    def commit(self, mask: Lanes | None) -> None:
        f, place = self.m.f, self.m.warp.at(WARP_STATE["committed"])
        groups = f.load(place, I32, True, align=64)
        f.store(place, groups + f.lanes(self.m.bits_of(mask)).astype(I32), align=64)

    def wait(self, most: int, mask: Lanes | None) -> None:
        self._complete(-most, mask)

    def complete_all(self, mask: Lanes | None) -> None:
        self._complete(1, mask)

    def wait_all(self, mask: Lanes | None) -> None:
        self.commit(mask)
        self.wait(0, mask)

    def _complete(self, more: int, mask: Lanes | None) -> None:
        m = self.m
        m.run("complete_copies", m.warp, m.bits_of(mask), m.f.constant(np.int32(more)))


# Runtime functions


@routine(BOOL, warp=PTR, from_global=PTR, to_shared=PTR, record=PTR, lanes=U32, shape=I64)
def copy(
    f: Function,
    core: Pointer,
    warp: Pointer,
    from_global: Pointer,
    to_shared: Pointer,
    record: Pointer,
    lanes: Value,
    shape: Value,
) -> None:
    """Check, count and enqueue the copies of some lanes. `words` holds the destinations, `pointers`
    the sources and `data` the number of bytes that each lane reads."""
    width = byte_of(shape, WIDTH)
    targets, sources = (
        f.load(core.at(CORE[x]), I64, True, align=64) for x in ("words", "pointers")
    )
    sizes = f.load(core.at(CORE["data"]), U32, True, align=64)
    reading = f.bits(sizes != NONE) & lanes
    low_bits = width - 1
    fits = (targets >= 0) & (targets + width <= f.load(core.at(CORE["shared_bytes"]), I64))
    fits = fits & ((targets & low_bits) == 0) & (sizes <= width.astype(U32))
    bad = ~f.bits(fits) & lanes | f.bits((sources & low_bits) != 0) & reading
    with f.when(bad == NONE):
        bad_sources = call(f, core, "outside", from_global, sources, sizes.astype(I64), reading)
        with f.when(bad_sources == NONE):
            zeroed = f.bits(sizes < width.astype(U32)) & lanes
            sites = from_global, to_shared
            call(f, core, "count_copy", *sites, record, lanes, reading, zeroed, shape)
            count, room = (f.load(warp.at(WARP_STATE[x]), I64) for x in ("copies", "capacity"))
            with f.when(count == room):
                function = f.load_pointer(core.at(CORE["callback"]))
                done = f.invoke(function, U32, core, number(f, GROW_RING), lanes)
                with f.when(done == NONE):
                    f.ret(f.constant(np.bool_(False)))
            call(f, core, "enqueue_copy", warp, lanes, zeroed, width)
            f.ret(f.constant(np.bool_(True)))
    record_fault(f, core, ACCESS_FAULT, shape >> INSTRUCTION, lanes)
    f.ret(f.constant(np.bool_(False)))


@routine(U32, site=PTR, words=(I64, True), sizes=(I64, True), lanes=U32)
def outside(
    f: Function, core: Pointer, site: Pointer, words: Value, sizes: Value, lanes: Value
) -> None:
    """Return the lanes whose bytes are not within one allocation."""
    low, high = f.load(site.at(SITE["low"]), I64), f.load(site.at(SITE["high"]), I64)
    left = Variable(f, lanes & ~f.bits((words >= low) & (words + sizes <= high)))
    allocation, count = Variable(f, number(f, 0)), f.load(core.at(CORE["num_allocations"]), I64)
    starts, ends = (f.load_pointer(core.at(CORE[x])) for x in ("starts", "ends"))
    with f.loop(lambda: (left.value != NONE) & (allocation.value < count)):
        offset = allocation.value * 8
        begin, end = f.load(starts.at(offset), I64), f.load(ends.at(offset), I64)
        mine = f.bits((words >= begin) & (words + sizes <= end)) & left.value
        with f.when(mine != NONE):
            f.store(site.at(SITE["low"]), begin)
            f.store(site.at(SITE["high"]), end)
            left.value = left.value & ~mine
        allocation.value = allocation.value + 1
    f.ret(left.value)


COUNT = dict(lanes=U32, reading=U32, zeroed=U32, shape=I64)


@routine(None, from_global=PTR, to_shared=PTR, record=PTR, **COUNT)
def count_copy(
    f: Function,
    core: Pointer,
    from_global: Pointer,
    to_shared: Pointer,
    record: Pointer,
    lanes: Value,
    reading: Value,
    zeroed: Value,
    shape: Value,
) -> None:
    """Count a copy by the rules of counters/rules.py."""
    width, bypass = byte_of(shape, WIDTH), byte_of(shape, FLAVOUR) == BYPASS
    targets = f.load(core.at(CORE["words"]), I64, True, align=64)
    sources = f.load(core.at(CORE["pointers"]), I64, True, align=64) - np.int64(GLOBAL_BASE)
    f.increment(to_shared.at(SITE["requests"]), number(f, 1))
    f.increment(to_shared.at(SITE["threads"]), count_lanes(lanes))
    with f.when(zeroed != NONE):
        waves, ideal = wavefronts(f, targets.astype(I32), zeroed, width, number(f, 0))
        f.increment(to_shared.at(SITE["cost"]), waves)
        f.increment(to_shared.at(SITE["ideal"]), ideal)
    with f.when(reading != NONE):
        f.increment(from_global.at(SITE["requests"]), number(f, 1))
        f.increment(from_global.at(SITE["threads"]), count_lanes(reading))
        with f.when(bypass):
            sectors = _sectors_past_l1(f, record, sources, targets, reading)
            f.increment(from_global.at(SITE["cost"]), sectors)
        with f.when(~bypass):
            sectors = distinct(f, sources >> np.int64(SECTOR), reading)
            f.increment(from_global.at(SITE["cost"]), sectors)
            _count_through_l1(f, to_shared, sources, targets, reading, width)
    f.ret()


def _spill(f: Function, x: Value) -> Pointer:
    place = f.reserve(x.type)
    f.store(place, x, align=64)
    return place


def _sectors_past_l1(
    f: Function, record: Pointer, sources: Value, targets: Value, lanes: Value
) -> Value:
    """Return the sectors of copies that bypass L1: one per source line and destination sector. The
    result is cached by address pattern."""
    patterns = [x - f.element(x, 0).broadcast() for x in (sources, targets)]
    bits = f.element(sources, 0) & np.int64(LINE_BYTES - 1)
    low = (bits << np.int64(8) | f.element(targets, 0) & np.int64(SECTOR_BYTES - 1)).astype(U32)
    same = (f.load(record.at(COPY_RECORD["low"]), U32) == low) & (
        f.load(record.at(COPY_RECORD["lanes"]), U32) == lanes
    )
    for name, pattern in zip(("sources", "targets"), patterns, strict=True):
        known = f.load(record.at(COPY_RECORD[name]), I64, True, align=64)
        same = same & ((f.bits(pattern == known) | ~lanes) == ALL)
    place = record.at(COPY_RECORD["sectors"])
    same = same & (f.load(place, I64) != 0)
    with f.when(~same):
        pairs = (sources >> np.int64(LINE)) << np.int64(32) | targets >> np.int64(SECTOR)
        f.store(place, distinct(f, pairs, _last_of_each(f, targets, lanes)))
        f.store(record.at(COPY_RECORD["low"]), low)
        f.store(record.at(COPY_RECORD["lanes"]), lanes)
        for name, pattern in zip(("sources", "targets"), patterns, strict=True):
            f.store(record.at(COPY_RECORD[name]), pattern, align=64)
    return f.load(place, I64)


def _last_of_each(f: Function, targets: Value, lanes: Value) -> Value:
    """Return, for each destination, the last lane that writes it."""
    spilled, left, last = _spill(f, targets), Variable(f, lanes), Variable(f, f.constant(NONE))
    with f.loop(lambda: left.value != NONE):
        lane = first_lane(left.value)
        place = f.load(spilled.at(lane_offset(lane, I64)), I64)
        same = f.bits(targets == place) & left.value
        left.value = left.value & ~same
        last.value = last.value | f.constant(np.uint32(1)) << last_lane(same)
    return last.value


def _tag_cycles(f: Function, sources: Value, lanes: Value) -> Value:
    """Return the cycle in which L1 looks up each lane's line: each tag bank serves one line per
    cycle."""
    lines = sources >> np.int64(LINE)
    banks = lines
    for shift in (32, 16, 8, 4, 2):  # XOR of all 2-bit fields
        banks = banks ^ banks >> np.int64(shift)
    banks = (banks & np.int64(TAG_BANKS - 1)).astype(I32)
    lines_at, banks_at = _spill(f, lines), _spill(f, banks)
    taken = f.reserve(f"<{TAG_BANKS} x i32>")
    f.do(f"store <{TAG_BANKS} x i32> zeroinitializer, ptr {taken.name}, align 16")
    left, turns = Variable(f, lanes), Variable(f, f.constant(np.int32(0), vector=True))
    with f.loop(lambda: left.value != NONE):
        lane = first_lane(left.value)
        line = f.load(lines_at.at(lane_offset(lane, I64)), I64)
        same = f.bits(lines == line) & left.value
        left.value = left.value & ~same
        bank = f.load(banks_at.at(lane_offset(lane, I32)), I32)
        turn = f.load(taken.at(lane_offset(bank, I32)), I32)
        f.store(taken.at(lane_offset(bank, I32)), turn + np.int32(1))
        turns.value = where(f.lanes(same), turn, turns.value)
    return turns.value


def _count_through_l1(
    f: Function, site: Pointer, sources: Value, targets: Value, lanes: Value, width: Value
) -> None:
    """Count wavefronts of copies through L1. Lanes of one tag cycle and one phase cost as many
    wavefronts as the busiest bank has words to read or write. A lane's words occupy neighbouring
    banks, so a lane uses one aligned group of banks."""
    turns = _tag_cycles(f, sources, lanes)
    turns_at = _spill(f, turns)
    shift = (np.int64(2) + (width >> 3)).broadcast()  # width 4, 8, 16: shift 2, 3, 4
    mask = (np.int64(BANKS) // (width >> 2) - 1).broadcast()
    banks_at = [_spill(f, (x >> shift & mask).astype(I32)) for x in (sources, targets)]
    loads = [f.reserve(f"<{BANKS} x i32>") for _ in banks_at]
    per_phase = np.uint32(WARP) // (width >> 2).astype(U32)
    left = Variable(f, lanes)
    waves, ideal = Variable(f, number(f, 0)), Variable(f, number(f, 0))
    with f.loop(lambda: left.value != NONE):
        lane = first_lane(left.value)
        first = lane // per_phase * per_phase
        ones = ((np.uint64(1) << per_phase.astype("u8")) - np.uint64(1)).astype(U32)
        turn = f.load(turns_at.at(lane_offset(lane, I32)), I32)
        together = Variable(f, f.bits(turns == turn) & left.value & ones << first)
        left.value = left.value & ~together.value
        for load in loads:
            f.store(load, f.constant(np.int32(0), vector=True), align=64)
        most = Variable(f, f.constant(np.int32(0)))
        with f.loop(lambda: together.value != NONE):
            one = first_lane(together.value)
            together.value = together.value & (together.value - np.uint32(1))
            for bank_at, load in zip(banks_at, loads, strict=True):
                bank = f.load(bank_at.at(lane_offset(one, I32)), I32)
                place = load.at(lane_offset(bank, I32))
                served = f.load(place, I32) + np.int32(1)
                f.store(place, served)
                most.value = apply(np.maximum, most.value, served)
        waves.value = waves.value + most.value.astype(I64)
        ideal.value = ideal.value + 1
    f.increment(site.at(SITE["cost"]), waves.value)
    f.increment(site.at(SITE["ideal"]), ideal.value)


def _entry(f: Function, warp: Pointer, index: Value) -> Pointer:
    """Return the entry at a position from the head of the ring."""
    room = f.load(warp.at(WARP_STATE["capacity"]), I64)
    place = (f.load(warp.at(WARP_STATE["first_copy"]), I64) + index) & (room - 1)
    return f.load_pointer(warp.at(WARP_STATE["ring"])).at(place * COPY.size)


@routine(None, warp=PTR, lanes=U32, zeroed=U32, width=I64)
def enqueue_copy(
    f: Function, core: Pointer, warp: Pointer, lanes: Value, zeroed: Value, width: Value
) -> None:
    """Read the source bytes and append them to the ring, where they stay until a wait."""
    count = f.load(warp.at(WARP_STATE["copies"]), I64)
    entry = _entry(f, warp, count)
    f.store(warp.at(WARP_STATE["copies"]), count + 1)
    f.store(entry.at(COPY["lanes"]), lanes)
    f.store(entry.at(COPY["width"]), width)
    groups = f.load(warp.at(WARP_STATE["committed"]), I32, True, align=64)
    f.store(entry.at(COPY["groups"]), groups, align=64)
    targets = f.load(core.at(CORE["words"]), I64, True, align=64)
    shared = f.load(core.at(CORE["shared"]), I64)
    f.store(entry.at(COPY["targets"]), targets + shared, align=64)
    sources = f.load(core.at(CORE["pointers"]), I64, True, align=64)
    arena = f.load(core.at(CORE["arena"]), I64)
    f.store(core.at(CORE["pointers"]), sources + arena, align=64)
    whole = lanes & ~zeroed
    for nbytes in (4, 8, 16):
        with f.when(width == nbytes):
            _each(f, whole, core.at(CORE["pointers"]), entry.at(COPY["data"]), nbytes, False)
    left = Variable(f, zeroed)
    with f.loop(lambda: left.value != NONE):
        lane = first_lane(left.value)
        left.value = left.value & (left.value - np.uint32(1))
        to = entry.at(COPY["data"]).at(lane.astype(I64) * LANE_BYTES)
        f.clear(to, number(f, LANE_BYTES))
        size = f.load(core.at(CORE["data"]).at(lane_offset(lane, U32)), U32).astype(I64)
        source = f.load_pointer(core.at(CORE["pointers"]).at(lane_offset(lane, I64)))
        k = Variable(f, number(f, 0))
        with f.loop(lambda: k.value < size):
            f.store(to.at(k.value), f.load(source.at(k.value), U8))
            k.value = k.value + 1
    f.ret()


def _each(
    f: Function, lanes: Value, pointers: Pointer, data: Pointer, nbytes: int, to_pointers: bool
) -> None:
    """Copy the bytes of some lanes between host pointers and a ring entry."""
    kind, left = f"<{nbytes // 4} x i32>", Variable(f, lanes)
    with f.loop(lambda: left.value != NONE):
        lane = first_lane(left.value).astype(I64)
        left.value = left.value & (left.value - np.uint32(1))
        there, here = f.load_pointer(pointers.at(lane * 8)), data.at(lane * LANE_BYTES)
        source, target = (here, there) if to_pointers else (there, here)
        bits = f.assign(f"load {kind}, ptr {source.name}, align 4")
        f.do(f"store {kind} {bits}, ptr {target.name}, align 4")


@routine(None, warp=PTR, lanes=U32, more=I32)
def complete_copies(f: Function, core: Pointer, warp: Pointer, lanes: Value, more: Value) -> None:
    """Complete the copies of these lanes whose group number is less than the number of groups that
    their thread has committed, plus `more`."""
    limit = f.load(warp.at(WARP_STATE["committed"]), I32, True, align=64) + more.broadcast()
    count = f.load(warp.at(WARP_STATE["copies"]), I64)
    index = Variable(f, number(f, 0))
    with f.loop(lambda: index.value < count):
        entry = _entry(f, warp, index.value)
        under_way = f.load(entry.at(COPY["lanes"]), U32)
        groups = f.load(entry.at(COPY["groups"]), I32, True, align=64)
        due = f.bits(groups < limit) & lanes & under_way
        width = f.load(entry.at(COPY["width"]), I64)
        for nbytes in (4, 8, 16):
            with f.when(width == nbytes):
                _each(f, due, entry.at(COPY["targets"]), entry.at(COPY["data"]), nbytes, True)
        f.store(entry.at(COPY["lanes"]), under_way & ~due)
        index.value = index.value + 1
    # Remove completed entries at the head of the ring.
    room = f.load(warp.at(WARP_STATE["capacity"]), I64)
    gone = Variable(f, number(f, 0))
    going = Variable(f, f.constant(np.bool_(True)))
    with f.loop(lambda: going.value & (gone.value < count)):
        empty = f.load(_entry(f, warp, gone.value).at(COPY["lanes"]), U32) == NONE
        going.value = empty
        gone.value = gone.value + empty.astype(I64)
    first = f.load(warp.at(WARP_STATE["first_copy"]), I64)
    f.store(warp.at(WARP_STATE["first_copy"]), (first + gone.value) & (room - 1))
    f.store(warp.at(WARP_STATE["copies"]), count - gone.value)
    f.ret()
