"""Memory accesses. The fast path serves 32 active lanes whose address pattern is known. The general
path serves any lanes and addresses; bounds.py translates its addresses to pointers.

Elements pass through the core's `data` field: the first element of every lane, then the second of
every lane, and so on.
"""

from __future__ import annotations

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.memory.addresses import excess_bits
from gemmlab.emulator.native.bounds import byte_of
from gemmlab.emulator.native.builder import Function, Variable
from gemmlab.emulator.native.layout import CORE, COUNT, FLAVOUR, RECORD, SITE, SIZE, WIDTH
from gemmlab.emulator.native.support import PTR, call, first_lane, gather, number, routine, scatter
from gemmlab.emulator.native.transposes import rows_of
from gemmlab.emulator.native.values import (
    ALL,
    BOOL,
    I32,
    I64,
    LOWER_HALF,
    U16,
    U32,
    Pointer,
    Value,
    where,
)

# Elements


def _move(nbytes: int, is_load: bool) -> None:
    dtype = np.dtype(f"u{nbytes}")

    def body(f: Function, core: Pointer, lanes: Value, count: Value) -> None:
        left = Variable(f, lanes)
        with f.loop(lambda: left.value != 0):
            lane = first_lane(left.value).astype(I64)
            left.value = left.value & (left.value - np.uint32(1))
            place = f.load_pointer(core.at(CORE["pointers"]).at(lane * 8))
            item = core.at(CORE["data"]).at(lane * nbytes)
            k = Variable(f, number(f, 0))
            with f.loop(lambda: k.value < count):
                there, here = place.at(k.value * nbytes), item.at(k.value * (WARP * nbytes))
                if is_load:
                    f.store(here, f.load(there, dtype))
                else:
                    f.store(there, f.load(here, dtype))
                k.value = k.value + 1
        f.ret()

    body.__name__ = f"{'load' if is_load else 'store'}_lanes_{nbytes}"
    routine(lanes=U32, count=I64)(body)


for _nbytes in (1, 2, 4, 8):
    _move(_nbytes, True)
    _move(_nbytes, False)


# Complete accesses

ACCESS = dict(site=PTR, record=PTR, offset=I64, lanes=U32, shape=I64)


def _find_words(f: Function, core: Pointer, record: Pointer, offset: Value, wrap: Value) -> None:
    """Store the lanes' addresses to `words`: the recorded register values plus `offset`."""
    words = f.load(record.at(RECORD["addresses"]), I64, vector=True, align=64)
    f.store(core.at(CORE["words"]), (words + offset) & wrap, align=64)


def _inside(
    f: Function,
    core: Pointer,
    site: Pointer,
    record: Pointer,
    base: Value,
    width: Value,
    space: str,
) -> Value:
    """Return whether the pattern is aligned and lies within shared memory or the site's last
    allocation."""
    low, high, bits = (f.load(record.at(RECORD[x]), I64) for x in ("lowest", "highest", "low_bits"))
    if space == "shared":
        least, most = number(f, 0), f.load(core.at(CORE["shared_bytes"]), I64)
    else:
        least, most = (f.load(site.at(SITE[x]), I64) for x in ("low", "high"))
    inside = (base + low >= least) & (base + high + width <= most)
    aligned: Value = inside & (excess_bits(base | bits, width) == 0)
    return aligned


def _count_short(
    f: Function,
    core: Pointer,
    site: Pointer,
    record: Pointer,
    base: Value,
    shape: Value,
    space: str,
) -> None:
    cost = _cost(f, core, record, base, shape, space)
    f.increment(site.at(SITE["full"]), number(f, 1))
    if space == "shared":
        f.increment(site.at(SITE["ideal"]), cost >> 8)
        cost = cost & 255
    f.increment(site.at(SITE["cost"]), cost)


def _cost(
    f: Function, core: Pointer, record: Pointer, base: Value, shape: Value, space: str
) -> Value:
    """Return the cost of a pattern. It is computed on first use and cached in the record."""
    if space == "shared":
        low, flavour = base & 3, byte_of(shape, FLAVOUR)
        place = record.at(RECORD["cost"]).at((low + flavour) * 2)
    else:
        low = base & 31
        place = record.at(RECORD["cost"]).at(low * 2)
    cost = Variable(f, f.load(place, U16))
    with f.when(cost.value == np.uint16(0)):
        if space == "shared":
            cost.value = call(
                f, core, "wavefront_cost", record, flavour, low, byte_of(shape, WIDTH)
            )
        else:
            cost.value = call(f, core, "sector_cost", record, low)
    return cost.value.astype(I64)


def _access(space: str, is_load: bool) -> None:
    """Define a load or store. It takes the fast path if all lanes are active and the pattern is in
    bounds, otherwise the general path."""
    memory = "shared" if space == "shared" else "arena"
    has_short_way = space in ("global", "shared", "generic")
    move = "load" if is_load else "store"

    def body(
        f: Function,
        core: Pointer,
        site: Pointer,
        record: Pointer,
        offset: Value,
        lanes: Value,
        shape: Value,
    ) -> None:
        wrap = f.load(record.at(RECORD["wrap"]), I64)
        if has_short_way:
            with f.when(lanes == ALL):
                base = (f.load(record.at(RECORD["base"]), I64) + offset) & wrap
                with f.when(_inside(f, core, site, record, base, byte_of(shape, WIDTH), space)):
                    _count_short(f, core, site, record, base, shape, space)
                    place = f.load_pointer(core.at(CORE[memory])).at(base)
                    call(f, core, f"{move}_pattern", place, record, shape)
                    f.ret(f.constant(np.bool_(True)))
        _find_words(f, core, record, offset, wrap)
        if is_load:  # inactive lanes load zero, as on the NumPy tier
            f.clear(core.at(CORE["data"]), byte_of(shape, WIDTH) * WARP)
        with f.when(lanes == 0):
            f.ret(f.constant(np.bool_(True)))
        good = call(f, core, f"check_{space}", site, lanes, shape)
        with f.when(good):
            call(f, core, f"{move}_lanes", lanes, shape)
        f.ret(good)

    body.__name__ = f"{move}_{space}"
    routine(BOOL, **ACCESS)(body)


def _touch(space: str) -> None:
    """Define the part of an atomic operation that precedes the update: check and count."""

    def body(
        f: Function,
        core: Pointer,
        site: Pointer,
        record: Pointer,
        offset: Value,
        lanes: Value,
        shape: Value,
    ) -> None:
        _find_words(f, core, record, offset, f.load(record.at(RECORD["wrap"]), I64))
        with f.when(lanes == 0):
            f.ret(f.constant(np.bool_(True)))
        f.ret(call(f, core, f"check_{space}", site, lanes, shape))

    body.__name__ = f"touch_{space}"
    routine(BOOL, **ACCESS)(body)


def _halves(
    f: Function, data: Pointer, where_: Pointer, record: Pointer, dtype: np.dtype, is_load: bool
) -> None:
    """Access elements that are contiguous, or for loads equal, within each half warp, and return
    from the routine. This is faster than a gather or a scatter."""
    nbytes, span = dtype.itemsize, f.load(record.at(RECORD["half_span"]), I64)
    upper = where_.at(f.load(record.at(RECORD["index"] + 4 * (WARP // 2)), I32))
    with f.when(span == nbytes):
        kind = f"<{WARP // 2} x i{8 * nbytes}>"
        for there, here in ((where_, data), (upper, data.at(nbytes * WARP // 2))):
            source, target = (there, here) if is_load else (here, there)
            half = f.assign(f"load {kind}, ptr {source.name}, align {nbytes}")
            f.do(f"store {kind} {half}, ptr {target.name}, align {nbytes}")
        f.ret()
    if is_load:
        with f.when(span == 0):
            both = [f.load(x, dtype).broadcast() for x in (where_, upper)]
            f.store(data, where(f.lanes(f.constant(LOWER_HALF)), *both), align=WARP * nbytes)
            f.ret()


def _pattern(is_load: bool) -> None:
    """Define loads or stores of all 32 lanes whose address pattern is in a record."""

    def body(f: Function, core: Pointer, where_: Pointer, record: Pointer, shape: Value) -> None:
        span = f.load(record.at(RECORD["span"]), I64)
        size, count = byte_of(shape, SIZE), byte_of(shape, COUNT)
        data = core.at(CORE["data"])
        with f.when((size == 4) & (count == 4)):
            call(f, core, "gather_4x4" if is_load else "scatter_4x4", where_, record)
            f.ret()
        for nbytes in (1, 2, 4, 8):
            dtype = np.dtype(f"u{nbytes}")
            with f.when((size == nbytes) & (count == 1)):
                with f.when(span == nbytes):
                    if is_load:
                        f.store(data, f.load(where_, dtype, True), align=32 * nbytes)
                    else:
                        f.store(where_, f.load(data, dtype, True, align=32 * nbytes))
                    f.ret()
                if is_load:
                    with f.when(span == 0):
                        f.store(data, f.load(where_, dtype).broadcast(), align=32 * nbytes)
                        f.ret()
                if nbytes >= 4:
                    _halves(f, data, where_, record, dtype, is_load)
                    index = f.load(record.at(RECORD["index"]), I32, True, align=64)
                    if is_load:
                        f.store(data, gather(where_, index, dtype), align=32 * nbytes)
                    else:
                        scatter(where_, index, f.load(data, dtype, True, align=32 * nbytes))
                    f.ret()
        index = f.load(record.at(RECORD["index"]), I32, True, align=64)
        start = Value(f, f.assign(f"ptrtoint ptr {where_.name} to i64"), I64, False)
        f.store(core.at(CORE["pointers"]), index.astype(I64) + start, align=64)
        call(f, core, "load_lanes" if is_load else "store_lanes", f.constant(ALL), shape)
        f.ret()

    body.__name__ = "load_pattern" if is_load else "store_pattern"
    routine(None, where=PTR, record=PTR, shape=I64)(body)


def _lanes(is_load: bool) -> None:
    """Define loads or stores of any lanes at any addresses."""
    move = "load" if is_load else "store"

    def body(f: Function, core: Pointer, lanes: Value, shape: Value) -> None:
        for nbytes in (1, 2, 4, 8):
            with f.when(byte_of(shape, SIZE) == nbytes):
                call(f, core, f"{move}_lanes_{nbytes}", lanes, byte_of(shape, COUNT))
        f.ret()

    body.__name__ = f"{move}_lanes"
    routine(None, lanes=U32, shape=I64)(body)


for _is_load in (True, False):
    _pattern(_is_load)
    _lanes(_is_load)
    for _space in ("global", "shared", "local", "param", "generic"):
        _access(_space, _is_load)
for _space in ("global", "shared", "generic"):
    _touch(_space)


# Matrix rows: 16 bytes per lane, contiguous in `data`


def _row_at(f: Function, there: Pointer, here: Pointer, is_load: bool) -> None:
    source, target = (there, here) if is_load else (here, there)
    row = f.assign(f"load <4 x i32>, ptr {source.name}, align 16")
    f.do(f"store <4 x i32> {row}, ptr {target.name}, align 16")


def _matrix_rows(is_load: bool) -> None:
    """Define the accesses of ldmatrix or stmatrix, in which lanes address rows in shared memory."""

    def body(
        f: Function,
        core: Pointer,
        site: Pointer,
        record: Pointer,
        offset: Value,
        lanes: Value,
        shape: Value,
    ) -> None:
        wrap, data = f.load(record.at(RECORD["wrap"]), I64), core.at(CORE["data"])
        with f.when(lanes == ALL):
            base = (f.load(record.at(RECORD["base"]), I64) + offset) & wrap
            with f.when(_inside(f, core, site, record, base, byte_of(shape, WIDTH), "shared")):
                _count_short(f, core, site, record, base, shape, "shared")
                place = f.load_pointer(core.at(CORE["shared"])).at(base)
                for k, row in enumerate(rows_of(f, place, record)):
                    _row_at(f, row, data.at(16 * k), is_load)
                f.ret(f.constant(np.bool_(True)))
        with f.when(lanes == 0):
            f.ret(f.constant(np.bool_(True)))
        _find_words(f, core, record, offset, wrap)
        good = call(f, core, "check_shared", site, lanes, shape)
        with f.when(good):
            left = Variable(f, lanes)
            with f.loop(lambda: left.value != 0):
                lane = first_lane(left.value).astype(I64)
                left.value = left.value & (left.value - np.uint32(1))
                row = f.load_pointer(core.at(CORE["pointers"]).at(lane * 8))
                _row_at(f, row, data.at(lane * 16), is_load)
        f.ret(good)

    body.__name__ = f"{'load' if is_load else 'store'}_rows"
    routine(BOOL, **ACCESS)(body)


for _is_load in (True, False):
    _matrix_rows(_is_load)
