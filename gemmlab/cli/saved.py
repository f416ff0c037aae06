"""Records of climb and of bench, read from files that may hold either."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gemmlab.errors import InputError

if TYPE_CHECKING:
    from gemmlab.lab.bench.record import Record as Benched
    from gemmlab.lab.records import Record as Climbed


@dataclass(frozen=True)
class Saved:
    """The records of a file or a folder; one of the lists is empty."""

    climbed: list[Climbed]
    benched: list[Benched]


def read(path: Path) -> Saved:
    """Read all records of a file or a folder.

    Raises InputError for a source that cannot be read, or with records of both kinds.
    """
    from gemmlab.lab import records
    from gemmlab.lab.bench import record

    found = records.entries(path)
    kinds = {"rung" in entry for entry in found if isinstance(entry, dict)} or {False}
    if len(kinds) > 1:
        raise InputError(f"{path} contains records of both climb and bench: name a single file")
    if kinds.pop():
        return Saved(records.decoded(records.Record, found, path), [])
    return Saved([], records.decoded(record.Record, found, path))


def read_two(before: Path, after: Path) -> tuple[Saved, Saved]:
    """Read two sources of the same kind. Raises InputError as `read` does, or for two kinds."""
    old, new = read(before), read(after)
    if bool(old.climbed) != bool(new.climbed):
        climb, bench = (before, after) if old.climbed else (after, before)
        raise InputError(
            f"cannot compare records of climb ({climb}) with records of bench ({bench})"
        )
    return old, new
