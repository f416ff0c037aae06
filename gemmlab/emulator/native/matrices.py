"""Matrix instructions in traced code. The classes replace the modules tensor_cores/matrices.py and
tensor_cores/fragments.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.native.context import Lanes, TraceContext
from gemmlab.emulator.native.layout import CORE, FAULT, MATRIX_FAULT, REGISTER_BYTES
from gemmlab.emulator.native.memory import Space
from gemmlab.emulator.native.products import Product, storage
from gemmlab.emulator.native.support import number, record_fault
from gemmlab.emulator.native.values import I64, U32, Pointer, Value, where
from gemmlab.emulator.program import Access
from gemmlab.emulator.tensor_cores import matrices as of_numpy
from gemmlab.emulator.tensor_cores.fragments import Fragment

ROW = 8  # 16-bit elements per row of an 8×8 matrix


def multiply(
    m: TraceContext, product: Product, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]
) -> list[Value]:
    """Return the registers of D. Surplus registers of A and B are ignored; they are copies."""
    put(m, 0, [*a[: product.registers("a")], *b[: product.registers("b")], *c])
    return compute(m, product)


def put(m: TraceContext, first: int, registers: Sequence[Any]) -> None:
    """Store registers to the matrix buffer, starting at index `first`."""
    place = m.core.at(CORE["matrices"])
    for k, register in enumerate(registers, first):
        m.f.store(place.at(REGISTER_BYTES * k), m.value(register).broadcast(), align=64)


def compute(m: TraceContext, product: Product) -> list[Value]:
    """Call the product's function on the matrix buffer and return the registers of D."""
    f, place = m.f, m.core.at(CORE["matrices"])
    functions = f.load_pointer(m.core.at(CORE["products"]))
    f.invoke(f.load_pointer(functions.at(8 * m.kernel.product_number(product))), None, place)
    first, dtype = product.first_of_d, storage(product.d)
    return [
        f.load(place.at(REGISTER_BYTES * (first + k)), dtype, True, align=64)
        for k in range(product.registers("d"))
    ]


def transposed(register: Value) -> Value:
    """Transpose an 8×8 matrix of 16-bit elements, two per lane."""
    whole = f"<{2 * WARP} x i16>"
    halves = register.f.assign(f"bitcast {register.typed} to {whole}")
    order = ", ".join(f"i32 {ROW * column + row}" for row in range(ROW) for column in range(ROW))
    mask = f"<{2 * WARP} x i32> <{order}>"
    moved = register.f.assign(f"shufflevector {whole} {halves}, {whole} poison, {mask}")
    return register.make(f"bitcast {whole} {moved} to {register.type}", register.dtype)


class MatrixSpace(Space):
    """Shared memory for ldmatrix and stmatrix. Lane 8·j + i holds the address of row i of matrix j,
    16 bytes."""

    def __init__(self, m: TraceContext) -> None:
        super().__init__(m, "shared")

    def load_matrices(
        self, access: Access, address: Any, count: int, is_transposed: bool, mask: Lanes | None
    ) -> list[Value]:
        """Return one register per matrix."""
        self.call(
            "load_rows", access, self.m.value(address), self._addressing_lanes(count, mask), 0
        )
        loaded = [self.m.f.load(self._matrix(k), U32, True, align=64) for k in range(count)]
        return [transposed(x) for x in loaded] if is_transposed else loaded

    def store_matrices(
        self,
        access: Access,
        address: Any,
        registers: Sequence[Any],
        is_transposed: bool,
        mask: Lanes | None,
    ) -> None:
        for k, register in enumerate(registers):
            value = self.m.value(register).broadcast()
            value = transposed(value) if is_transposed else value
            self.m.f.store(self._matrix(k), value, align=64)
        lanes = self._addressing_lanes(len(registers), mask)
        self.call("store_rows", access, self.m.value(address), lanes, 0)

    def _matrix(self, k: int) -> Pointer:
        """Return a pointer to the rows of matrix k."""
        return self.m.core.at(CORE["data"] + k * 4 * WARP)

    def _addressing_lanes(self, count: int, mask: Lanes | None) -> Value:
        """Return the lanes whose addresses are used. If any lane is active, that is the first
        8·count lanes of the warp."""
        every = np.uint32((1 << ROW * count) - 1)
        if mask is None:
            return self.m.f.constant(every)
        return where(mask.bits != np.uint32(0), every, np.uint32(0))


class Matrices:
    """Replaces the module of mma.sync."""

    Shape = of_numpy.Shape
    m: TraceContext  # the tracer of the current block

    def mma(
        self,
        shape: of_numpy.Shape,
        extent: None,
        a: Sequence[Any],
        b: Sequence[Any],
        c: Sequence[Any],
        saturate: bool,
    ) -> list[Value]:
        s = shape
        product = Product(s.m, ROW, s.k, s.d, s.a, s.b, s.c, saturates=saturate)
        return multiply(self.m, product, a, b, c)

    def move(self, register: Any, extent: None) -> Value:
        return transposed(self.m.value(register).broadcast())


class Fragments:
    """Replaces the module of wmma."""

    m: TraceContext

    def mma(
        self,
        shape: of_numpy.Shape,
        of: tuple[Fragment, Fragment, Fragment, Fragment],
        extent: None,
        a: Sequence[Any],
        b: Sequence[Any],
        c: Sequence[Any],
        saturate: bool,
    ) -> list[Value]:
        rows, columns, s = of[0].rows, of[0].columns, shape
        layouts = ".".join("row" if f.is_row_major else "col" for f in of[1:3])
        product = Product(rows, columns, s.k, s.d, s.a, s.b, s.c, layouts, saturate)
        return multiply(self.m, product, a, b, c)

    def load(
        self,
        of: Fragment,
        space: Space,
        access: Access,
        address: Any,
        stride: Any,
        mask: Lanes | None,
    ) -> list[Value]:
        """Load run by run, which yields the same counts as the NumPy tier."""
        address = self._checked(of, access, address, stride, mask)
        found = [
            element
            for x in self._offsets(of, stride, address)
            for element in space.load(access, address + x, mask)
        ]
        places = [found[k % of.count] for k in range(of.registers * of.per_register)]
        if of.per_register == 1:
            return places
        bits, registers = np.uint32(8 * of.dtype.itemsize), []
        for k in range(0, len(places), of.per_register):
            word = places[k].broadcast().astype(U32)
            for i, x in enumerate(places[k + 1 : k + of.per_register], 1):
                word = word | x.broadcast().astype(U32) << bits * np.uint32(i)
            registers.append(word)
        return registers

    def store(
        self,
        of: Fragment,
        space: Space,
        access: Access,
        address: Any,
        registers: Sequence[Any],
        stride: Any,
        mask: Lanes | None,
        extent: None,
    ) -> None:
        address = self._checked(of, access, address, stride, mask)
        offsets = self._offsets(of, stride, address)
        values = []
        for k in range(of.count):
            value = self.m.value(registers[k // of.per_register])
            if of.per_register > 1:
                shift = np.uint32(8 * of.dtype.itemsize * (k % of.per_register))
                value = (value >> shift).astype(of.dtype)
            values.append(value)
        runs = [tuple(values[k : k + of.together]) for k in range(0, of.count, of.together)]
        for run, offset in zip(runs, offsets, strict=True):
            space.store(access, address + offset, run, mask)

    def _checked(
        self, of: Fragment, access: Access, address: Any, stride: Any, mask: Lanes | None
    ) -> Value:
        """Return the address after checking its alignment and the stride's."""
        m, f = self.m, self.m.f
        base, far = m.value(address), m.value(stride).astype(I64)
        start = access.at(base)
        odd = of.excess_bits(start) | of.excess_bits(far * of.dtype.itemsize)
        bad = f.bits(odd != np.int64(0)) & m.bits_of(mask)
        with f.when(bad != np.uint32(0)):
            f.store(m.core.at(CORE["words"]), start.broadcast(), align=64)
            f.store(m.core.at(CORE["pointers"]), far.broadcast(), align=64)
            record_fault(f, m.core, MATRIX_FAULT, number(f, access.instruction), m.bits_of(mask))
            m.ret(FAULT)
        return base

    def _offsets(self, of: Fragment, stride: Any, address: Value) -> list[Value]:
        """Return Fragment.offsets in the type of the address."""
        kind, found = address.dtype, []
        stride = self.m.value(stride).astype(kind)
        for place in of.places:
            far, near = (self.m.f.table(x.astype(kind)) for x in place)
            found.append((far * stride + near) * kind.type(of.dtype.itemsize))
        return found
