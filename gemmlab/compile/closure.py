"""The text that a kernel is compiled from: its file and all gemmlab files that it imports."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]  # the package's folder


def closure(*files: Path) -> str:
    """Return the text of the files and of all gemmlab files they import, directly or indirectly.

    Paths of files in the package are relative to the package, so the text does not depend on where
    gemmlab is installed.
    """
    return "\0".join(f"{_name(file)}\0{text}" for file, text in _texts(files))


def members(*files: Path) -> list[str]:
    """Return the paths of the files whose texts `closure` returns."""
    return [_name(file) for file, _ in _texts(files)]


def _texts(files: Iterable[Path]) -> list[tuple[Path, str]]:
    texts: dict[Path, str] = {}
    pending = [file.resolve() for file in files]
    while pending:
        file = pending.pop()
        if file not in texts:
            texts[file] = file.read_text(encoding="utf-8")
            pending += _imported(texts[file])
    return sorted(texts.items())


@cache  # kernels have most of their files in common
def _imported(text: str) -> tuple[Path, ...]:
    """Return the gemmlab files that a file imports: for `from a import b` those of a and a.b."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return tuple(_files(names))


def _files(names: Iterable[str]) -> Iterator[Path]:
    for name in names:
        package, *parts = name.split(".")
        if package == ROOT.name and parts:
            place = ROOT.joinpath(*parts)
            yield from filter(Path.is_file, (place.with_suffix(".py"), place / "__init__.py"))


@cache
def _name(file: Path) -> str:
    return str(file.relative_to(ROOT) if file.is_relative_to(ROOT) else file)
