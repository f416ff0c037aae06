"""Code of the host in a file that nvcc would compile, taken out of NVRTC's way.

NVRTC knows no host: no cudaMalloc, no <<<…>>>, no iostream. What it cannot compile of a published
file is nearly always what sets up and times a launch: functions, variables such as a stream or a
handle, classes, aliases of the host's types.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

# What is no code is found first, so that a brace in it counts for nothing.
_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<end>[^\s()\\]*)\(.*?\)(?P=end)\""""
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'"""
    r"""|^[ \t]*\#(?:\\\n|[^\n])*|[{};]""",
    re.DOTALL | re.MULTILINE,
)
# What stands before a brace that holds more declarations, and before one of a type or of values.
_SCOPE = re.compile(r'\bnamespace\b|\bextern\s*"C"\s*$')
_CLASS = re.compile(r"\b(?:struct|class|union)\b[^()=]*$")
_VALUES = re.compile(r"\benum\b[^()]*$|=\s*$|\boperator\b[^()]*$")
_DEVICE = re.compile(r"\b__(?:global|device|constant|shared|managed)__")
# Calls of macros on lines of their own, which may define kernels, before a declaration.
_MACROS = re.compile(
    r"(?:\s*\b[A-Z_][A-Z0-9_]*[ \t]*\((?:[^(){};]|\([^(){};]*\))*\)[ \t]*\n)+"
    r"(?=\s*(?!const\b|noexcept\b|try\b)[A-Za-z_])"
)
_GOES_ON = re.compile(r"\s*[,{]")  # behind a brace among a constructor's initializers
_ACCESS = re.compile(r"\s*\b(?:public|private|protected)\s*:(?!:)")
_VIRTUAL = re.compile(r"\b(?:virtual|override|final)\b")
_BRACKETS = re.compile(r"<[^<>;{}]*>|\[[^\[\]]*\]|\bstd\s*::|\s+(?=\()")
_NAMES = (
    re.compile(r"\b(?:struct|class|union|enum)(?:\s+class)?\s+(\w+)[^()=]*$"),
    re.compile(r"(\boperator\s*(?:\(\)|[^\s\w(]+))\s*\("),
    re.compile(r"^[^(]*?([\w:]+)\s*=(?!=)"),
    re.compile(r"([\w:~]+)\s*\("),
    re.compile(r"([\w:]+)$"),
)


class _Declaration(NamedTuple):
    """A declaration outside of braces: text[start:end]; `head` ends where a body begins, `body` is
    that of a class."""

    start: int
    end: int
    head: str
    body: tuple[int, int] | None


def without_host_code(source: str, lines: Collection[int]) -> tuple[str, dict[str, int]]:
    """CUDA C++ text without what is on these lines and is not marked as the device's.

    A declaration goes as a whole; of a class, its member functions, and where that does not do,
    all of it, unless some of it is the device's. Lines count from 1, and those of the rest stay
    where they are. The names of what was left out come along, each with the first of its lines.
    """
    parts, names, kept = list[str](), dict[str, int](), 0  # `kept`: up to where all is decided
    for one in _left_out(source, set(lines), 0, len(source), in_class=False):
        count = source.count("\n", one.start, one.end)
        parts += [source[kept : one.start], "\n" * count]
        hit = [line for line in _lines(source, one) if line in lines]
        names.setdefault(_name(one.head), min(hit))
        kept = one.end
    return "".join([*parts, source[kept:]]), names


def _left_out(
    source: str, lines: set[int], start: int, end: int, in_class: bool
) -> Iterator[_Declaration]:
    for one in _declarations(source, start, end):
        hit = lines.intersection(_lines(source, one))
        if not hit or _DEVICE.search(one.head):
            continue
        if in_class and ("(" not in one.head or _VIRTUAL.search(one.head)):
            continue  # without a field or a virtual function the others would lie elsewhere
        if one.body is None:
            yield one
            continue
        members = list(_left_out(source, lines, *one.body, in_class=True))
        if members and hit <= {line for member in members for line in _lines(source, member)}:
            yield from members
        elif not _DEVICE.search(source[one.start : one.end]):
            yield one._replace(body=None)


def _lines(source: str, one: _Declaration) -> range:
    first = 1 + source.count("\n", 0, one.start)
    return range(first, first + source.count("\n", one.start, one.end) + 1)


def _name(head: str) -> str:
    """What a declaration declares; of a call of a macro, the macro."""
    plain = head.strip()
    while (fewer := _BRACKETS.sub("", plain)) != plain:
        plain = fewer
    for pattern in _NAMES:
        if found := pattern.search(plain.strip()):
            return found[1].strip()
    return plain[:20]


def _declarations(source: str, start: int, end: int) -> Iterator[_Declaration]:
    """Of the file and of its namespaces, or of a class, in order; without leading blanks."""
    depth, head, opened, body = 0, "", 0, None

    def declaration(at: int, head: str) -> _Declaration:
        skipped = _ACCESS.match(source, start) or _MACROS.match(source, start, at)
        first = skipped.end() if skipped else start
        first = at - len(source[first:at].lstrip())
        macros = _MACROS.match(head)
        return _Declaration(first, at, head[macros.end() :] if macros else head, body)

    for token in _TOKEN.finditer(source, start, end):
        before = _TOKEN.sub(_blank, source[start : token.start()]) if not depth else ""
        match token[0]:
            case "{" if not depth and _SCOPE.search(before):
                start = token.end()
            case "{":
                if not depth:
                    head, opened = head or before, token.end()
                depth += 1
            case "}" if depth:
                depth -= 1
                if depth:
                    continue
                if _CLASS.search(head) and body is None:
                    body = opened, token.start()
                elif not (_VALUES.search(head) or body or _GOES_ON.match(source, token.end())):
                    yield declaration(token.end(), head)
                    start, head = token.end(), ""
            case ";" if not depth:
                if text := head or before.strip():
                    yield declaration(token.end(), text)
                start, head, body = token.end(), "", None
            case "}":  # of a namespace
                start = token.end()
            case text if not depth and text.lstrip().startswith("#"):
                start = token.end()


def _blank(token: re.Match[str]) -> str:
    return " " if token[0][:2] in ("//", "/*") else token[0]
