"""SVG drawings of reductions and of transposes, from what the emulator recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from gemmlab.emulator.counters.rules import LANES
from gemmlab.lab.explain.passages import Passage
from gemmlab.lab.explain.reductions import Tree
from gemmlab.lab.explain.shuffles import ShuffleTree
from gemmlab.report.html.drawings import label, rect, shade, svg
from gemmlab.report.html.page import Cell, Part, inline

_WIDE = 640  # pixels of a tree
_STEP = 34  # pixels between its steps
_MOST_WARPS = 32
_SIDE = 168  # pixels of the longest side of a place


def tree(found: Tree, line: Cell) -> Part:
    """Draw the additions of each step: a line from each word to that which it is added to."""
    warps = 1 + max(a.thread // LANES for step in found.steps for a in step)
    scale = _WIDE / max(found.words - 1, 1)
    left, content = 44, []
    for number, step in enumerate(found.steps):
        y = 8 + number * _STEP
        content.append(label(0, y + 4, f"step {number}", kind="axis"))
        for a in step:
            words = f"step {number}: thread {a.thread} adds word {a.source} to word {a.target}"
            colour = shade(a.thread // LANES, warps)[:-1].replace("fill", "stroke")
            content.append(
                f'<path d="M{left + a.source * scale:.4g} {y}L{left + a.target * scale:.4g} '
                f'{y + _STEP}" {colour}" class="add" data-tip="{words}"/>'
            )
    count = sum(map(len, found.steps))
    caption = (
        f"{count:,} additions in {len(found.steps)} steps. From left to right: {found.words:,} "
        "words of shared memory; a line leads to the word that the value is added to. A colour is "
        "a warp."
    )
    data = {"words": found.words, "source": found.source} | {
        "steps": [[[a.thread, a.source, a.target] for a in step] for step in found.steps]
    }
    drawn = svg(left + _WIDE + 8, 16 + len(found.steps) * _STEP, caption, content)
    body = f'<div class="scroll">{drawn}</div><p class="at">{inline(line)}</p>'
    return Part("drawing", "The tree of additions", caption, data, body)


def workers(found: Tree) -> Part:
    """Draw how many lanes of each warp add at each step."""
    counts = [Counter(a.thread // LANES for a in step) for step in found.steps]
    warps = 1 + max(warp for count in counts for warp in count)
    shown, cell = min(warps, _MOST_WARPS), 19
    content = [label(50 + warp * cell, 9, str(warp), "middle", "axis") for warp in range(shown)]
    for number, count in enumerate(counts):
        y = 14 + number * cell
        content.append(label(0, y + 12, f"step {number}", kind="axis"))
        for warp in range(shown):
            lanes = count.get(warp, 0)
            heat = round(100 * lanes / LANES)
            style = f'style="fill:color-mix(in oklab, var(--c1) {heat}%, var(--soft))" rx="3"'
            content.append(
                rect(
                    41 + warp * cell,
                    y,
                    cell - 2,
                    cell - 2,
                    f"step {number}, warp {warp}: {lanes} of {LANES} lanes add",
                    style if lanes else 'class="empty" rx="3"',
                )
            )
            if lanes:
                ink = "lane" if heat > 50 else "count"
                content.append(label(49 + warp * cell, y + 12, str(lanes), "middle", ink))
    active = [len(count) for count in counts]
    caption = (
        "Lanes that add, per warp (columns) and step (rows). Warps with work: "
        f"{', '.join(map(str, active))}."
    )
    data = [{str(warp): lanes for warp, lanes in sorted(count.items())} for count in counts]
    drawn = svg(44 + shown * cell, 18 + len(counts) * cell, caption, content)
    return Part("drawing", "Who adds", caption, data, f'<div class="scroll">{drawn}</div>')


def shuffles(found: ShuffleTree, line: Cell) -> Part:
    """Draw the shuffles of a warp: a line from each lane to the lane that receives its value."""
    scale, left = _WIDE / LANES, 78
    places = [left + (lane + 0.5) * scale for lane in range(LANES)]
    content = [label(x, 10, str(lane), "middle", "axis") for lane, x in enumerate(places)]
    for number, one in enumerate(found.exchanges):
        y = 16 + number * _STEP
        content.append(label(0, y + _STEP / 2 + 4, f"distance {one.distance}", kind="axis"))
        for lane, giver in enumerate(one.givers):
            x = places[lane]
            kind = "add" if one.needed[lane] else "add unused"
            content.append(f'<path d="M{x:.4g} {y}V{y + _STEP}" class="{kind} kept"/>')
            if giver is None:
                continue
            words = f"step {number}: lane {lane} receives lane {giver}'s value; the result "
            words += f"combines {one.terms[lane]} lanes" if one.needed[lane] else "is unused"
            colour = shade(giver, LANES)[:-1].replace("fill", "stroke")
            content.append(
                f'<path d="M{places[giver]:.4g} {y}L{x:.4g} {y + _STEP}" {colour}" '
                f'class="{kind}" data-tip="{words}"/>'
            )
    last, bottom = found.exchanges[-1], 16 + len(found.exchanges) * _STEP
    content.append(label(0, bottom + 14, "values joined", kind="axis"))
    for lane, x in enumerate(places):
        if last.needed[lane]:
            content.append(label(x, bottom + 14, str(last.terms[lane]), "middle", "axis"))
    caption = (
        f"Lanes of a warp, from left to right. A line leads to the lane that receives the value "
        f"(shfl.{found.mode}) and joins it with its own ({found.operation}); faint: computed, but "
        f"not used. No shared memory, no barrier. Warps did this {found.executions:,} times"
        f"{f', in {found.copies} places' if found.copies > 1 else ''}."
    )
    drawn = svg(left + _WIDE, bottom + 20, caption, content)
    body = f'<div class="scroll">{drawn}</div><p class="at">{inline(line)}</p>'
    return Part("drawing", "The tree in registers", caption, asdict(found), body)


def transpose(found: Sequence[Passage], lines: Sequence[Cell]) -> Part:
    """Draw the cells that warp 0 accesses at once in each place, in the order of execution."""
    content, x, tall = [], 0.0, 0.0
    for number, passage in enumerate(found):
        rows, columns = passage.block
        scale = min(_SIDE / max(rows, columns), 8)
        title = f"{number + 1}. {passage.operation} {passage.place}"
        content.append(label(x, 12, title))
        size = f"{passage.place}: {rows}×{columns} of the first block"
        content.append(rect(x, 20, columns * scale, rows * scale, size, 'class="matrix"'))
        for lane, (row, column) in enumerate(passage.cells):
            content.append(
                rect(
                    x + column * scale,
                    20 + row * scale,
                    max(scale, 2.4),
                    max(scale, 2.4),
                    f"lane {lane}: row {row}, column {column}",
                    shade(lane, LANES),
                )
            )
        tall = max(tall, 20 + rows * scale)
        x += max(columns * scale, 6.2 * len(title)) + 20
    caption = (
        "What the 32 lanes of warp 0 access at once, one after the other. Shared memory has a "
        "column per bank: cells in one column are served one after the other."
    )
    data = [asdict(passage) for passage in found]
    places = " · ".join(f"{number}. {inline(line)}" for number, line in enumerate(lines, 1))
    drawn = svg(x, tall + 6, caption, content)
    body = f'<div class="scroll">{drawn}</div><p class="at">{places}</p>'
    return Part("drawing", "The transpose of a warp’s elements", caption, data, body)
