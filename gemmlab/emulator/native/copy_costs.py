"""The counting rules of cp.async for one warp, in IR."""

from __future__ import annotations

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.counters import rules
from gemmlab.emulator.counters.rules import BANKS, LINE_BYTES, SECTOR_BYTES, TAG_BANKS
from gemmlab.emulator.memory.arena import GLOBAL_BASE
from gemmlab.emulator.native.bounds import byte_of
from gemmlab.emulator.native.builder import Function, Variable
from gemmlab.emulator.native.costs import distinct, pieces_of, wavefronts
from gemmlab.emulator.native.layout import (
    COPY_RECORD,
    CORE,
    FLAVOUR,
    SITE,
    WIDTH,
)
from gemmlab.emulator.native.support import (
    PTR,
    count_lanes,
    first_lane,
    lane_offset,
    last_lane,
    number,
    routine,
)
from gemmlab.emulator.native.values import (
    ALL,
    I32,
    I64,
    NONE,
    U32,
    Pointer,
    Value,
    apply,
    where,
)

BYPASS = 1  # flavour of copies that bypass L1

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
            sectors = distinct(f, rules.sector(sources), reading)
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
    """Return the sectors of copies that bypass L1, cached by address pattern."""
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
        keys = rules.bypass_key(sources, targets)
        f.store(place, distinct(f, keys, _last_of_each(f, targets, lanes)))
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
    lines = rules.line(sources)
    banks = rules.tag_bank(lines).astype(I32)
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
    words = rules.words_per_lane(width)
    mask = np.int64(BANKS) // words - 1
    banks_at = [_spill(f, (pieces_of(x, words) & mask).astype(I32)) for x in (sources, targets)]
    loads = [f.reserve(f"<{BANKS} x i32>") for _ in banks_at]
    per_phase = np.uint32(WARP) // words.astype(U32)
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
