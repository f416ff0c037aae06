"""Matrices in a warp's registers, as traced code sees them: stands in for the modules
tensor_cores/matrices.py and tensor_cores/fragments.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.native.layout import CORE
from gemmlab.emulator.native.products import SLOT, Product, storage
from gemmlab.emulator.native.values import Value
from gemmlab.emulator.tensor_cores import fragments
from gemmlab.emulator.tensor_cores import matrices as of_numpy
from gemmlab.emulator.tensor_cores.fragments import Fragment

if TYPE_CHECKING:
    from gemmlab.emulator.native.tracer import Tracer

ROW = 8  # elements of 16 bits in a row of a small matrix


def multiply(
    m: Tracer, product: Product, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]
) -> list[Value]:
    """The registers of D; those of A and B may be more than a product has, and repeat."""
    f, place = m.f, m.core.at(CORE["matrices"])
    given = [*a[: product.registers("a")], *b[: product.registers("b")], *c]
    for k, register in enumerate(given):
        f.store(place.at(SLOT * k), m.value(register).spread(), align=64)
    functions = f.load_pointer(m.core.at(CORE["products"]))
    f.invoke(f.load_pointer(functions.at(8 * m.kernel.product_number(product))), None, place)
    first, dtype = product.first_of_d, storage(product.d)
    return [
        f.load(place.at(SLOT * (first + k)), dtype, True, align=64)
        for k in range(product.registers("d"))
    ]


def transposed(register: Value) -> Value:
    """The transpose of a matrix of 8×8 elements of 16 bits, two in each lane."""
    whole = f"<{2 * WARP} x i16>"
    halves = register.f.assign(f"bitcast {register.typed} to {whole}")
    order = ", ".join(f"i32 {ROW * column + row}" for row in range(ROW) for column in range(ROW))
    mask = f"<{2 * WARP} x i32> <{order}>"
    moved = register.f.assign(f"shufflevector {whole} {halves}, {whole} poison, {mask}")
    return register.make(f"bitcast {whole} {moved} to {register.type}", register.dtype)


class Matrices:
    """Stands in for the module of mma.sync and its like."""

    Shape = of_numpy.Shape
    m: Tracer  # whose code is written

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
        return transposed(self.m.value(register).spread())


class Fragments:
    """Stands in for the module of wmma."""

    m: Tracer

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
        product = Product(rows, columns, s.k, s.d, s.a, s.b, s.c, True, saturate)
        return multiply(self.m, product, a, b, c)

    def __getattr__(self, name: str) -> Any:
        return getattr(fragments, name)
