"""Matrix products D = A·B + C of a warp in IR, bit-identical to the tensor core.

The NumPy version is in tensor_cores/matrices.py and fragments.py, which have the register layouts
of both tiers, and in arithmetic/tensor_core.py. Each product shape is a separate function. Its
argument points to the registers of A, B, C and D in order, each with 32 lanes. Each lane computes
the elements of D that it holds; for each k, two shuffles fetch the factors from A and B.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from gemmlab.emulator.arithmetic import tensor_core
from gemmlab.emulator.arithmetic.formats import FORMATS, widen
from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.native.builder import Function, Module
from gemmlab.emulator.native.floats import Doubles
from gemmlab.emulator.native.layout import REGISTER_BYTES
from gemmlab.emulator.native.numerics import Numerics
from gemmlab.emulator.native.ufuncs import intrinsic
from gemmlab.emulator.native.values import (
    F16,
    F32,
    F64,
    I32,
    NAN32,
    U16,
    U32,
    Value,
    apply,
    where,
)
from gemmlab.emulator.tensor_cores import fragments, matrices
from gemmlab.emulator.tensor_cores.matrices import BITS, INTEGERS, per_register

NAN16 = np.uint16(0x7FFF)
SPECIAL = 128  # exponent of a float32 infinity or NaN
NO_EXPONENT = tensor_core.NO_EXPONENT
EXACT = 8  # the sum of this many 27-bit terms and the accumulator fits int32
Place = tuple[int, int]  # index of an element among those of a lane, and the lane
Cell = tuple[int, int]  # row and column of an element


@dataclass(frozen=True)
class Product:
    """D (m × n) = A (m × k) · B (k × n) + C, with the element types of the matrices."""

    m: int
    n: int
    k: int
    d: str
    a: str
    b: str
    c: str
    # of wmma: A and B in memory, such as "row.col". Registers have the layout of
    # tensor_cores/fragments.py.
    wmma: str = ""
    saturates: bool = False
    negates: bool = False  # computes C − A·B

    def count(self, matrix: str) -> int:
        """Return the number of elements per lane."""
        return math.prod(self.size(matrix)) // WARP

    def size(self, matrix: str) -> tuple[int, int]:
        """Return the rows and columns of a matrix."""
        return {"a": (self.m, self.k), "b": (self.k, self.n)}.get(matrix, (self.m, self.n))

    def type_of(self, matrix: str) -> str:
        return {"a": self.a, "b": self.b, "c": self.c, "d": self.d}[matrix]

    def registers(self, matrix: str) -> int:
        """Return the number of registers per lane."""
        return self.count(matrix) // per_register(self.type_of(matrix))

    @property
    def is_fp8(self) -> bool:
        return self.a in ("e4m3", "e5m2")

    @property
    def fraction_bits(self) -> int:
        return tensor_core.FP8_FRACTION_BITS if self.is_fp8 else tensor_core.FRACTION_BITS

    @property
    def sums(self) -> tensor_core.Format:
        """The format to which float32 results are rounded."""
        return tensor_core.E8M13 if self.is_fp8 else tensor_core.F32

    @property
    def first_of_d(self) -> int:
        """Index of D's first register."""
        return sum(self.registers(matrix) for matrix in "abc")

    def places(self, matrix: str) -> dict[Cell, Place]:
        """Return the place of each element of a matrix, from the NumPy tier's layout."""
        count, per = self.count(matrix), per_register(self.type_of(matrix))
        numbers = np.arange(count * WARP).reshape(count, WARP)  # by element, lane
        if self.wmma:
            is_row_major = matrix in "cd" or self.wmma.split(".")["ab".index(matrix)] == "row"
            f = fragments.Fragment(
                matrix, *self.size(matrix), self.type_of(matrix), 0, is_row_major
            )
            cells = fragments.arrange(numbers.T[None], f)
        else:
            registers = numbers.reshape(-1, 1, per, 8, 4).transpose(0, 1, 3, 4, 2)
            if matrix in "cd":
                cells = matrices.arrange_accumulator(registers, self.m // 8)
            else:
                cells = matrices.arrange_operand(registers, self.m // 8 if matrix == "a" else 1)
                cells = cells.swapaxes(0, 1) if matrix == "a" else cells
        return {
            (row, column): divmod(number, WARP)
            for row, numbers in enumerate(cells[..., 0].tolist())
            for column, number in enumerate(numbers)
        }

    @property
    def text(self) -> str:
        """The function's IR."""
        module = Module()
        f = module.function("multiply", "void", {"registers": "ptr"})
        with np.errstate(all="ignore"):
            Emitter(f, self).emit()
        return module.text


def storage(type_: str) -> np.dtype:
    """Return the type of a register with elements of this type."""
    return {"f32": F32, "s32": I32, "f64": F64}.get(type_, U32)


def elements(register: Value, type_: str) -> list[Value]:
    """Return the elements of a register as float32, float64 or int32."""
    if type_ in ("f32", "f64", "s32"):
        return [register]
    bits = BITS[type_]
    if type_ in FORMATS:
        parts = [register >> np.uint32(bits * k) for k in range(per_register(type_))]
        return [widen(part.astype(f"u{bits // 8}"), type_) for part in parts]
    shift = np.uint32 if type_[0] == "u" else np.int32
    found = []
    for k in range(per_register(type_)):
        top = (register << np.uint32(32 - bits * (k + 1))).view(np.dtype(shift))
        found.append((top >> shift(32 - bits)).view(I32))
    return found


class Emitter:
    """Emits the function of one product."""

    def __init__(self, f: Function, product: Product) -> None:
        self.f, self.product, self.registers = f, product, f.pointer("registers")
        self.known: dict[tuple[str, tuple[Place, ...]], Value] = {}

    def load(self, matrix: str) -> list[Value]:
        """Return a matrix's elements, in the order in which a lane holds them."""
        p, type_ = self.product, self.product.type_of(matrix)
        first = sum(p.registers(x) for x in "abc"[: "abc".index(matrix)])
        found = []
        for k in range(p.registers(matrix)):
            place = self.registers.at(REGISTER_BYTES * (first + k))
            found += elements(self.f.load(place, storage(type_), True, align=64), type_)
        return found

    def pick(self, name: str, vectors: Sequence[Value], places: Sequence[Place]) -> Value:
        """Gather one value per lane from the given places."""
        key = name, tuple(places)
        if key not in self.known:
            self.known[key] = self._pick(vectors, places)
        return self.known[key]

    def _pick(self, vectors: Sequence[Value], places: Sequence[Place]) -> Value:
        sources = sorted({element for element, _ in places})
        one, other = vectors[sources[0]], vectors[sources[-1]]
        if len(sources) > 2:
            on = self.f.table(np.array([element == sources[0] for element, _ in places]))
            inside = [lane if e == sources[0] else 0 for e, lane in places]
            rest = [(e if e != sources[0] else sources[1], lane) for e, lane in places]
            first = self._pick(vectors, [(sources[0], lane) for lane in inside])
            return where(on, first, self._pick(vectors, rest))
        if len(sources) == 1 and [lane for _, lane in places] == list(range(WARP)):
            return one
        order = [lane + WARP * (element != sources[0]) for element, lane in places]
        mask = ", ".join(f"i32 {x}" for x in order)
        second = other.name if len(sources) == 2 else "poison"
        text = f"shufflevector {one.typed}, {one.type} {second}, <{WARP} x i32> <{mask}>"
        return one.make(text, one.dtype)

    @cached_property
    def operands(self) -> list[tuple[list[list[Place]], list[list[Place]]]]:
        """For each element of D in a lane and each k: the places of the factors in A and B."""
        p = self.product
        of_a, of_b, found = p.places("a"), p.places("b"), []
        cell_of = {place: cell for cell, place in p.places("d").items()}
        for j in range(p.count("d")):
            here = [cell_of[j, lane] for lane in range(WARP)]
            a = [[of_a[row, k] for row, _ in here] for k in range(p.k)]
            b = [[of_b[k, column] for _, column in here] for k in range(p.k)]
            found.append((a, b))
        return found

    def factors(
        self, name: str, j: int, a: Sequence[Value], b: Sequence[Value]
    ) -> list[tuple[Value, Value]]:
        """Return, for each k, the values in `a` and `b` that belong to element j of D."""
        left, right = self.operands[j]
        return [
            (self.pick(f"{name} of A", a, x), self.pick(f"{name} of B", b, y))
            for x, y in zip(left, right, strict=True)
        ]

    def emit(self) -> None:
        p = self.product
        a, b, c = (self.load(matrix) for matrix in "abc")
        a = [-x for x in a] if p.negates else a
        if p.a == "f64":
            self.store([self.fused(j, a, b, c[j]) for j in range(len(c))])
        elif p.a in INTEGERS:
            self.store([self.integers(j, a, b, c[j]) for j in range(len(c))])
        else:
            self.floats(a, b, c)
        self.f.ret()

    def store(self, d: Sequence[Value]) -> None:
        """Store elements to the registers of D."""
        place = self.registers.at(REGISTER_BYTES * self.product.first_of_d)
        if d[0].dtype == U16:
            pairs = zip(d[::2], d[1::2], strict=True)
            d = [x.astype(U32) | y.astype(U32) << np.uint32(16) for x, y in pairs]
        for k, value in enumerate(d):
            self.f.store(place.at(REGISTER_BYTES * k), value, align=64)

    def fused(self, j: int, a: Sequence[Value], b: Sequence[Value], total: Value) -> Value:
        doubles = Doubles(Numerics())
        for x, y in self.factors("value", j, a, b):
            total = doubles.fused(x, y, total)
        return total

    def integers(self, j: int, a: Sequence[Value], b: Sequence[Value], c: Value) -> Value:
        terms = [x * y for x, y in self.factors("value", j, a, b)]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return intrinsic("sadd.sat", total, c) if self.product.saturates else total + c

    # Floating-point products

    def floats(self, a: Sequence[Value], b: Sequence[Value], c: Sequence[Value]) -> None:
        f, p = self.f, self.product
        format = FORMATS[p.a]
        result = tensor_core.F16 if p.d == "f16" else p.sums
        powers = [[exponent(x, format.lowest) for x in matrix] for matrix in (a, b)]
        of_c = [exponent(x, result.lowest) for x in c]
        largest = []
        for j, power in enumerate(of_c):
            most = apply(np.maximum, power, np.int32(2 * format.lowest))
            for x, y in self.factors("power", j, *powers):
                most = apply(np.maximum, most, x + y)
            largest.append(most)
        total = self.narrow if format.is_narrow else self.wide
        finish = rounded16 if p.d == "f16" else partial(rounded32, digits=p.sums.digits)
        self.store([finish(total(j, a, b, x, largest[j])) for j, x in enumerate(c)])
        special = f.constant(np.bool_(False), vector=True)
        for power in (*powers[0], *powers[1], *of_c):
            special = special | (power == np.int32(SPECIAL))
        with f.when(f.bits(special) != np.uint32(0)):
            self.specials(a, b, c)

    def narrow(
        self, j: int, a: Sequence[Value], b: Sequence[Value], c: Value, largest: Value
    ) -> Value:
        """Sum in float64. Every product is exact in float32."""
        up = np.int32(self.product.fraction_bits) - largest
        scale: Value = tensor_core.narrow_power_of_two(up)
        terms = [(x * y * scale).astype(I32) for x, y in self.factors("value", j, a, b)]
        sums = [(c * scale).astype(I32)]
        for k in range(0, len(terms), EXACT):
            sums += [] if k == 0 else [terms[k]]
            for term in terms[k + (k > 0) : k + EXACT]:
                sums[-1] = sums[-1] + term
        total = sums[0].astype(F64)
        for more in sums[1:]:
            total = total + more.astype(F64)
        return total * self.unit(largest)

    def wide(
        self, j: int, a: Sequence[Value], b: Sequence[Value], c: Value, largest: Value
    ) -> Value:
        up = np.int32(self.product.fraction_bits) - largest
        scale = tensor_core.power_of_two(up)
        total = apply(np.trunc, c.astype(F64) * scale)
        for x, y in self.factors("value", j, a, b):
            total = total + apply(np.trunc, x.astype(F64) * y.astype(F64) * scale)
        return total * self.unit(largest)

    def unit(self, largest: Value) -> Value:
        """Return the factor that converts a sum of integers to its value."""
        unit: Value = tensor_core.power_of_two(largest - np.int32(self.product.fraction_bits))
        return unit

    def specials(self, a: Sequence[Value], b: Sequence[Value], c: Sequence[Value]) -> None:
        """Overwrite results that involve infinities or NaNs with the IEEE sum."""
        p, place = self.product, self.registers.at(REGISTER_BYTES * self.product.first_of_d)
        a, b, c = ([sign_or_special(x) for x in matrix] for matrix in (a, b, c))
        nan = np.uint32(NAN32) if p.d == "f32" else np.uint32(NAN16)
        width = 32 if p.d == "f32" else 16
        for j, start in enumerate(c):
            total = start
            for x, y in self.factors("sign", j, a, b):
                total = total + x * y
            infinite = total if p.d == "f32" else total.astype(F16)
            bits = infinite.view(f"u{width // 8}").astype(U32)
            bits = where(total != total, nan, bits)
            register, k = divmod(j, 32 // width)
            at = place.at(REGISTER_BYTES * register)
            old = self.f.load(at, U32, True, align=64)
            if width == 16:
                half = np.uint32(0xFFFF << 16 * k)
                bits = old & ~half | bits << np.uint32(16 * k)
            is_finite = apply(np.abs, total) < np.float32(np.inf)
            self.f.store(at, where(is_finite, old, bits), align=64)


def exponent(x: Value, lowest: int) -> Value:
    """Return the exponents of float32 values as int32: `lowest` for subnormals, NO_EXPONENT for
    zeros."""
    power = ((x.view(U32) >> np.uint32(23)) & np.uint32(0xFF)).view(I32) - np.int32(127)
    power = apply(np.maximum, power, np.int32(lowest))
    return where(x == np.float32(0), np.int32(NO_EXPONENT), power)


def sign_or_special(x: Value) -> Value:
    """Replace finite nonzero numbers by ±1. Sums of products of these are infinite or NaN exactly
    when those of x are."""
    size = apply(np.abs, x)
    plain = (size < np.float32(np.inf)) & (size > np.float32(0))
    one = where(x < np.float32(0), np.float32(-1), np.float32(1))
    return where(plain, one, x)


def rounded32(total: Value, digits: int) -> Value:
    """Round to float32 with `digits` significant bits, toward zero. Zeros are positive."""
    rounded: Value = tensor_core.toward_zero(total, digits) + np.float32(0)
    return rounded


def rounded16(total: Value) -> Value:
    """Round to the bits of float16, to nearest even. Zeros are positive."""
    bits = total.astype(F16).view(U16)
    return where(bits == np.uint16(0x8000), np.uint16(0), bits)
