"""From arrays to a product that can run: all rules are checked here, before anything is written.

What is found out once holds for all arrays of the same shapes, strides and device.
"""

from __future__ import annotations

import math
import numbers
import reprlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gemmlab.errors import ArrayError, DTypeError, InputError, ShapeError
from gemmlab.linalg import shapes
from gemmlab.linalg.frameworks import HOST, Facts
from gemmlab.linalg.planning.program import Factor, Job
from gemmlab.linalg.planning.tiers import Case, Choice
from gemmlab.linalg.shapes import Shape, Sizes, Stack

if TYPE_CHECKING:
    from gemmlab.linalg.packed import PackedMatrix


@dataclass(frozen=True)
class Layout:
    """How a product is laid out: its factors as stacks, in the order that makes C row-major.

    `names` are the caller's arrays behind the left and the right factor; they are the other way
    round where C is column-major, since then Cᵀ = Bᵀ·Aᵀ is computed. `copies` has the shapes of
    contiguous copies that are needed first. `through` says that the result is made in new memory
    and copied to `out`.
    """

    left: Stack
    right: Stack
    c: Stack
    names: tuple[str, str]
    copies: dict[str, Shape] = field(default_factory=dict)
    through: bool = False


class Scalars(NamedTuple):
    """alpha and beta, rounded to float32."""

    alpha: float
    beta: float


_PLAIN = Scalars(1.0, 0.0)
LARGEST = float(np.finfo(np.float32).max)


def check_given(b: Any, c: Any, alpha: Any, beta: Any) -> Scalars:
    """alpha and beta. Raises DTypeError unless they are real numbers, and for no b; InputError
    unless they are float32 numbers, for c without beta, and for a beta other than 0 without c."""
    if b is None:
        raise DTypeError("b is None; it is an array")
    if alpha is None and beta is None and c is None:
        return _PLAIN
    if c is not None and beta is None:
        raise InputError("c without beta: beta·c is added, so beta is needed (1 adds all of c)")
    scalars = Scalars(_float32("alpha", alpha, 1.0), _float32("beta", beta, 0.0))
    if scalars.beta and c is None:
        raise InputError(f"beta = {beta} without c: beta·c is added, so c is needed")
    return scalars


def _float32(name: str, value: Any, default: float) -> float:
    """A factor as the float32 that multiplies."""
    if value is None:
        return default
    if not isinstance(value, numbers.Real):
        raise DTypeError(f"{name} is {value!r}, a {type(value).__name__}; it is a real number")
    size: Any = abs(value)
    if LARGEST < size < math.inf:
        rule = f"no float32 number: those end at {LARGEST:.4g}"
        raise InputError(f"{name} is {reprlib.repr(value)}, {rule}")
    # Of -0 makes 0: products are remembered by their factors, and the two are equal.
    return float(np.float32(float(value))) + 0.0


def check_arrays(arrays: dict[str, Facts]) -> int:
    """The device that all arrays are on. Raises DTypeError and ArrayError."""
    for name, facts in arrays.items():
        if not facts.is_float32:
            rule = "gemmlab.matmul computes float32 products"
            raise DTypeError(
                f"{name} has dtype {facts.dtype} and shape {tuple(facts.shape)}: {rule}"
            )
    (first, own), *others = arrays.items()
    for name, facts in others:
        if facts.device != own.device:
            places = _place(own.device), _place(facts.device)
            raise apart(first, own, places[0], name, facts, places[1])
    return own.device


def apart(first: str, x: Any, x_place: str, second: str, y: Any, y_place: str) -> ArrayError:
    """What is to be raised for arrays in different places."""
    places = f"{named(first, x)} is {x_place} and {named(second, y)} is {y_place}"
    return ArrayError(f"{places}: all arrays must be on one device")


def named(name: str, array: Any) -> str:
    """An operand in words, with its shape where that is told: DLPack alone asks for none."""
    shape = getattr(array, "shape", None)
    return name if shape is None else f"{name} (shape {tuple(shape)})"


def check_sizes(arrays: dict[str, Facts]) -> Sizes:
    """The sizes of the product. Raises ShapeError."""
    sizes = shapes.multiply(arrays["a"].shape, arrays["b"].shape)
    if "c" in arrays:
        shapes.check_c(arrays["c"].shape, sizes)
    if "out" in arrays:
        out = arrays["out"]
        shapes.check_out(out.shape, sizes)
        again = any(n > 1 and step == 0 for n, step in zip(out.shape, out.strides, strict=True))
        if again and 0 not in out.shape:
            raise ArrayError(
                f"out has shape {tuple(out.shape)} and strides {tuple(out.strides)}: several of "
                "its elements share memory"
            )
    return sizes


def check_overlap(arrays: dict[str, Facts]) -> None:
    """Raise ArrayError where `out` shares memory with another array; it may be `c` itself."""
    if "out" not in arrays:
        return
    out = arrays["out"]
    for name in ("a", "b", "c"):
        other = arrays.get(name)
        if other is None or (name == "c" and other == out):
            continue
        if _may_overlap(out, other) and _overlap(out, other):
            raise ArrayError(
                f"out (shape {tuple(out.shape)}) and {name} (shape {tuple(other.shape)}) share "
                "memory: elements would be overwritten before they are read"
            )


def lay_out(arrays: dict[str, Facts], sizes: Sizes, kept: dict[str, PackedMatrix]) -> Layout:
    """How the product's arrays are read and written."""
    copies: dict[str, Shape] = {}
    a = _factor("a", arrays["a"], sizes, copies)
    b = _factor("b", arrays["b"], sizes, copies)
    fresh = shapes.contiguous(sizes.matrices)
    c = shapes.stack_of(sizes.matrices, fresh, sizes.stack, row=True)
    through = False
    if "out" in arrays:
        own = shapes.stack_of(
            sizes.matrices, _full_strides(arrays["out"], sizes), sizes.stack, row=True
        )
        through = own is None or own.lines is None or own.step < 0
        c = c if through else own
    assert c is not None and c.lines is not None
    names = ("a", "b")
    if not c.lines[0]:
        a, b, c, names = b.transposed, a.transposed, c.transposed, ("b", "a")
    if not kept:
        a, b, c = shapes.fold(a, b, c)
    assert c.lines is not None
    c = c._replace(row_stride=c.lines[1], column_stride=1)
    return Layout(a, b.transposed, c, names, copies, through)


def case_of(layout: Layout, gpu: Any, kept: dict[str, PackedMatrix]) -> Case:
    """What the choice of a tier depends on."""
    c = layout.c
    schemes = [kept[name].precision if name in kept else None for name in layout.names]
    return Case(
        c.rows,
        c.columns,
        layout.left.columns,
        c.batch,
        gpu.capability,
        gpu.multiprocessors,
        (_along(layout.left), _along(layout.right)),
        (schemes[0], schemes[1]),
    )


def job_of(layout: Layout, choice: Choice, scalars: Scalars, kept: dict[str, PackedMatrix]) -> Job:
    """The product as launches on tensor cores."""

    def factor_of(name: str, stack: Stack) -> Factor:
        factor = Factor(name, stack, choice.tier, choice.fallback)
        if name not in kept:
            return factor
        if kept[name].layout != factor.packed():
            raise ShapeError(
                f"{name} is packed as {kept[name].shape}; for this product it would have to "
                "be broadcast: pack the broadcast array"
            )
        return replace(factor, kept=kept[name].address)

    left, right = layout.names
    factors = factor_of(left, layout.left), factor_of(right, layout.right)
    return Job(*factors, layout.c, choice, scalars.alpha, scalars.beta)


def _factor(name: str, facts: Facts, sizes: Sizes, copies: dict[str, Shape]) -> Stack:
    """The array as a stack that can be read, by way of a copy where it cannot be read itself."""
    row = name == "a"
    stack = shapes.stack_of(facts.shape, facts.strides, sizes.stack, row)
    if stack is not None and (stack if row else stack.transposed).operand() is not None:
        return stack
    # A copy as it is, unless it broadcasts in part: then as a whole.
    for shape in (tuple(facts.shape), (*sizes.stack, *facts.shape[-2:])):
        copies[name] = shape
        stack = shapes.stack_of(shape, shapes.contiguous(shape), sizes.stack, row)
        if stack is not None:
            break
    assert stack is not None
    return stack


def _full_strides(out: Facts, sizes: Sizes) -> Shape:
    """Strides of `out` with the axes that 1-D operands leave out; those have length 1."""
    ends = list(out.strides[len(sizes.stack) :])
    columns = ends.pop() if sizes.has_columns else 1
    rows = ends.pop() if sizes.has_rows else sizes.n
    return (*out.strides[: len(sizes.stack)], rows, columns)


def _may_overlap(x: Facts, y: Facts) -> bool:
    """Whether the memory between the first and last elements of both meets."""
    (x0, x1), (y0, y1) = (shapes.extent(z.shape, z.strides) for z in (x, y))
    return x.address + 4 * x0 < y.address + 4 * y1 and y.address + 4 * y0 < x.address + 4 * x1


def _overlap(x: Facts, y: Facts) -> bool:
    """Whether two arrays have an element in common: NumPy's test, which reads no memory."""
    if math.prod(x.shape) == 0 or math.prod(y.shape) == 0:
        return False
    return bool(np.shares_memory(np.asarray(_View(x)), np.asarray(_View(y))))


class _View:
    """An array as NumPy is told of it."""

    def __init__(self, facts: Facts) -> None:
        self.__array_interface__ = {
            "version": 3,
            "shape": tuple(facts.shape),
            "strides": tuple(4 * stride for stride in facts.strides),
            "typestr": "<f4",
            "data": (facts.address, True),
        }


def _along(rows: Stack) -> bool:
    operand = rows.operand()
    assert operand is not None, "a factor that cannot be read in place is copied before"
    return operand.along


def _place(device: int) -> str:
    return "on the host" if device == HOST else f"on GPU {device}"
