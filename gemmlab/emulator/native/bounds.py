"""Check and count the lanes' addresses in each state space and translate them to pointers.

The core's `words` field holds the addresses; `pointers` receives the host addresses.
"""

from __future__ import annotations

import numpy as np

from gemmlab.emulator.counters import rules
from gemmlab.emulator.memory.addresses import (
    ATOMIC_WINDOWS,
    WINDOW_BITS,
    WINDOWS,
    excess_bits,
    within,
)
from gemmlab.emulator.native.builder import Function, Variable
from gemmlab.emulator.native.costs import atomic_sectors, distinct, wavefronts
from gemmlab.emulator.native.layout import (
    ACCESS_FAULT,
    ATOMIC,
    CORE,
    FLAVOUR,
    INSTRUCTION,
    LOADS,
    SITE,
    WIDTH,
)
from gemmlab.emulator.native.support import (
    PTR,
    call,
    count_lanes,
    first_lane,
    lane_numbers,
    number,
    record_fault,
    reduced,
    routine,
)
from gemmlab.emulator.native.values import ALL, BOOL, I32, I64, U32, Pointer, Value, where


def byte_of(shape: Value, place: int) -> Value:
    """Return one byte of a packed access shape."""
    return (shape >> place) & 255


def _words(f: Function, core: Pointer, lanes: Value) -> Value:
    """Return the addresses. Inactive lanes repeat the address of an active lane."""
    words = f.load(core.at(CORE["words"]), I64, vector=True, align=64)
    lane = first_lane(lanes).astype(I64)
    one = f.load(core.at(CORE["words"]).at(lane * 8), I64)
    return where(f.lanes(lanes), words, one)


def _aligned(words: Value, width: Value) -> Value:
    aligned: Value = excess_bits(reduced("or", words), width) == 0
    return aligned


def _between(f: Function, words: Value, low: Value, high: Value, width: Value) -> Value:
    return f.bits(within(words, width, low, high)) == ALL


def _return_fault(f: Function, core: Pointer, shape: Value, lanes: Value) -> None:
    record_fault(f, core, ACCESS_FAULT, shape >> INSTRUCTION, lanes)
    f.ret(f.constant(np.bool_(False)))


def _fits(f: Function, core: Pointer, words: Value, width: Value, size: str) -> Value:
    nbytes = f.load(core.at(CORE[size]), I64)
    return _between(f, words, number(f, 0), nbytes, width) & _aligned(words, width)


def _translate(
    f: Function,
    core: Pointer,
    words: Value,
    fits: Value,
    memory: str,
    shape: Value,
    lanes: Value,
) -> None:
    """Store host pointers for addresses that fit; otherwise return a fault."""
    right, wrong = f.label("right"), f.label("wrong")
    f.branch(fits, right, wrong)
    f.place(wrong)
    _return_fault(f, core, shape, lanes)
    f.place(right)
    place = core.at(CORE["pointers"])
    pointers = words + f.load(core.at(CORE[memory]), I64)
    others = f.load(place, I64, vector=True, align=64)
    f.store(place, where(f.lanes(lanes), pointers, others), align=64)


def _count(f: Function, site: Pointer, lanes: Value, cost: Value, ideal: Value | None) -> None:
    f.increment(site.at(SITE["requests"]), number(f, 1))
    f.increment(site.at(SITE["threads"]), count_lanes(lanes))
    f.increment(site.at(SITE["cost"]), cost)
    if ideal is not None:
        f.increment(site.at(SITE["ideal"]), ideal)


CHECK = dict(site=PTR, lanes=U32, shape=I64)


@routine(BOOL, **CHECK)
def check_global(f: Function, core: Pointer, site: Pointer, lanes: Value, shape: Value) -> None:
    words, width = _words(f, core, lanes), byte_of(shape, WIDTH)
    low, high = f.load(site.at(SITE["low"]), I64), f.load(site.at(SITE["high"]), I64)
    inside = _between(f, words, low, high, width)
    search, owned, wrong = f.label("search"), f.label("owned"), f.label("wrong")
    f.branch(inside, owned, search)
    f.place(search)
    left, allocation = Variable(f, lanes), Variable(f, number(f, 0))
    count = f.load(core.at(CORE["num_allocations"]), I64)
    starts, ends = (f.load_pointer(core.at(CORE[x])) for x in ("starts", "ends"))
    # Each allocation in turn claims the lanes whose addresses it contains.
    with f.loop(lambda: (left.value != 0) & (allocation.value < count)):
        offset = allocation.value * 8
        begin, end = f.load(starts.at(offset), I64), f.load(ends.at(offset), I64)
        mine = f.bits(within(words, width, begin, end)) & left.value
        with f.when(mine != 0):
            f.store(site.at(SITE["low"]), begin)
            f.store(site.at(SITE["high"]), end)
            left.value = left.value & ~mine
        allocation.value = allocation.value + 1
    f.branch(left.value == 0, owned, wrong)
    f.place(wrong)
    _return_fault(f, core, shape, lanes)
    f.place(owned)
    _translate(f, core, words, _aligned(words, width), "arena", shape, lanes)
    cost = Variable(f, number(f, 0))
    with f.when((shape & (ATOMIC << FLAVOUR)) != 0):
        cost.value = atomic_sectors(f, words, lanes)
    with f.when((shape & (ATOMIC << FLAVOUR)) == 0):
        cost.value = distinct(f, rules.sector(words), lanes)
    _count(f, site, lanes, cost.value, None)
    f.ret(f.constant(np.bool_(True)))


@routine(BOOL, **CHECK)
def check_shared(f: Function, core: Pointer, site: Pointer, lanes: Value, shape: Value) -> None:
    words, width = _words(f, core, lanes), byte_of(shape, WIDTH)
    _translate(f, core, words, _fits(f, core, words, width, "shared_bytes"), "shared", shape, lanes)
    is_load = shape & (LOADS << FLAVOUR)
    _count(f, site, lanes, *wavefronts(f, words.astype(I32), lanes, width, is_load))
    f.ret(f.constant(np.bool_(True)))


@routine(BOOL, **CHECK)
def check_local(f: Function, core: Pointer, site: Pointer, lanes: Value, shape: Value) -> None:
    """Here each lane's bytes are contiguous. The costs follow the hardware's layout."""
    words, width = _words(f, core, lanes), byte_of(shape, WIDTH)
    lane = lane_numbers(f).astype(I64)
    fits = _fits(f, core, words, width, "local_bytes")
    own = words + lane * f.load(core.at(CORE["local_bytes"]), I64)
    _translate(f, core, own, fits, "local", shape, lanes)
    sectors, word = Variable(f, number(f, 0)), Variable(f, number(f, 0))
    count = rules.words_per_lane(width)
    with f.loop(lambda: word.value < count):
        places = rules.local_address(rules.word(words) + word.value, lane)
        sectors.value = sectors.value + distinct(f, rules.sector(places), lanes)
        word.value = word.value + 1
    _count(f, site, lanes, sectors.value, None)
    f.ret(f.constant(np.bool_(True)))


@routine(BOOL, **CHECK)
def check_param(f: Function, core: Pointer, _site: Pointer, lanes: Value, shape: Value) -> None:
    """Parameters are read-only and not counted."""
    words, width = _words(f, core, lanes), byte_of(shape, WIDTH)
    fits = _fits(f, core, words, width, "parameter_bytes")
    fits = fits & ((shape & (LOADS << FLAVOUR)) != 0)
    _translate(f, core, words, fits, "parameters", shape, lanes)
    f.ret(f.constant(np.bool_(True)))


@routine(BOOL, **CHECK)
def check_generic(f: Function, core: Pointer, site: Pointer, lanes: Value, shape: Value) -> None:
    """The upper bits of each lane's address select its state space."""
    words_at = core.at(CORE["words"])
    words = f.load(words_at, I64, vector=True, align=64)
    windows, left = words >> WINDOW_BITS, Variable(f, lanes)
    for window, space in enumerate(WINDOWS):
        group = f.bits(windows == window) & left.value
        if space not in ATOMIC_WINDOWS:
            group = where((shape & (ATOMIC << FLAVOUR)) == 0, group, np.uint32(0))
        with f.when(group != 0):
            f.store(words_at, words - (window << WINDOW_BITS), align=64)
            good = call(f, core, f"check_{space}", site.at(window * SITE.size), group, shape)
            f.store(words_at, words, align=64)
            with f.when(~good):
                f.ret(good)
            left.value = left.value & ~group
    with f.when(left.value != 0):
        _return_fault(f, core, shape, left.value)
    f.ret(f.constant(np.bool_(True)))
