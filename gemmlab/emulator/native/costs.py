"""The counting rules of counters/rules.py for one warp, in IR."""

from __future__ import annotations

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.counters import rules
from gemmlab.emulator.native.builder import Function, Variable
from gemmlab.emulator.native.layout import LOADS, RECORD, UNEVEN
from gemmlab.emulator.native.support import (
    PTR,
    count_lanes,
    first_lane,
    gather,
    lane_numbers,
    lane_offset,
    number,
    reduced,
    routine,
    scatter,
    shuffled,
)
from gemmlab.emulator.native.values import (
    ALL,
    I32,
    I64,
    LOWER_HALF,
    U16,
    U32,
    Pointer,
    Value,
    apply,
    where,
)

NOINLINE = "noinline #0"  # inlining would make every access save the registers these use
# lowest address of a pattern wider than 32 bits, so that it fails every bounds check
OUT_OF_BOUNDS = -(1 << 62)


def distinct(f: Function, keys: Value, lanes: Value) -> Value:
    """Count the distinct keys among the lanes."""
    spilled = f.reserve(keys.type)
    f.store(spilled, keys, align=64)
    left, count = Variable(f, lanes), Variable(f, number(f, 0))
    with f.loop(lambda: left.value != 0):
        lane = first_lane(left.value)
        one = f.load(spilled.at(lane.astype(I64) * keys.dtype.itemsize), keys.dtype)
        left.value = left.value & ~f.bits(keys == one)
        count.value = count.value + 1
    return count.value


def atomic_sectors(f: Function, words: Value, lanes: Value) -> Value:
    """Sum over sectors: the largest number of lanes with the same address in the sector."""
    spilled = f.reserve(words.type)
    f.store(spilled, words, align=64)
    left, cost = Variable(f, lanes), Variable(f, number(f, 0))
    with f.loop(lambda: left.value != 0):
        one = f.load(spilled.at(lane_offset(first_lane(left.value), I64)), I64)
        here = Variable(f, f.bits(rules.sector(words) == rules.sector(one)) & left.value)
        left.value = left.value & ~here.value
        most = Variable(f, number(f, 0))
        with f.loop(lambda: here.value != 0):
            word = f.load(spilled.at(lane_offset(first_lane(here.value), I64)), I64)
            same = f.bits(words == word) & here.value
            most.value = apply(np.maximum, most.value, count_lanes(same))
            here.value = here.value & ~same
        cost.value = cost.value + most.value
    return cost.value


def pieces_of(offsets: Value, words: Value) -> Value:
    """Return the number of the piece at each offset: an aligned group of 1, 2 or 4 words."""
    pieces: Value = rules.word(offsets) >> (words >> 1)
    return pieces


def conflicts(f: Function, slots: Pointer, pieces: Value, banks: Value, lanes: Value) -> Value:
    """Return the largest number of distinct pieces in one bank. Each round serves one piece per
    bank."""
    left, rounds = Variable(f, lanes), Variable(f, number(f, 0))
    where_to = (pieces & (banks - np.int32(1))) * np.int32(4)
    with f.loop(lambda: left.value != 0):
        scatter(slots, where_to, pieces, f.lanes(left.value))
        served = f.bits(gather(slots, where_to, I32) == pieces)
        left.value = left.value & ~served
        rounds.value = rounds.value + 1
    return rounds.value


def wavefronts(
    f: Function, offsets: Value, lanes: Value, width: Value, is_load: Value
) -> tuple[Value, Value]:
    """Return the wavefronts of a shared-memory access and the ideal number without conflicts.

    A piece is the one to four words of a lane. A phase is as many lanes as it takes for their
    pieces to span all banks.
    """
    slots = f.reserve(f"<{WARP} x i32>")
    f.store(slots, f.constant(np.int32(0), vector=True), align=64)
    phases = rules.words_per_lane(width).astype(I32)
    banks = np.int32(WARP) // phases
    pieces = pieces_of(offsets, phases)
    loads, on = f.bits(is_load != 0), f.lanes(lanes)
    equal = []
    for step in rules.PAIRS:
        partner = [lane ^ step for lane in range(WARP)]
        same = rules.reads_alike(pieces, on, shuffled(pieces, partner), shuffled(on, partner))
        equal.append(f.bits(same))
    waves, ideal = Variable(f, number(f, 0)), Variable(f, number(f, 0))
    phase = Variable(f, number(f, 0, I32))
    with f.loop(lambda: phase.value < phases):
        this = _lanes_of_phase(banks, phase.value)
        both = this | _lanes_of_phase(banks, phase.value + np.int32(1))
        alike = [(bits | ~both) == ALL for bits in equal]
        merge = alike[0] | alike[1]
        even = (phase.value & np.int32(1)) == np.int32(0)
        merge = merge & even & (phases > np.int32(1)) & (loads != np.uint32(0))
        served = lanes & where(merge, both, this)
        waves.value = waves.value + conflicts(f, slots, pieces, banks, served)
        ideal.value = ideal.value + (served != np.uint32(0)).astype(I64)
        phase.value = phase.value + where(merge, np.int32(2), np.int32(1))
    return waves.value, ideal.value


def _lanes_of_phase(banks: Value, phase: Value) -> Value:
    """Return the lanes of a phase; empty past the last phase."""
    ones = (np.uint64(1) << banks.astype("u8")) - np.uint64(1)
    return (ones << (phase * banks).astype("u8")).astype(U32)


@routine(None, record=PTR)
def analyse_pattern(f: Function, _core: Pointer, record: Pointer) -> None:
    """Derive a record's other fields from a new address pattern."""
    base = f.load(record.at(RECORD["base"]), I64)
    pattern = f.load(record.at(RECORD["addresses"]), I64, vector=True, align=64) - base
    index = pattern.astype(I32)
    f.store(record.at(RECORD["index"]), index, align=64)
    low, high = reduced("smin", index).astype(I64), reduced("smax", index).astype(I64)
    near = f.bits(index.astype(I64) == pattern) == ALL
    f.store(record.at(RECORD["lowest"]), where(near, low, np.int64(OUT_OF_BOUNDS)))
    f.store(record.at(RECORD["highest"]), high)
    f.store(record.at(RECORD["low_bits"]), reduced("or", index).astype(I64))
    step = f.element(index, 1)
    even = f.bits(index == lane_numbers(f) * step.broadcast()) == ALL
    f.store(record.at(RECORD["span"]), where(even, step.astype(I64), np.int64(UNEVEN)))
    upper = index - f.element(index, WARP // 2).broadcast()
    inside = where(f.lanes(f.constant(LOWER_HALF)), index, upper)
    even = f.bits(inside == (lane_numbers(f) & (WARP // 2 - 1)) * step.broadcast()) == ALL
    f.store(record.at(RECORD["half_span"]), where(even, step.astype(I64), np.int64(UNEVEN)))
    f.clear(record.at(RECORD["cost"]), number(f, 64))
    f.ret()


def _recorder(bits: int) -> None:
    """Define the routine that records the addresses in a register. If all lanes are live, it
    compares their pattern with the recorded one."""
    dtype = np.dtype(f"i{bits // 8}")

    def body(f: Function, core: Pointer, record: Pointer, live: Value, addresses: Value) -> None:
        wide = addresses.view(f"u{bits // 8}").astype(I64)
        f.store(record.at(RECORD["addresses"]), wide, align=64)
        base = f.element(addresses, 0)
        f.store(record.at(RECORD["base"]), base.view(f"u{bits // 8}").astype(I64))
        pattern = addresses - base.broadcast()
        place = record.at(RECORD["pattern"])
        same = f.bits(pattern == f.load(place, dtype, vector=True, align=64)) == ALL
        with f.when(~same & (live == ALL)):
            f.store(place, pattern, align=64)
            f.invoke(Pointer(f, "@analyse_pattern"), None, core, record)
        f.ret()

    body.__name__ = f"record_{bits}"
    routine(None, record=PTR, live=U32, addresses=(dtype, True))(body)


_recorder(32)
_recorder(64)


@routine(U16, record=PTR, low=I64)
def sector_cost(f: Function, _core: Pointer, record: Pointer, low: Value) -> None:
    """Return the sectors of a pattern for lane 0 addresses that end in the bits `low`."""
    f.attributes = NOINLINE
    index = f.load(record.at(RECORD["index"]), I32, vector=True, align=64)
    keys = rules.sector(index + low.astype(I32))
    cost = distinct(f, keys, f.constant(ALL)).astype(U16)
    f.store(record.at(RECORD["cost"]).at(low * 2), cost)
    f.ret(cost)


@routine(U16, record=PTR, flavour=I64, low=I64, width=I64)
def wavefront_cost(
    f: Function, _core: Pointer, record: Pointer, flavour: Value, low: Value, width: Value
) -> None:
    """Return the wavefronts of a shared-memory pattern, and the ideal number of wavefronts in the
    upper byte."""
    f.attributes = NOINLINE
    index = f.load(record.at(RECORD["index"]), I32, vector=True, align=64)
    is_load = flavour & LOADS
    waves, ideal = wavefronts(f, index + low.astype(I32), f.constant(ALL), width, is_load)
    cost = (waves | ideal << 8).astype(U16)
    f.store(record.at(RECORD["cost"]).at((flavour + low) * 2), cost)
    f.ret(cost)
