"""The timeline of a rung's copies, launches and host reads, drawn from its record.

explicit, 1.94ms, 40µs per column
  stream 0   ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓█░░░░░░░░░░░░░░░░░
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from gemmlab.core.figures import scaled, seconds
from gemmlab.lab.records import Json, Record

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
    """Draw the timeline of each record that has one, at most `width` columns wide.

    If an operation was not timed, list the operations and their bytes instead.
    """
    shown = [record for record in records if record.timeline]
    if not all(_ends(record) for record in shown):
        return [f"{record.rung}: {_moved(record)}" for record in shown]
    pictures = [line for record in shown for line in picture(record, width)]
    return [*pictures, LEGEND] if pictures else []


def picture(record: Record, width: int) -> list[str]:
    """Draw one timeline: the rung and its time, then one row per stream and one for the host."""
    timeline, end_ms = record.timeline or [], max(_ends(record))
    columns = max(width - len(_LABEL), 10)
    step = end_ms / columns
    rows = [f"{record.rung}, {seconds(end_ms / 1e3)}, {seconds(step / 1e3)} per column"]
    streams = {line["stream"] for line in timeline}
    for stream in sorted(streams, key=lambda stream: (stream is None, stream)):
        label = "  host" if stream is None else f"  stream {stream}"
        own = [line for line in timeline if line["stream"] == stream]
        rows.append(label.ljust(len(_LABEL)) + _bar(own, step, columns))
    return rows


def _bar(own: Sequence[Json], step: float, columns: int) -> str:
    """Draw one row. A column that is busy at least half of its time shows its longest operation.

    An operation too short to appear that way takes the column that has its largest share.
    """
    shares = [defaultdict[str, float](float) for _ in range(columns)]
    for line in own:
        first, last = (int(line[edge] / step) for edge in ("start_ms", "end_ms"))
        for column in range(first, min(last + 1, columns)):
            inside = min(line["end_ms"], (column + 1) * step) - max(line["start_ms"], column * step)
            shares[column][BLOCKS[line["name"]]] += max(inside, 0.0)
    bar = [
        max(share, key=share.__getitem__) if 2 * sum(share.values()) >= step else " "
        for share in shares
    ]
    for block in {BLOCKS[line["name"]] for line in own} - set(bar):
        took = [share[block] for share in shares]
        bar[took.index(max(took))] = block
    return "".join(bar).rstrip()


def _ends(record: Record) -> list[float]:
    """Return the end times of the operations in ms; an empty list if one was not timed."""
    ends = [line["end_ms"] for line in record.timeline or []]
    return [] if None in ends else ends


def _moved(record: Record) -> str:
    """List the operations by name, in order of first appearance, with their number and bytes."""
    timeline = record.timeline or []
    groups = []
    for name in dict.fromkeys(line["name"] for line in timeline):
        sizes = [line["bytes"] for line in timeline if line["name"] == name]
        moved = f" ({scaled(sum(sizes))}B)" if any(sizes) else ""
        groups.append(f"{len(sizes)} × {name}{moved}")
    return ", ".join(groups)
