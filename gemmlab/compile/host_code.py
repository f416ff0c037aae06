"""Code of the host in a file that nvcc would compile, taken out of NVRTC's way.

NVRTC knows no host: no cudaMalloc, no <<<…>>>, no iostream. What it cannot compile of a published
file is nearly always a function that sets up and times a launch.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

# What is no code is found first, so that a brace in it counts for nothing.
_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'"""
    r"""|^[ \t]*\#(?:\\\n|[^\n])*|[{};]""",
    re.DOTALL | re.MULTILINE,
)
# What stands before a brace that holds more declarations, and before one of a type or of values.
_SCOPE = re.compile(r'\bnamespace\b|\bextern\s*"C"\s*$')
_TYPE = re.compile(r"\b(?:struct|class|union|enum)\b[^()]*$|=\s*$")
_FUNCTION = re.compile(r"([\w:~]+)\s*\(")
_DEVICE = re.compile(r"\b(?:__global__|__device__)\b")


class _Declaration(NamedTuple):
    """A declaration outside of braces: text[start:end]; `head` ends where a body begins."""

    start: int
    end: int
    head: str


def without_host_code(source: str, lines: Collection[int]) -> tuple[str, tuple[str, ...]]:
    """CUDA C++ text without the functions, neither `__global__` nor `__device__`, on these lines.

    Lines count from 1, and those of the rest stay where they are. The names of what was left out,
    definitions and declarations, come along.
    """
    parts, names, kept = [], [], 0  # `kept`: up to where the text is decided on
    for one in _declarations(source):
        name = _FUNCTION.search(one.head)
        # From where it is more than blank.
        start = one.end - len(source[one.start : one.end].lstrip())
        first = 1 + source.count("\n", 0, start)
        here = range(first, first + source.count("\n", start, one.end) + 1)
        if name and not _DEVICE.search(one.head) and not set(here).isdisjoint(lines):
            parts += [source[kept:start], "\n" * (len(here) - 1)]
            names.append(name[1])
            kept = one.end
    return "".join([*parts, source[kept:]]), tuple(dict.fromkeys(names))


def _declarations(source: str) -> Iterator[_Declaration]:
    """Of the file and of its namespaces, in order."""
    start, depth, head = 0, 0, ""
    for token in _TOKEN.finditer(source):
        before = _TOKEN.sub(_blank, source[start : token.start()]) if not depth else ""
        match token[0]:
            case "{" if not depth and _SCOPE.search(before):
                start = token.end()
            case "{":
                head = head if depth else before
                depth += 1
            case "}" if depth:
                depth -= 1
                if not depth and not _TYPE.search(head):
                    yield _Declaration(start, token.end(), head)
                    start = token.end()
            case ";" if not depth:
                yield _Declaration(start, token.end(), before)
                start = token.end()
            case "}":  # of a namespace
                start = token.end()
            case text if not depth and text.lstrip().startswith("#"):
                start = token.end()


def _blank(token: re.Match[str]) -> str:
    return " " if token[0][:2] in ("//", "/*") else token[0]
