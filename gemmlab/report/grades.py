"""Grades as rows: for a table, for a spreadsheet, and back."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from gemmlab.core.figures import seconds
from gemmlab.errors import InputError
from gemmlab.lab.classroom.grades import Grade, Place

HEADINGS = ["place", "file", "verdict", "score", "uncapped", "time", "class", "why, or next"]
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")  # spreadsheets execute texts that begin so
_NAMES = [field.name for field in fields(Grade)]
_ADDED = ("place", "capped", "note")


def cells(place: Place) -> list[str]:
    """Return a place's row of a table."""
    grade = place.grade
    failed = f"{grade.step}: {grade.reason}" if grade.step else grade.reason
    hints = [place.note, grade.advice if grade.passed else failed]
    return [
        "–" if place.number is None else str(place.number),
        grade.file,
        grade.verdict,
        "–" if grade.capped is None else f"{grade.capped:.1f}",
        "–" if grade.score is None else f"{grade.score:.1f}",
        "–" if grade.time_s is None else seconds(grade.time_s),
        grade.precision or "–",
        " ".join("; ".join(filter(None, hints)).split())[:200],
    ]


def spreadsheet(places: Iterable[Place]) -> str:
    """Return the places as CSV. A text that a spreadsheet would execute is quoted by '."""
    made = io.StringIO()
    writer = csv.writer(made, lineterminator="\n")
    writer.writerow([*_ADDED, *_NAMES])
    for place in places:
        own = [place.number, place.grade.capped, place.note]
        values = [*own, *(getattr(place.grade, name) for name in _NAMES)]
        writer.writerow([_safe(value) for value in values])
    return made.getvalue()


def read(file: Path) -> dict[str, Grade]:
    """Return the grades of a file that `spreadsheet` made, by the submissions' names; none without
    a file. Raises InputError if it is another one."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}") from error
    rows = csv.DictReader(io.StringIO(text))
    if rows.fieldnames != [*_ADDED, *_NAMES]:
        raise InputError(f"{file} is not a file of grades of this version; choose another name")
    try:
        return {grade.file: grade for grade in map(_grade, rows)}
    except (ValueError, TypeError) as error:
        raise InputError(f"{file} is damaged: {error}") from error


def _grade(row: dict[str, Any]) -> Grade:
    values: dict[str, Any] = {}
    for field in fields(Grade):
        text = row[field.name]
        if field.type == "str":
            values[field.name] = text[1:] if text.startswith("'") else text
        elif field.type == "int":
            values[field.name] = int(text)
        else:
            values[field.name] = float(text) if text else None
    return Grade(**values)


def _safe(value: Any) -> Any:
    """Return a cell's value: no formula, no character that CSV cannot hold."""
    if not isinstance(value, str):
        return value
    plain = value.replace("\0", "�")
    return f"'{plain}" if plain.startswith(_FORMULA) else plain
