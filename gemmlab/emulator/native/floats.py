"""Replacements for functions of arithmetic/{doubles,formats,halves}.py that traced code cannot
call."""

from __future__ import annotations

from collections.abc import Collection
from types import ModuleType
from typing import Any

import numpy as np

from gemmlab.emulator.arithmetic import doubles, formats, halves
from gemmlab.emulator.native.values import NotCovered, Value

PAIR = "x2"  # suffix of types with two halves in one register


class StandIn:
    """A module with some of its functions replaced."""

    module: ModuleType

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)


class Doubles(StandIn):
    module = doubles

    def __init__(self, numerics: Any) -> None:
        self.numerics = numerics

    def fused(self, a: Any, b: Any, c: Any) -> Any:
        return doubles.propagate(self.numerics.fma64(a, b, c), b, c, a)

    def directed64(self, operation: str, mode: str, *operands: Any) -> Any:
        if any(isinstance(x, Value) for x in operands):
            raise NotCovered(f"float64 rounded {mode}")
        return doubles.directed64(operation, mode, *operands)


class Formats(StandIn):
    module = formats

    def join(self, lower: Any, upper: Any) -> Any:
        if not any(isinstance(x, Value) for x in (lower, upper)):
            return formats.join(lower, upper)
        wide, bits = np.dtype(f"u{2 * lower.dtype.itemsize}").type, 8 * lower.dtype.itemsize
        return lower.astype(wide) | upper.astype(wide) << wide(bits)


class Halves(StandIn):
    module = halves

    def __init__(self, formats: Formats) -> None:
        self.formats = formats

    def compute(self, operation: str, name: str, words: Collection[str], *operands: Any) -> Any:
        if PAIR not in name or not any(isinstance(x, Value) for x in operands):
            return halves.compute(operation, name, words, *operands)
        single = name.removesuffix(PAIR)
        lower, upper = (
            halves.compute(operation, single, words, *((x >> shift).astype("u2") for x in operands))
            for shift in (np.uint32(0), np.uint32(16))
        )
        return self.formats.join(lower, upper)
