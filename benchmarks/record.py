"""A record: a JSON file that is complete after every measured row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gemmlab.errors import InputError

Row = dict[str, Any]


class Record:
    """A new record, or an existing one of the same GPU whose rows are replaced one by one."""

    def __init__(self, path: Path, head: Row, depth: int | None = None) -> None:
        """Raises InputError: the file is not a record, or one of another GPU."""
        self._path, self._depth = path, depth
        try:
            kept = json.loads(path.read_text()) if path.exists() else {}
        except ValueError as error:
            raise InputError(f"{path} is not JSON: {error}") from error
        if kept and kept.get("gpu") != head.get("gpu"):
            raise InputError(
                f"{path} is of {kept.get('gpu')}, this GPU is {head.get('gpu')}: name another file"
            )
        parts = {name: part for name, part in kept.items() if isinstance(part, dict | list)}
        self.data: Row = head | parts

    def add(self, part: str, row: Row, same: tuple[str, ...]) -> None:
        """Put a row in place of the one that agrees with it in `same`, or at the end."""
        rows = self.data.setdefault(part, [])
        for index, old in enumerate(rows):
            if all(old.get(name) == row[name] for name in same):
                rows[index] = row
                break
        else:
            rows.append(row)
        self._write()

    def put(self, part: str, case: str, value: Any) -> None:
        self.data.setdefault(part, {})[case] = value
        self._write()

    def _write(self) -> None:
        """Replace the file at once: an interruption leaves the old one or the new one."""
        new = self._path.with_name(f".{self._path.name}")
        new.write_text(text(self.data, self._depth) + "\n")
        new.replace(self._path)


def text(value: Any, depth: int | None = None) -> str:
    """JSON, of which the first `depth` levels are split into lines, or all."""
    if depth is None:
        return json.dumps(value, indent=1, ensure_ascii=False)
    return _split(value, depth, "")


def _split(value: Any, depth: int, margin: str) -> str:
    if depth == 0 or not isinstance(value, dict | list) or not value:
        return json.dumps(value, ensure_ascii=False)
    inner, (first, last) = margin + " ", "{}" if isinstance(value, dict) else "[]"
    if isinstance(value, dict):
        items = [
            f"{json.dumps(name, ensure_ascii=False)}: {_split(item, depth - 1, inner)}"
            for name, item in value.items()
        ]
    else:
        items = [_split(item, depth - 1, inner) for item in value]
    return f"{first}\n{inner}" + f",\n{inner}".join(items) + f"\n{margin}{last}"
