"""The comment at the top of a kernel file that says how to launch the kernel.

    //! gemmlab problem=gemm entry=sgemm args=a,b,c,m,n,k layout=row,col,col
    //! gemmlab block=16,16 grid=ceil_div(n,128),ceil_div(m,128)

In Python the marker is `#!` instead of `//!`. Several lines form one directive. For a kernel that
solves none of gemmlab's problems, the directive describes the arguments and defines the sizes:

    //! gemmlab args=x:f32[n],y:f32[n]=zeros,n,2.5 n=1000 block=256 grid=ceil_div(n,256)
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

import numpy as np

from gemmlab.core.expressions import evaluate
from gemmlab.errors import InputError, UnknownNameError

Dim3 = tuple[int, int, int]
TYPES = {f"f{bits}": np.dtype(f"f{bits // 8}") for bits in (16, 32, 64)}
TYPES |= {f"{p}{bits}": np.dtype(f"u{bits // 8}") for p in "ub" for bits in (8, 16, 32, 64)}
TYPES |= {f"{p}{bits}": np.dtype(f"i{bits // 8}") for p in "is" for bits in (8, 16, 32, 64)}

_MARK = re.compile(r"^\s*(?://|#)!\s*gemmlab\b(.*)$")
_COMMENT = re.compile(r"^\s*(//|#|\*|/\*|$)")
_NAME = re.compile(r"[A-Za-z_]\w*")
_LISTS = ("args", "layout", "block", "grid", "cluster", "multiple", "equal")


@dataclass(frozen=True)
class Directive:
    """The words of a directive, None or () if absent. Numbers are unevaluated expressions."""

    problem: str | None = None
    entry: str | None = None
    args: tuple[str, ...] = ()
    layout: tuple[str, ...] = ()
    block: tuple[str, ...] = ()
    grid: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()
    smem: str | None = None  # bytes of dynamic shared memory; default 0
    multiple: tuple[str, ...] = ()  # per axis: the kernel only accepts multiples of this number
    equal: tuple[str, ...] = ()  # axes: the kernel only accepts shapes in which they are equal
    # Initial contents of the output: "nan" (default), or "finite" if the kernel multiplies it by 0.
    output: str | None = None
    precision: str | None = None  # requested precision class; default ieee
    sizes: Mapping[str, str] = field(default_factory=dict)  # n=1000

    def __str__(self) -> str:
        """The words, as they are written: "grid=4 block=256 n=1000"."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "sizes"}
        texts = {
            name: ",".join(value) if isinstance(value, tuple) else value
            for name, value in given.items()
            if value
        }
        return " ".join(f"{name}={text}" for name, text in (texts | dict(self.sizes)).items())

    def names(self) -> set[str]:
        """Return all names that the expressions refer to."""
        texts = (
            self.smem or "",
            *self.sizes.values(),
            *(w for n in _LISTS for w in getattr(self, n)),
        )
        return {name for text in texts for name in _NAME.findall(text)}

    def overridden(self, other: Directive) -> Directive:
        """Return this directive with the words of `other` in place of its own."""
        given = {f.name: getattr(other, f.name) for f in fields(self)}
        changed = {name: value for name, value in given.items() if value not in (None, ())}
        return replace(self, **changed | {"sizes": {**self.sizes, **other.sizes}})


def read(text: str) -> Directive:
    """Read the directive in a file's leading comment; without one, return an empty directive.

    Raises InputError for a word that is repeated or is not of the form name=value, and
    UnknownNameError for a likely misspelling of a word.
    """
    words: list[str] = []
    for line in text.splitlines():
        if found := _MARK.match(line):
            words += split(found[1], " \t")
        elif not _COMMENT.match(line):
            break
    directive = parse(words)
    if directive.problem and directive.problem.endswith(".py"):
        # It would be executed, and the file may be a stranger's.
        raise InputError(
            f"problem={directive.problem}: a kernel's file gives a problem's name; its file is "
            "given on the command line"
        )
    return directive


def parse(words: list[str]) -> Directive:
    """Parse words such as "block=16,16". Raises as `read`."""
    plain = {f.name for f in fields(Directive)} - {"sizes"}
    given: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not value or not _NAME.fullmatch(name):
            raise InputError(f"{word!r} in a directive is not of the form name=value")
        if name in given:
            raise InputError(f"{name} is given twice in a directive")
        given[name] = value
    sizes = {name: value for name, value in given.items() if name not in plain}
    for name in sizes:
        if close := difflib.get_close_matches(name, plain, n=1, cutoff=0.7):
            raise UnknownNameError(
                f"unknown word {name!r} in a directive; did you mean {close[0]!r}?"
            )
    lists = {name: tuple(split(given[name], ",")) for name in _LISTS if name in given}
    if empty := [name for name, parts in lists.items() if not parts]:
        raise InputError(f"{empty[0]}={given[empty[0]]} in a directive has no value")
    texts = {name: given[name] for name in plain & given.keys() - set(_LISTS)}
    return Directive(**texts, **lists, sizes=sizes)  # type: ignore[arg-type]


def dims(words: tuple[str, ...], what: str, names: Mapping[str, int]) -> Dim3:
    """Evaluate one to three expressions as x, y, z; missing extents are 1.

    `what` names the directive's word in messages. Raises InputError or UnknownNameError.
    """
    if not 1 <= len(words) <= 3:
        given = ",".join(words) or "missing"
        raise InputError(f"{what} is {given}; it must have one to three numbers, x,y,z")
    x, y, z = (*(evaluate(word, names) for word in words), 1, 1)[:3]
    return x, y, z


def split(text: str, separators: str) -> list[str]:
    """Split at separators outside brackets. Raises InputError for unbalanced brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if depth < 0:
            break
        if character in separators and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    if depth:
        raise InputError(f"unbalanced brackets in {text.strip()!r}")
    return [part.strip() for part in parts if part.strip()]
