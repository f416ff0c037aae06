"""Remove host code from a file written for nvcc, so that NVRTC can compile it.

NVRTC supports no host code: no cudaMalloc, no <<<…>>>, no iostream. In published files, the code it
cannot compile nearly always sets up and times a launch: functions, variables such as a stream or a
handle, classes, and aliases of host types.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

# Comments, literals and directives come first, so that braces in them are not counted.
_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<end>[^\s()\\]*)\(.*?\)(?P=end)\""""
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'"""
    r"""|^[ \t]*\#(?:\\\n|[^\n])*|[{};]""",
    re.DOTALL | re.MULTILINE,
)
# Text before a brace: _SCOPE opens further declarations, _CLASS a type, _VALUES a list of values.
_SCOPE = re.compile(r'\bnamespace\b|\bextern\s*"C"\s*$')
_CLASS = re.compile(r"\b(?:struct|class|union)\b[^()=]*$")
_VALUES = re.compile(r"\benum\b[^()]*$|=\s*$|\boperator\b[^()]*$")
_DEVICE = re.compile(r"\b__(?:global|device|constant|shared|managed)__")
# Macro calls, each on its own line, before a declaration; they may define kernels.
_MACROS = re.compile(
    r"(?:\s*\b[A-Z_][A-Z0-9_]*[ \t]*\((?:[^(){};]|\([^(){};]*\))*\)[ \t]*\n)+"
    r"(?=\s*(?!const\b|noexcept\b|try\b)[A-Za-z_])"
)
_CONTINUES = re.compile(r"\s*[,{]")  # after a closing brace among a constructor's initializers
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
    """A declaration outside braces, text[start:end].

    `head` is the text before the body; `body` is the (start, end) of a class body, else None.
    """

    start: int
    end: int
    head: str
    body: tuple[int, int] | None


def without_host_code(source: str, lines: Collection[int]) -> tuple[str, dict[str, int]]:
    """Remove the declarations on these lines from CUDA C++ text, unless marked as device code.

    A declaration is removed as a whole. Of a class, only member functions are removed if that is
    enough; otherwise the whole class, unless it contains device code. Lines count from 1; the
    remaining text keeps its line numbers. Returns the text and the names of what was removed, each
    with the first of the given lines that it covers.
    """
    parts, names, done = list[str](), dict[str, int](), 0  # source[:done] is in `parts`
    for removed in _removed(source, set(lines), 0, len(source), in_class=False):
        count = source.count("\n", removed.start, removed.end)
        parts += [source[done : removed.start], "\n" * count]
        hit = [line for line in _lines(source, removed) if line in lines]
        names.setdefault(_name(removed.head), min(hit))
        done = removed.end
    return "".join([*parts, source[done:]]), names


def _removed(
    source: str, lines: set[int], start: int, end: int, in_class: bool
) -> Iterator[_Declaration]:
    for found in _declarations(source, start, end):
        hit = lines.intersection(_lines(source, found))
        if not hit or _DEVICE.search(found.head):
            continue
        if in_class and ("(" not in found.head or _VIRTUAL.search(found.head)):
            continue  # removing a field or a virtual function would change the class's layout
        if found.body is None:
            yield found
            continue
        members = list(_removed(source, lines, *found.body, in_class=True))
        if members and hit <= {line for member in members for line in _lines(source, member)}:
            yield from members
        elif not _DEVICE.search(source[found.start : found.end]):
            yield found._replace(body=None)


def _lines(source: str, found: _Declaration) -> range:
    first = 1 + source.count("\n", 0, found.start)
    return range(first, first + source.count("\n", found.start, found.end) + 1)


def _name(head: str) -> str:
    """Return the name that a declaration declares, or the macro that it calls."""
    plain = head.strip()
    while (fewer := _BRACKETS.sub("", plain)) != plain:
        plain = fewer
    for pattern in _NAMES:
        if found := pattern.search(plain.strip()):
            return found[1].strip()
    return plain[:20]


def _declarations(source: str, start: int, end: int) -> Iterator[_Declaration]:
    """Yield the declarations of a file and its namespaces, or of a class body, in order.

    Their text begins without white space.
    """
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
                elif not (_VALUES.search(head) or body or _CONTINUES.match(source, token.end())):
                    yield declaration(token.end(), head)
                    start, head = token.end(), ""
            case ";" if not depth:
                if text := head or before.strip():
                    yield declaration(token.end(), text)
                start, head, body = token.end(), "", None
            case "}":  # closes a namespace
                start = token.end()
            case text if not depth and text.lstrip().startswith("#"):
                start = token.end()


def _blank(token: re.Match[str]) -> str:
    return " " if token[0][:2] in ("//", "/*") else token[0]
