"""What a measurement consists of, and how it fills its record."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu import Gpu
from benchmarks.record import Record, Row
from gemmlab.errors import UnknownNameError


@dataclass(frozen=True)
class Rows:
    """A part whose record is a list. A row replaces the one with the same values under `same`.

    If the rows are `named`, `measure` also takes a word, and measures those whose names contain it.
    """

    measure: Callable[..., Iterable[Row]]
    same: tuple[str, ...]
    named: bool = False


# A part whose record is an object: each value has a name, and can be measured alone.
Cases = Mapping[str, Callable[[Gpu], Any]]


@dataclass(frozen=True)
class Measurement:
    """The parts of a record, in the order in which they are measured."""

    parts: Mapping[str, Rows | Cases]
    head: Callable[[Gpu], Row] = lambda gpu: gpu.facts()  # what holds for the whole record
    # The pages in docs/ with tables of the record, by the names of their markers.
    pages: Mapping[str, Callable[[Row], Mapping[str, str]]] = field(default_factory=dict)
    depth: int | None = None  # levels of the record that are split into lines; None: all

    def run(self, target: Path, chosen: Sequence[str], gpu: Gpu) -> int:
        """Measure parts, or all, into a file, which is complete after each row.

        `chosen` has names of parts; `part:word` chooses the cases whose names contain the word.
        Returns the exit code. Raises UnknownNameError, InputError.
        """
        selection = [self._selected(choice) for choice in chosen or self.parts]
        record = Record(target, self.head(gpu), self.depth)
        for name, part in selection:
            for row in self._rows(record, name, part, gpu):
                print(f"{name}: {json.dumps(row, ensure_ascii=False)}", flush=True)
            gpu.release()
        return 0

    def _selected(self, choice: str) -> tuple[str, Rows | Cases]:
        name, _, word = choice.partition(":")
        part = check_name("part", name, self.parts)
        if not word:
            return name, part
        if isinstance(part, Rows) and part.named:
            return name, replace(part, measure=partial(part.measure, word=word))
        named = {} if isinstance(part, Rows) else {k: v for k, v in part.items() if word in k}
        if not named:
            raise UnknownNameError(f"part {name!r} has no case {word!r}")
        return name, named

    @staticmethod
    def _rows(record: Record, name: str, part: Rows | Cases, gpu: Gpu) -> Iterator[Any]:
        if isinstance(part, Rows):
            for row in part.measure(gpu):
                record.add(name, row, part.same)
                yield row
            return
        for case, measure in part.items():
            value = measure(gpu)
            record.put(name, case, value)
            yield {case: value}


def check_name(kind: str, name: str, known: Mapping[str, Any]) -> Any:
    """Return what has the name. Raises UnknownNameError."""
    if name not in known:
        raise UnknownNameError(f"no {kind} {name!r}; there are: {', '.join(known)}")
    return known[name]
