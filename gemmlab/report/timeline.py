"""What the host's side of a kernel did, from records alone: a picture of its time, or its bytes.

explicit, 1.94 ms
  stream 0  ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓█░░░░░░░░░░░░░
"""

from __future__ import annotations

from collections.abc import Sequence

from gemmlab.records import Json, Record
from gemmlab.tables import scaled, seconds

# Painted in this order, so that the shortest, which is seldom seen, is painted last.
BLOCKS = {
    "copy in": "▓",
    "prefetch in": "▓",
    "copy out": "░",
    "prefetch out": "░",
    "host read": "▒",
    "kernel": "█",
}
LEGEND = "▓ to the device  █ kernel  ░ to the host  ▒ host reads"
_LABEL = "  stream 00  "


def lines(records: Sequence[Record], width: int) -> list[str]:
    """For all records with a time line, at most `width` columns: a picture of each on one scale
    where all were timed, else what each one moved.
    """
    told = [record for record in records if record.timeline]
    if not told:
        return []
    if not all(_ends(record) for record in told):
        return [f"{record.rung}: {_moved(record)}" for record in told]
    columns = max(width - len(_LABEL), 10)
    scale = columns / max(max(_ends(record)) for record in told)
    pictures = [line for record in told for line in picture(record, scale)]
    return [*pictures, f"{LEGEND}; one column is {seconds(1e-3 / scale)}"]


def picture(record: Record, scale: float) -> list[str]:
    """The rung and its time, then a row for each stream and the host, `scale` columns per ms."""
    rows = [f"{record.rung}, {seconds(max(_ends(record)) / 1e3)}"]
    timeline = record.timeline or []
    streams = dict.fromkeys(line["stream"] for line in timeline)
    for stream in sorted(streams, key=lambda stream: (stream is None, stream)):
        label = "  host" if stream is None else f"  stream {stream}"
        own = [line for line in timeline if line["stream"] == stream]
        rows.append(label.ljust(len(_LABEL)) + _bar(own, scale))
    return rows


def _bar(own: Sequence[Json], scale: float) -> str:
    """One row: a block where an operation was going on, at least one for each."""
    cells: dict[int, str] = {}
    for line in sorted(own, key=lambda line: list(BLOCKS).index(line["name"])):
        first, end = int(line["start_ms"] * scale), round(line["end_ms"] * scale)
        cells |= dict.fromkeys(range(first, max(end, first + 1)), BLOCKS[line["name"]])
    return "".join(cells.get(column, " ") for column in range(max(cells) + 1))


def _ends(record: Record) -> list[float]:
    """When operations ended, in ms; nothing where one was not timed."""
    ends = [line["end_ms"] for line in record.timeline or []]
    return [] if None in ends else ends


def _moved(record: Record) -> str:
    """Operations by name in the order of their first, how many, and their bytes."""
    timeline = record.timeline or []
    told = []
    for name in dict.fromkeys(line["name"] for line in timeline):
        sizes = [line["bytes"] for line in timeline if line["name"] == name]
        told.append(f"{len(sizes)} × {name}" + (f" ({scaled(sum(sizes))}B)" if any(sizes) else ""))
    return ", ".join(told)
