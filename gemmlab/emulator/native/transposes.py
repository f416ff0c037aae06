"""Loads and stores of four words per lane: a 32×4 matrix in memory, its transpose in registers."""

from __future__ import annotations

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.native.builder import Function
from gemmlab.emulator.native.layout import CORE, RECORD
from gemmlab.emulator.native.support import PTR, routine
from gemmlab.emulator.native.values import (
    I32,
    Pointer,
)


def rows_of(f: Function, where_: Pointer, record: Pointer) -> list[Pointer]:
    """Return a pointer to each lane's elements."""
    index = record.at(RECORD["index"])
    return [where_.at(f.load(index.at(4 * lane), I32)) for lane in range(WARP)]


def _join(f: Function, a: str, b: str, n: int, order: list[int]) -> str:
    mask = ", ".join(f"i32 {i}" for i in order)
    return f.assign(
        f"shufflevector <{n} x i32> {a}, <{n} x i32> {b}, <{len(order)} x i32> <{mask}>"
    )


# Shuffle masks for two registers a and b of 16 words. In each group of four words, LOW interleaves
# words 0 and 1 of a and b, and HIGH words 2 and 3.
LOW = [x for q in range(4) for x in (4 * q, 16 + 4 * q, 4 * q + 1, 17 + 4 * q)]
HIGH = [x + 2 for x in LOW]
# The same for pairs of words: LOW_PAIRS takes words 0-1 of a, then of b; HIGH_PAIRS words 2-3.
LOW_PAIRS = [x for q in range(4) for x in (4 * q, 4 * q + 1, 16 + 4 * q, 17 + 4 * q)]
HIGH_PAIRS = [x + 2 for x in LOW_PAIRS]


@routine(where=PTR, record=PTR)
def gather_4x4(f: Function, core: Pointer, where_: Pointer, record: Pointer) -> None:
    """Load four words per lane, a 32×4 matrix, and store its transpose to `data`."""
    rows = [f.assign(f"load <4 x i32>, ptr {p.name}, align 16") for p in rows_of(f, where_, record)]
    for half in (0, 16):
        # Register j holds the rows of lanes j, j+4, j+8 and j+12, so transposing each group of four
        # words puts the lanes in order.
        registers = []
        for j in range(4):
            row = [rows[half + j + 4 * q] for q in range(4)]
            pairs = [_join(f, row[i], row[i + 1], 4, list(range(8))) for i in (0, 2)]
            registers.append(_join(f, pairs[0], pairs[1], 8, list(range(16))))
        a, b, c, d = registers
        low, high = _join(f, a, b, 16, LOW), _join(f, a, b, 16, HIGH)
        low2, high2 = _join(f, c, d, 16, LOW), _join(f, c, d, 16, HIGH)
        columns = [
            _join(f, x, y, 16, order)
            for x, y in ((low, low2), (high, high2))
            for order in (LOW_PAIRS, HIGH_PAIRS)
        ]
        for k, column in enumerate(columns):
            place = core.at(CORE["data"] + 4 * (WARP * k + half))
            f.do(f"store <16 x i32> {column}, ptr {place.name}, align 64")
    f.ret()


@routine(where=PTR, record=PTR)
def scatter_4x4(f: Function, core: Pointer, where_: Pointer, record: Pointer) -> None:
    """Store the transpose of `data`: four words per lane. Lanes store in ascending order, so at
    equal addresses the highest lane wins."""
    places = rows_of(f, where_, record)
    rows: dict[int, str] = {}
    for half in (0, 16):
        columns = []
        for k in range(4):
            place = core.at(CORE["data"] + 4 * (WARP * k + half))
            columns.append(f.assign(f"load <16 x i32>, ptr {place.name}, align 64"))
        for first, order in ((0, LOW), (2, HIGH)):
            a, b = (_join(f, columns[i], columns[i + 1], 16, order) for i in (0, 2))
            for j, pairs in ((first, LOW_PAIRS), (first + 1, HIGH_PAIRS)):
                register = _join(f, a, b, 16, pairs)
                for q in range(4):
                    order4 = list(range(4 * q, 4 * q + 4))
                    rows[half + j + 4 * q] = _join(f, register, "poison", 16, order4)
    for lane, place in enumerate(places):
        f.do(f"store <4 x i32> {rows[lane]}, ptr {place.name}, align 16")
    f.ret()
