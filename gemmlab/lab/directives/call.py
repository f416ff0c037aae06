"""Evaluate a directive for given sizes to the grid, block and arguments of a launch.

`prepare` handles a directive that describes all arguments itself; `bind` handles the kernel of a
known problem, whose arguments it looks up by name.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from gemmlab.compile.directive import TYPES, Dim3, Directive, dims
from gemmlab.core.expressions import evaluate
from gemmlab.errors import InputError, UnknownNameError
from gemmlab.kernels.rung import Rung
from gemmlab.problems.problem import WORKSPACE, Case, Problem, Shape

FILLS = ("normal", "uniform", "zeros", "ones", "arange", "empty")

_ARRAY = re.compile(r"(?P<name>\w+):(?P<type>\w+)\[(?P<count>.*)\](?:=(?P<fill>\w+))?")
_FLOAT = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d+)?f?")


@dataclass(frozen=True)
class Call:
    """One launch."""

    grid: Dim3
    block: Dim3
    smem: int  # bytes of dynamic shared memory
    cluster: Dim3
    args: tuple[Any, ...]
    words: tuple[str, ...]  # the words of args=, one for each argument

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arguments."""
        return tuple(word.split(":")[0] for word in self.words)

    def filled(self, fill: str | None) -> list[np.ndarray]:
        """Return the array arguments whose word has this fill; None selects words without one."""
        arrays = [
            (_ARRAY.fullmatch(word), arg)
            for word, arg in zip(self.words, self.args, strict=True)
            if isinstance(arg, np.ndarray)
        ]
        return [arg for found, arg in arrays if found and found["fill"] == fill]

    def named(self, message: str) -> str:
        """Replace the arguments' numbers in a message of the emulator by their names."""
        names = self.names
        return re.sub(r"\bargument (\d+)", lambda m: names[int(m[1])], message)


def sizes_of(directive: Directive, given: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return `given` and the sizes that the directive adds, evaluated in its order.

    A size may refer to `given` and to earlier sizes. Sizes in `given` take precedence.
    """
    known = dict(given or {})
    for name, text in directive.sizes.items():
        if name not in known:
            known[name] = evaluate(text, known)
    return known


def check_sizes(directive: Directive, axes: Sequence[str] = ()) -> None:
    """Raise UnknownNameError for a size that the directive does not use and that is not an axis."""
    unknown = directive.sizes.keys() - directive.names() - set(axes)
    if unknown:
        words = [field.name for field in fields(Directive) if field.name != "sizes"]
        sizes = f"; sizes: {', '.join(axes)}" if axes else "; sizes must be used in an expression"
        raise UnknownNameError(
            f"the directive sets {', '.join(sorted(unknown))}, but does not use it; valid words: "
            f"{', '.join(words)}{sizes}"
        )


def shape_of(directive: Directive, default: Shape) -> dict[str, int]:
    """Return the directive's size of each axis in `default`, or the default if it gives none."""
    known = {axis: size for axis, size in default.items() if axis not in directive.sizes}
    known = sizes_of(directive, known)
    return {axis: known[axis] for axis in default}


def prepare(directive: Directive, seed: int = 0) -> Call:
    """Evaluate a directive; `seed` determines the contents of its arrays.

    Raises InputError or UnknownNameError that names the invalid word.
    """
    check_sizes(directive)
    sizes = sizes_of(directive)
    args = [argument(word, sizes, seed) for word in directive.args]
    return Call(*launch_of(directive, sizes), tuple(args), directive.args)


def layout_of(directive: Directive, problem: Problem) -> str:
    """Return the name of the problem's layout that the directive selects.

    The directive gives that name, or the order of each matrix: row,col,col. Raises
    UnknownNameError.
    """
    words = directive.layout
    if not words:
        return problem.layouts[0]
    known: dict[tuple[str, ...], str] = {(layout,): layout for layout in problem.layouts}
    if "course" in problem.layouts:
        known |= {("row", "row", "row"): "row", ("row", "col", "col"): "course"}
    if words not in known:
        choices = " or ".join(",".join(key) for key in known)
        raise UnknownNameError(f"{problem.name} has no layout {','.join(words)}; choose {choices}")
    return known[words]


def bind(directive: Directive, problem: Problem, case: Case, given: Mapping[str, Any]) -> Call:
    """Return the launch for one case; `given` has the problem's arguments by name.

    Without args=, the kernel takes all of them in the problem's order. The case's sizes take
    precedence over the directive's. Raises as `prepare`, and InputError if args= lacks the output.
    """
    sizes = sizes_of(directive, {**case.shape, **case.scalars})
    words = directive.args or tuple(parameter.name for parameter in problem.parameters)
    if case.output not in words:
        raise InputError(f"args={','.join(words)} does not include the output, {case.output}")
    args = [given[word] if word in given else argument(word, sizes, case.seed) for word in words]
    return Call(*launch_of(directive, sizes), tuple(args), words)


def call_of_rung(rung: Rung, problem: Problem, case: Case, given: Mapping[str, Any]) -> Call:
    """Return a rung's launch for one case; `given` as for `bind`."""
    words = [parameter.name for parameter in problem.parameters]
    args = [given[word] for word in words]
    if rung.workspace is not None:
        words.append(WORKSPACE.name)
        args.append(np.zeros(rung.workspace(rung.config, case.shape) // 4, np.float32))
    grid, block, smem = rung.geometry(rung.config, case.shape)
    return Call(grid, block, smem, (1, 1, 1), tuple(args), tuple(words))


def check_rung(rung: Rung, directive: Directive) -> None:
    """Raise InputError for a rung of several launches, and for words that a rung determines."""
    if rung.launches is not None:
        raise InputError(f"{rung.name} takes several launches; `gemmlab climb` runs them all")
    check_words(rung, directive)


def check_words(rung: Rung, directive: Directive) -> None:
    """Raise InputError for words that a rung determines."""
    for word in fields(Directive):
        if word.name != "sizes" and getattr(directive, word.name) not in (None, ()):
            raise InputError(f"{word.name}=… is for kernel files; {rung.name} determines it")


def launch_of(directive: Directive, sizes: Mapping[str, int]) -> tuple[Dim3, Dim3, int, Dim3]:
    """Return grid, block, bytes of dynamic shared memory and cluster."""
    return (
        dims(directive.grid, "grid", sizes),
        dims(directive.block, "block", sizes),
        evaluate(directive.smem or "0", sizes),
        dims(directive.cluster or ("1",), "cluster", sizes),
    )


def argument(word: str, sizes: Mapping[str, int], seed: int) -> np.ndarray | int | float:
    """Evaluate a word of args=: an array "x:f32[n]=normal", a number "2.5", or "m * k"."""
    if ":" not in word and "[" not in word:
        if _FLOAT.fullmatch(word) and not word.lstrip("+-").isdigit():
            return float(word.rstrip("f"))
        return evaluate(word, sizes)
    found = _ARRAY.fullmatch(word)
    if not found:
        raise InputError(f"argument {word!r} is not of the form name:type[count]=fill")
    if found["type"] not in TYPES:
        raise UnknownNameError(
            f"argument {word!r} has an unknown type {found['type']!r}; choose {', '.join(TYPES)}"
        )
    count = evaluate(found["count"], sizes)
    if count < 0:
        raise InputError(f"argument {word!r} has {count} elements")
    dtype = TYPES[found["type"]]
    try:
        return _filled(found["name"], dtype, count, found["fill"] or "normal", seed)
    except MemoryError:
        nbytes = f"{count * dtype.itemsize:,} bytes"
        raise InputError(f"argument {word!r} needs {nbytes}, more than the free memory") from None


def _filled(name: str, dtype: np.dtype, count: int, fill: str, seed: int) -> np.ndarray:
    """Return an array of `count` elements that depends on the arguments only."""
    rng = np.random.default_rng([seed, count, zlib.crc32(f"{name} {dtype} {fill}".encode())])
    whole = dtype.kind != "f"
    match fill:
        case "zeros":
            return np.zeros(count, dtype)
        case "ones":
            return np.ones(count, dtype)
        case "empty":  # NaN, or -1 for integers: the kernel must write before it reads
            return np.full(count * dtype.itemsize, 0xFF, np.uint8).view(dtype)
        case "arange":
            return np.arange(count).astype(dtype)
        case "normal":
            drawn = rng.integers(0, 100, count) if whole else rng.standard_normal(count)
            return drawn.astype(dtype)
        case "uniform":
            drawn = rng.integers(0, 256, count) if whole else rng.random(count)
            return drawn.astype(dtype)
    raise UnknownNameError(
        f"argument {name} has an unknown fill {fill!r}; choose {', '.join(FILLS)}"
    )
