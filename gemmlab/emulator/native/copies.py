"""cp.async in IR. The NumPy version is copies/async_copies.py, which defines when bytes arrive.

Each warp has a ring buffer of pending copies, one entry per instruction: the lanes, the group of
each lane, the destinations and the bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmlab.emulator.memory.addresses import excess_bits, within
from gemmlab.emulator.native.bounds import byte_of
from gemmlab.emulator.native.builder import Function, Variable
from gemmlab.emulator.native.context import Lanes, TraceContext
from gemmlab.emulator.native.layout import (
    ACCESS_FAULT,
    COPY,
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
    first_lane,
    lane_offset,
    number,
    record_fault,
    routine,
)
from gemmlab.emulator.native.values import (
    BOOL,
    I32,
    I64,
    NONE,
    U8,
    U32,
    Pointer,
    Value,
)
from gemmlab.emulator.program import Access

LANE_BYTES = 16  # space per lane in a ring entry


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
            starts = access.at(m.value(address)).broadcast()
            m.f.store(core.at(CORE[name]), starts, align=64)
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
    fits = within(targets, width, np.int64(0), f.load(core.at(CORE["shared_bytes"]), I64))
    fits = fits & (excess_bits(targets, width) == 0) & (sizes <= width.astype(U32))
    bad = ~f.bits(fits) & lanes | f.bits(excess_bits(sources, width) != 0) & reading
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
    left = Variable(f, lanes & ~f.bits(within(words, sizes, low, high)))
    allocation, count = Variable(f, number(f, 0)), f.load(core.at(CORE["num_allocations"]), I64)
    starts, ends = (f.load_pointer(core.at(CORE[x])) for x in ("starts", "ends"))
    with f.loop(lambda: (left.value != NONE) & (allocation.value < count)):
        offset = allocation.value * 8
        begin, end = f.load(starts.at(offset), I64), f.load(ends.at(offset), I64)
        mine = f.bits(within(words, sizes, begin, end)) & left.value
        with f.when(mine != NONE):
            f.store(site.at(SITE["low"]), begin)
            f.store(site.at(SITE["high"]), end)
            left.value = left.value & ~mine
        allocation.value = allocation.value + 1
    f.ret(left.value)


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
def complete_copies(f: Function, _core: Pointer, warp: Pointer, lanes: Value, more: Value) -> None:
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
