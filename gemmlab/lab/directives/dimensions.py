"""Indices of shared arrays in messages, by the dimensions that the source declares."""

from __future__ import annotations

import re

import numpy as np

from gemmlab.core.expressions import evaluate
from gemmlab.errors import InputError

_ARRAY = re.compile(
    r"__shared__\b[^;={]*?\b(?P<name>\w+)\s*(?P<extents>(?:\[[^\]]+\]\s*){2,})[;,=]"
)
_CONSTANT = re.compile(
    r"#define[ \t]+(\w+)[ \t]+(\d+)\b|\bconst(?:expr)?\b[^;=()]*?\b(\w+)\s*=\s*(\d+)\s*;"
)


def with_indices(message: str, source: str) -> str:
    """Split the index of each array that the source declares with several dimensions: "s[65]" is
    "s[1][1]" if s is declared as `__shared__ float s[2][64]`. Other indices are unchanged."""
    for found in _ARRAY.finditer(source):
        shape = _shape(found["extents"], source)
        if shape:
            message = re.sub(
                rf"\b{found['name']}\[(\d+)\]",
                lambda m, s=shape: _split(m, s),  # type: ignore[misc]
                message,
            )
    return message


def _shape(extents: str, source: str) -> tuple[int, ...]:
    """The dimensions of an array; () if they are not constants that the file defines."""
    names = {m[1] or m[3]: int(m[2] or m[4]) for m in _CONSTANT.finditer(source)}
    try:
        shape = tuple(evaluate(x, names) for x in re.findall(r"\[([^\]]+)\]", extents))
    except InputError:
        return ()
    return shape if min(shape) > 0 else ()


def _split(found: re.Match[str], shape: tuple[int, ...]) -> str:
    index = int(found[1])
    if index >= np.prod(shape):
        return found[0]
    name = found[0].partition("[")[0]
    return name + "".join(f"[{int(x)}]" for x in np.unravel_index(index, shape))
