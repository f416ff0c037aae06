"""The comment at the top of a kernel's file that says how to call it.

    //! gemmlab problem=gemm entry=sgemm args=a,b,c,m,n,k layout=row,col,col
    //! gemmlab block=16,16 grid=ceil_div(n,128),ceil_div(m,128)

`#!` does for `//!` in Python. Several such lines are one. A kernel of no known problem describes
its own arguments, and gives sizes to the names it uses:

    //! gemmlab args=x:f32[n],y:f32[n]=zeros,n,2.5 n=1000 block=256 grid=ceil_div(n,256)
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from gemmlab.errors import InputError, UnknownNameError

_MARK = re.compile(r"^\s*(?://|#)!\s*gemmlab\b(.*)$")
_COMMENT = re.compile(r"^\s*(//|#|\*|/\*|$)")
_NAME = re.compile(r"[A-Za-z_]\w*")
_LISTS = ("args", "layout", "block", "grid", "cluster", "multiple")


@dataclass(frozen=True)
class Directive:
    """The words of a directive; None and () are words that it does not have. Numbers stay
    expressions: sizes come later."""

    problem: str | None = None
    entry: str | None = None
    args: tuple[str, ...] = ()
    layout: tuple[str, ...] = ()
    block: tuple[str, ...] = ()
    grid: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()
    smem: str | None = None  # bytes of dynamic shared memory; none
    multiple: tuple[str, ...] = ()  # one per axis: the kernel takes multiples of it only
    # What it may find in its output: "nan", or "finite" where it multiplies that by 0.
    output: str | None = None
    precision: str | None = None  # the precision class it wants to be judged in; ieee
    sizes: Mapping[str, str] = field(default_factory=dict)  # n=1000

    def names(self) -> set[str]:
        """All names that its expressions use."""
        texts = (
            self.smem or "",
            *self.sizes.values(),
            *(w for n in _LISTS for w in getattr(self, n)),
        )
        return {name for text in texts for name in _NAME.findall(text)}

    def overridden(self, other: Directive) -> Directive:
        """These words, with those that `other` gives in their place."""
        given = {f.name: getattr(other, f.name) for f in fields(self)}
        changed = {name: value for name, value in given.items() if value not in (None, ())}
        return replace(self, **changed | {"sizes": {**self.sizes, **other.sizes}})


def read(text: str) -> Directive:
    """The directive in the comment that a file begins with; an empty one where there is none.

    Raises InputError for a word that is no name=value or comes twice, UnknownNameError for one
    that a directive does not have.
    """
    words: list[str] = []
    for line in text.splitlines():
        if found := _MARK.match(line):
            words += split(found[1], " \t")
        elif not _COMMENT.match(line):
            break
    return parse(words)


def parse(words: list[str]) -> Directive:
    """A directive from its words, "block=16,16". Errors as `read`."""
    plain = {f.name for f in fields(Directive)} - {"sizes"}
    given: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not value or not _NAME.fullmatch(name):
            raise InputError(f"{word!r} in a directive is not of the form name=value")
        if name in given:
            raise InputError(f"{name} comes twice in a directive")
        given[name] = value
    sizes = {name: value for name, value in given.items() if name not in plain}
    for name in sizes:
        if close := difflib.get_close_matches(name, plain, n=1, cutoff=0.7):
            raise UnknownNameError(f"a directive has no word {name!r}; did you mean {close[0]!r}?")
    lists = {name: tuple(split(given[name], ",")) for name in _LISTS if name in given}
    if empty := [name for name, parts in lists.items() if not parts]:
        raise InputError(f"{empty[0]}={given[empty[0]]} in a directive gives no value")
    texts = {name: given[name] for name in plain & given.keys() - set(_LISTS)}
    return Directive(**texts, **lists, sizes=sizes)  # type: ignore[arg-type]


def split(text: str, separators: str) -> list[str]:
    """Cut at separators outside brackets. Raises InputError for brackets that do not match."""
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
        raise InputError(f"{text.strip()!r}: brackets do not match")
    return [part.strip() for part in parts if part.strip()]
