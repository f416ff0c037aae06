"""A kernel's lines with their costs, hottest first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

Counters = Mapping[str, int]

# Heading, and the value computed from a line's counters.
COLUMNS: tuple[tuple[str, Callable[[Counters], int]], ...] = (
    ("warp\ninstr.", lambda c: c["ptx_inst_executed.sum"]),
    ("lanes\non", lambda c: c["ptx_thread_inst_executed_pred_on.sum"]),
    ("diver-\ngences", lambda c: c["ptx_branch_divergent.sum"]),
    ("global\nsectors", lambda c: _sum(c, "l1tex__t_sectors_pipe_lsu_mem_global")),
    ("local\nsectors", lambda c: _sum(c, "l1tex__t_sectors_pipe_lsu_mem_local")),
    ("shared\nwavefr.", lambda c: c["l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"]),
    ("bank\nconflicts", lambda c: c["derived__memory_l1_wavefronts_shared_excessive"]),
)


@dataclass(frozen=True)
class Line:
    """One line of text. `place` is "file:12" or "12"; `costs` has one value per column."""

    place: str
    text: str
    costs: tuple[int, ...]


def ptx_lines(ptx: str, counted: Mapping[int, Counters]) -> list[Line]:
    """Return the executed lines of the PTX, hottest first. `counted`: counters by line number."""
    text = ptx.splitlines()
    return _hottest(Line(str(n), text[n - 1].strip(), _costs(c)) for n, c in counted.items())


def source_lines(counted: Mapping[str, Counters]) -> list[Line]:
    """Return the executed lines of the source, hottest first. `counted`: counters by "file:line".

    The text of a line is empty if its file no longer exists. Instructions that the compiler assigns
    to no line share one entry, "no line".
    """
    texts: dict[str, list[str]] = {}
    lines = []
    for at, counters in counted.items():
        file, _, number = at.rpartition(":")
        if file and file not in texts:
            path = Path(file)
            texts[file] = path.read_text(errors="replace").splitlines() if path.is_file() else []
        there = texts.get(file, [])
        text = there[int(number) - 1].strip() if file and int(number) <= len(there) else ""
        place = f"{Path(file).name}:{number}" if file else "no line"
        lines.append(Line(place, text, _costs(counters)))
    return _hottest(lines)


def table(lines: Sequence[Line], width: int) -> Table:
    """Return a table with one row per line and a column for each cost that is not always zero.

    The text takes the remaining width.
    """
    shown = [i for i in range(len(COLUMNS)) if any(line.costs[i] for line in lines)]
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold", width=width)
    for i in shown:
        made.add_column(COLUMNS[i][0], justify="right", no_wrap=True)
    made.add_column("line", no_wrap=True)
    made.add_column("text", no_wrap=True, overflow="ellipsis", ratio=1)
    for line in lines:
        costs = (f"{line.costs[i]:,}" if line.costs[i] else "" for i in shown)
        made.add_row(*costs, Text(line.place), Text(line.text))
    return made


def _costs(counters: Counters) -> tuple[int, ...]:
    return tuple(cost(counters) for _, cost in COLUMNS)


def _hottest(lines: Iterable[Line]) -> list[Line]:
    """Drop the lines that were not executed, and sort the others by `_heat`, highest first."""
    return sorted((x for x in lines if x.costs[0]), key=_heat, reverse=True)


def _heat(line: Line) -> int:
    """Estimate a line's cycles: one per instruction, per 4 sectors (128 bytes), per wavefront."""
    instructions, _, _, global_sectors, local_sectors, wavefronts, _ = line.costs
    return instructions + -(-(global_sectors + local_sectors) // 4) + wavefronts


def _sum(counters: Counters, prefix: str) -> int:
    return sum(value for name, value in counters.items() if name.startswith(prefix))
