"""What a directive comes to for given sizes: grid, block and arguments.

`prepare` is for a kernel that describes its own arguments, `bind` for one of a known problem, whose
arguments are the problem's by name.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from gemmlab.errors import InputError, UnknownNameError
from gemmlab.lab.directives.directive import Directive
from gemmlab.lab.directives.expressions import evaluate
from gemmlab.problems.problem import Case, Problem, Shape

Dim3 = tuple[int, int, int]
TYPES = {f"f{bits}": np.dtype(f"f{bits // 8}") for bits in (16, 32, 64)}
TYPES |= {f"{p}{bits}": np.dtype(f"u{bits // 8}") for p in "ub" for bits in (8, 16, 32, 64)}
TYPES |= {f"{p}{bits}": np.dtype(f"i{bits // 8}") for p in "is" for bits in (8, 16, 32, 64)}
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
    words: tuple[str, ...]  # of args=, one for each argument

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arguments."""
        return tuple(word.split(":")[0] for word in self.words)

    def filled(self, fill: str | None) -> list[np.ndarray]:
        """The arrays whose word has this fill, or none."""
        arrays = [
            (_ARRAY.fullmatch(word), arg)
            for word, arg in zip(self.words, self.args, strict=True)
            if isinstance(arg, np.ndarray)
        ]
        return [arg for found, arg in arrays if found and found["fill"] == fill]

    def named(self, message: str) -> str:
        """A message of the emulator with the arguments' names in place of their numbers."""
        names = self.names
        return re.sub(r"\bargument (\d+)", lambda m: f"argument {names[int(m[1])]}", message)


def dims(words: tuple[str, ...], what: str, names: Mapping[str, int]) -> Dim3:
    """One to three expressions as x, y, z; what is not given is 1."""
    if not 1 <= len(words) <= 3:
        given = ",".join(words) or "missing"
        raise InputError(f"{what} is {given}; it must have one to three numbers, x,y,z")
    x, y, z = (*(evaluate(word, names) for word in words), 1, 1)[:3]
    return x, y, z


def sizes_of(directive: Directive, own: Mapping[str, int] | None = None) -> dict[str, int]:
    """`own`, and the sizes a directive gives, in its order; one may use those before it, and `own`,
    which it does not replace."""
    known = dict(own or {})
    for name, text in directive.sizes.items():
        if name not in known:
            known[name] = evaluate(text, known)
    return known


def check_sizes(directive: Directive, axes: Sequence[str] = ()) -> None:
    """Raise UnknownNameError for a size that nothing in the directive uses, and that is none of the
    problem's axes."""
    unknown = directive.sizes.keys() - directive.names() - set(axes)
    if unknown:
        words = [field.name for field in fields(Directive) if field.name != "sizes"]
        sizes = f", and sizes: {', '.join(axes)}" if axes else ", and sizes that it uses"
        raise UnknownNameError(
            f"the directive has {', '.join(sorted(unknown))}, which nothing in it uses; its words "
            f"are {', '.join(words)}{sizes}"
        )


def shape_of(directive: Directive, default: Shape) -> dict[str, int]:
    """The sizes that the directive gives of `default`'s axes, and `default` for the rest."""
    known = {axis: size for axis, size in default.items() if axis not in directive.sizes}
    known = sizes_of(directive, known)
    return {axis: known[axis] for axis in default}


def prepare(directive: Directive, seed: int = 0) -> Call:
    """Grid, block and arguments. Raises InputError or UnknownNameError with the word at fault."""
    check_sizes(directive)
    sizes = sizes_of(directive)
    args = [argument(word, sizes, seed) for word in directive.args]
    return Call(*_launch(directive, sizes), tuple(args), directive.args)


def layout_of(directive: Directive, problem: Problem) -> str:
    """The problem's layout that the words mean: its name, or the order of each matrix, row,col,col.

    Raises UnknownNameError.
    """
    words = directive.layout
    if not words:
        return problem.layouts[0]
    known: dict[tuple[str, ...], str] = {(layout,): layout for layout in problem.layouts}
    if "course" in problem.layouts:
        known |= {("row", "row", "row"): "row", ("row", "col", "col"): "course"}
    if words not in known:
        choices = " or ".join(",".join(key) for key in known)
        raise UnknownNameError(f"{problem.name} has no layout {','.join(words)}; it is {choices}")
    return known[words]


def bind(directive: Directive, problem: Problem, case: Case, given: Mapping[str, Any]) -> Call:
    """The launch for one case. `given` holds what each of the problem's arguments is, by name.

    Without args the kernel takes all of them in the problem's order. The case's sizes count, also
    where the directive gives others. Raises as `prepare`, and InputError for a kernel that does not
    take the output.
    """
    sizes = sizes_of(directive, {**case.shape, **case.scalars})
    words = directive.args or tuple(parameter.name for parameter in problem.parameters)
    if case.output not in words:
        raise InputError(f"args={','.join(words)} does not have the output, {case.output}")
    args = [given[word] if word in given else argument(word, sizes, case.seed) for word in words]
    return Call(*_launch(directive, sizes), tuple(args), words)


def _launch(directive: Directive, sizes: Mapping[str, int]) -> tuple[Dim3, Dim3, int, Dim3]:
    return (
        dims(directive.grid, "grid", sizes),
        dims(directive.block, "block", sizes),
        evaluate(directive.smem or "0", sizes),
        dims(directive.cluster or ("1",), "cluster", sizes),
    )


def argument(word: str, sizes: Mapping[str, int], seed: int) -> np.ndarray | int | float:
    """An array "x:f32[n]=normal", a number "2.5", or an expression of sizes "m * k"."""
    if ":" not in word and "[" not in word:
        if _FLOAT.fullmatch(word) and not word.lstrip("+-").isdigit():
            return float(word.rstrip("f"))
        return evaluate(word, sizes)
    found = _ARRAY.fullmatch(word)
    if not found:
        raise InputError(f"argument {word!r} is not of the form name:type[count]=fill")
    if found["type"] not in TYPES:
        raise UnknownNameError(f"argument {word!r}: no type {found['type']!r}; {', '.join(TYPES)}")
    count = evaluate(found["count"], sizes)
    if count < 0:
        raise InputError(f"argument {word!r} has {count} elements")
    dtype = TYPES[found["type"]]
    try:
        return _filled(found["name"], dtype, count, found["fill"] or "normal", seed)
    except MemoryError:
        nbytes = f"{count * dtype.itemsize:,} bytes"
        raise InputError(f"argument {word!r} has {nbytes}; there is not enough memory") from None


def _filled(name: str, dtype: np.dtype, count: int, fill: str, seed: int) -> np.ndarray:
    """`count` numbers, the same for the same name, type, count, fill and seed."""
    rng = np.random.default_rng([seed, count, zlib.crc32(f"{name} {dtype} {fill}".encode())])
    whole = dtype.kind != "f"
    match fill:
        case "zeros":
            return np.zeros(count, dtype)
        case "ones":
            return np.ones(count, dtype)
        case "empty":  # to be written before it is read; NaN, or -1
            return np.full(count * dtype.itemsize, 0xFF, np.uint8).view(dtype)
        case "arange":
            return np.arange(count).astype(dtype)
        case "normal":
            drawn = rng.integers(0, 100, count) if whole else rng.standard_normal(count)
            return drawn.astype(dtype)
        case "uniform":
            drawn = rng.integers(0, 256, count) if whole else rng.random(count)
            return drawn.astype(dtype)
    raise UnknownNameError(f"{name}: no fill {fill!r}; there is {', '.join(FILLS)}")
