"""SVG drawings of what the emulator recorded: accesses, tiles, and walks over matrices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

import numpy as np

from gemmlab.emulator.counters.rules import BANKS, LANES
from gemmlab.lab.explain.counted import DIGITS, NONE
from gemmlab.lab.explain.patterns import Pattern
from gemmlab.lab.explain.tiles import Box, Walk
from gemmlab.report import explanation_pictures
from gemmlab.report.explanation import headline
from gemmlab.report.explanation_pictures import SEVERAL
from gemmlab.report.html.page import Cell, Part, inline, text

CELL = 19  # pixels per 4-byte word
_GAP = 7  # between sectors
_ROWS = 12  # of a request's drawing
_SECTORS = 4  # per row: a line of 128 bytes
_LARGEST = 190  # pixels of the longest side of a matrix
_FINEST = 64  # rows and columns of a tile's drawing


def svg(width: float, height: float, words: str, content: Iterable[str]) -> str:
    """Return a drawing that shrinks with the page but is never larger than its size in pixels."""
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" style="width:{width:g}px" role="img" '
        f'aria-label="{text(words)}">{"".join(content)}</svg>'
    )


def rect(x: float, y: float, width: float, height: float, title: str, style: str) -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" {style} '
        f'data-tip="{text(title)}"/>'
    )


def label(x: float, y: float, words: str, anchor: str = "start", kind: str = "note") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{kind}">{text(words)}</text>'


def shade(number: int, count: int) -> str:
    """Return the style of the item `number` of `count`: a colour between two of the page's."""
    share = round(100 * number / max(count - 1, 1))
    return f'style="fill:color-mix(in oklab, var(--c3) {share}%, var(--c1))"'


# Accesses


def access(pattern: Pattern, line: Cell) -> Part:
    """Draw a request of warp 0: words in sectors, or in banks. `line`: that it belongs to."""
    draw = _banks if pattern.space == "shared" else _sectors
    where = f"{pattern.space} {pattern.operation} {pattern.target}".strip()
    body = f'<div class="scroll">{draw(pattern)}</div><p class="at">{inline(line)}</p>'
    caption = headline(pattern)
    return Part("drawing", where[0].upper() + where[1:], caption, asdict(pattern), body)


def _word(x: float, y: float, mark: str, where: str) -> list[str]:
    if mark == NONE:
        return [rect(x, y, CELL - 2, CELL - 2, f"{where}: not accessed", 'class="empty" rx="3"')]
    if mark == SEVERAL:
        title, style, name = f"{where}: several lanes", 'class="many"', "•"
    else:
        lane = DIGITS.index(mark)
        title, style, name = f"{where}: lane {lane}", shade(lane, LANES), str(lane)
    return [
        rect(x, y, CELL - 2, CELL - 2, title, f'{style} rx="3"'),
        label(x + CELL / 2 - 1, y + CELL / 2 + 3, name, "middle", "lane"),
    ]


def _sectors(pattern: Pattern) -> str:
    width = explanation_pictures.WORDS + 2
    lines = explanation_pictures.sector_lines(pattern, _SECTORS * width)
    sectors = [line[i : i + width] for line in lines for i in range(0, len(line), width)]
    shown = sectors[: _ROWS * _SECTORS]
    wide = explanation_pictures.WORDS * CELL + _GAP
    content = []
    for number, sector in enumerate(shown):
        row, column = divmod(number, _SECTORS)
        for word, mark in enumerate(sector[1:-1]):
            x, y = column * wide + word * CELL, row * (CELL + _GAP)
            content += _word(x, y, mark, f"sector {number}, bytes {4 * word} to {4 * word + 3}")
    rows = -(-len(shown) // _SECTORS)
    content += _more(len(sectors) - len(shown), "sectors", rows * (CELL + _GAP))
    height = rows * (CELL + _GAP) + (16 if len(sectors) > len(shown) else 0)
    return svg(min(len(shown), _SECTORS) * wide, height, headline(pattern), content)


def _banks(pattern: Pattern) -> str:
    lines = explanation_pictures.bank_lines(pattern)
    shown = lines[:_ROWS]
    content = [
        label(bank * CELL + CELL / 2 - 1, 9, str(bank), "middle", "axis") for bank in range(BANKS)
    ]
    for row, line in enumerate(shown):
        for bank, mark in enumerate(line):
            content += _word(bank * CELL, 14 + row * CELL, mark, f"wavefront {row}, bank {bank}")
    height = 14 + len(shown) * CELL
    content += _more(len(lines) - len(shown), "wavefronts", height)
    return svg(
        BANKS * CELL, height + (16 if len(lines) > len(shown) else 0), headline(pattern), content
    )


def _more(count: int, what: str, y: float) -> list[str]:
    return [label(0, y + 11, f"and {count} more {what}")] if count > 0 else []


# Tiles


def owners(writers: np.ndarray) -> Part:
    """Draw which warp writes each result of the first block, with thread 0's results outlined.

    writers: thread by element, -1 for none.
    """
    rows, columns = writers.shape
    down, right = -(-rows // _FINEST), -(-columns // _FINEST)
    cell = max(4, min(16, 384 // max(-(-rows // down), -(-columns // right))))
    warps = np.where(writers < 0, -1, writers // LANES)
    count = int(warps.max()) + 1
    content = []
    for box, warp in _merged(warps[::down, ::right]):
        where = _where(box, down, right, rows, columns)
        content.append(
            rect(
                box.first_column * cell,
                box.first_row * cell,
                (box.last_column - box.first_column + 1) * cell - 0.5,
                (box.last_row - box.first_row + 1) * cell - 0.5,
                f"warp {warp}: {where}" if warp >= 0 else f"no thread: {where}",
                shade(warp, count) if warp >= 0 else 'class="empty"',
            )
        )
    first = int(writers[writers >= 0].min())
    mine = [box for box, own in _merged((writers == first).astype(int)) if own]
    content += [
        rect(
            box.first_column * cell / right,
            box.first_row * cell / down,
            max((box.last_column - box.first_column + 1) * cell / right, 1.5),
            max((box.last_row - box.first_row + 1) * cell / down, 1.5),
            f"thread {first}: {_where(box, 1, 1, rows, columns)}",
            'class="mine"',
        )
        for box in mine
    ]
    width, height = -(-columns // right) * cell, -(-rows // down) * cell
    each = int((writers == first).sum())
    data = {
        "rows": rows,
        "columns": columns,
        "warps": count,
        f"elements of thread {first}": each,
        "warp by element": _digits(warps),
    }
    caption = (
        f"The first block's {rows}×{columns} results. A colour is a warp ({count} in all); the "
        f"outline shows the {each} result{'' if each == 1 else 's'} of thread {first}."
    )
    drawn = svg(width, height, caption, content)
    return Part("drawing", "Who writes which results", caption, data, drawn)


def lanes(writers: np.ndarray) -> Part | None:
    """Draw which lane of warp 0 writes each of the warp's results; None if they are too many."""
    mine = (writers >= 0) & (writers < LANES)
    rows, columns = np.nonzero(mine)
    top, left = int(rows.min()), int(columns.min())
    part = np.where(mine, writers, -1)[top : rows.max() + 1, left : columns.max() + 1]
    high, wide = part.shape
    if max(high, wide) > 4 * _FINEST:
        return None
    cell = max(3.0, min(16.0, 512 / max(high, wide)))
    content = []
    for box, lane in _merged(part):
        if lane < 0:
            continue
        x, y = box.first_column * cell, box.first_row * cell
        across = (box.last_column - box.first_column + 1) * cell
        down = (box.last_row - box.first_row + 1) * cell
        moved = Box(
            box.first_row + top,
            box.last_row + top,
            box.first_column + left,
            box.last_column + left,
        )
        where = _where(moved, 1, 1, *writers.shape)
        size = (across - 0.8, down - 0.8)
        content.append(rect(x, y, *size, f"lane {lane}: {where}", shade(lane, LANES)))
        if min(across, down) >= 12:
            content.append(label(x + across / 2, y + down / 2 + 3, str(lane), "middle", "lane"))
    each = int((part == part[part >= 0].min()).sum())
    caption = (
        f"Warp 0's results, within {high}×{wide} of the block's, by lane: {each} per lane. A "
        "rectangle is a part of a thread's tile that is contiguous."
    )
    data = {"first row": top, "first column": left, "lane by element": _digits(part)}
    drawn = f'<div class="scroll">{svg(wide * cell, high * cell, caption, content)}</div>'
    return Part("drawing", "The threads of warp 0", caption, data, drawn)


def _digits(numbers: np.ndarray) -> list[str]:
    return ["".join(DIGITS[n] if n >= 0 else NONE for n in row) for row in numbers]


def _where(box: Box, down: int, right: int, rows: int, columns: int) -> str:
    last_row = min((box.last_row + 1) * down, rows) - 1
    last_column = min((box.last_column + 1) * right, columns) - 1
    return (
        f"rows {box.first_row * down} to {last_row}, "
        f"columns {box.first_column * right} to {last_column}"
    )


def _merged(values: np.ndarray) -> list[tuple[Box, int]]:
    """Cover a matrix with rectangles of equal values: runs of a row, joined with those above."""
    open_runs: dict[tuple[int, int, int], Box] = {}
    done: list[tuple[Box, int]] = []
    for number, row in enumerate(values):
        ends = np.flatnonzero(np.diff(row)) + 1
        runs = {
            (int(start), int(stop) - 1, int(row[start]))
            for start, stop in zip([0, *ends], [*ends, len(row)], strict=True)
        }
        ended = [key for key in open_runs if key not in runs]
        done += [(open_runs.pop(key), key[2]) for key in ended]
        for key in runs:
            top = open_runs[key].first_row if key in open_runs else number
            open_runs[key] = Box(top, number, key[0], key[1])
    return done + [(box, key[2]) for key, box in open_runs.items()]


# The walk over K


def walk(found: Sequence[Walk], tile: tuple[int, int], block: str) -> Part:
    """Draw the first block's walk over A (left) and B (above), with its tile of C in the corner.

    tile: rows and columns of the first block's results.
    """
    a, b = found
    scale = _LARGEST / max(a.rows, a.columns, b.columns)
    left, top = a.columns * scale + 26, b.rows * scale + 26
    places = {"a": (8.0, top + 8), "b": (left + 8, 8.0)}
    content = []
    for matrix in found:
        x, y = places[matrix.matrix]
        size = f"{matrix.matrix.upper()}, {matrix.rows}×{matrix.columns}"
        content.append(
            rect(x, y, matrix.columns * scale, matrix.rows * scale, size, 'class="matrix"')
        )
        count = len(matrix.steps)
        for number, box in enumerate(matrix.steps):
            words = (
                f"{matrix.matrix.upper()}, step {number}: rows {box.first_row} to {box.last_row}, "
                f"columns {box.first_column} to {box.last_column}"
            )
            content.append(
                rect(
                    x + box.first_column * scale,
                    y + box.first_row * scale,
                    max((box.last_column - box.first_column + 1) * scale - 0.5, 0.8),
                    max((box.last_row - box.first_row + 1) * scale - 0.5, 0.8),
                    words,
                    f'{shade(number, count)[:-1]};--step:{number};--steps:{count}" class="step"',
                )
            )
        content.append(label(x + 3, y + matrix.rows * scale + 12, size))
    x, y = left + 8, top + 8
    whole = f"C, {a.rows}×{b.columns}"
    content.append(rect(x, y, b.columns * scale, a.rows * scale, whole, 'class="matrix"'))
    words = f"C: {tile[0]}×{tile[1]} results of the first block"
    content.append(rect(x, y, tile[1] * scale, tile[0] * scale, words, 'class="own"'))
    content.append(label(x + 3, y + a.rows * scale + 12, whole))
    first = a.steps[0]
    deep = first.last_column - first.first_column + 1
    caption = (
        f"{block} loads of A and B from global memory, in the order recorded; the first "
        f"{len(a.steps)} steps. A step is {first.last_row - first.first_row + 1}×{deep} "
        f"elements of A. Outlined in C: the block's results."
    )
    drawn = svg(left + b.columns * scale + 16, top + a.rows * scale + 26, caption, content)
    return Part("drawing", "The walk over K", caption, [asdict(one) for one in found], drawn)
