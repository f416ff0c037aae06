"""The operands of one product: a record that describes them, the rules they obey, their layout.

All rules are checked before anything is written. What is derived here holds for all operands with
the same forms, so it is computed once per form.
"""

from __future__ import annotations

import math
import numbers
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gemmlab.errors import ArrayError, DTypeError, InputError, ShapeError
from gemmlab.linalg import shapes
from gemmlab.linalg.arrays import HOST, ArrayDescriptor, Framework, is_float32
from gemmlab.linalg.planning.program import Factor, Job
from gemmlab.linalg.planning.tiers import Choice
from gemmlab.linalg.planning.times import Case
from gemmlab.linalg.shapes import Operand, Shape, Sizes, Stack

if TYPE_CHECKING:
    from gemmlab.linalg.packed import PackedMatrix

NAMES = ("a", "b", "c", "out")
Arrays = tuple[Any, Any, Any, Any]  # a, b, c and out; None if not given


class Scalars(NamedTuple):
    """alpha and beta, rounded to float32."""

    alpha: float
    beta: float


@dataclass(slots=True)
class Operands:
    """The operands of one product, described once, on entry. All are on one kind of device.

    `given` are the caller's objects. `arrays` are the same operands as arrays of one library:
    `framework`, or NumPy on the host, where `framework` is None. `packed` has the packed operands
    among "a" and "b"; their `arrays` are the arrays they were packed from. `stream` is the handle
    that the caller gave. `restore` converts the result to an array of the caller's library; None if
    it is one already. If `only_faster`, NotFaster is raised instead of computing in `ieee`.
    """

    given: Arrays
    arrays: Arrays
    descriptors: list[ArrayDescriptor | None]  # of `arrays`
    scalars: Scalars
    precision: str | None
    framework: Framework | None = None
    packed: dict[str, PackedMatrix] = field(default_factory=dict)
    stream: int | None = None
    restore: Callable[[Any], Any] | None = None
    only_faster: bool = False

    @property
    def settings(self) -> tuple[Scalars, str | None, Framework | None]:
        """What determines a plan besides the descriptors, if no operand is packed."""
        return self.scalars, self.precision, self.framework

    @property
    def named(self) -> dict[str, ArrayDescriptor]:
        """The descriptors by name, without operands that are not given."""
        pairs = zip(NAMES, self.descriptors, strict=True)
        return {name: x for name, x in pairs if x is not None}


@dataclass(slots=True)
class Layout:
    """The layout of a product: its factors, in the order that makes C row-major.

    `left` has the rows of the left factor, `right` the columns of the right one. `names` are the
    operands behind them. They are swapped if C is column-major, because Cᵀ = Bᵀ·Aᵀ is computed
    then. `copies` has the shapes of contiguous copies to make first. If `through_copy`, the result
    is computed in new memory and copied to `out`. `d` is c in the shape and order of `c`, the
    result, if it can be read in place.
    """

    left: Operand
    right: Operand
    c: Stack
    names: tuple[str, str]
    copies: dict[str, Shape] = field(default_factory=dict)
    through_copy: bool = False
    d: Stack | None = None


PLAIN = Scalars(1.0, 0.0)
LARGEST = float(np.finfo(np.float32).max)


def check_scalars(b: Any, c: Any, alpha: Any, beta: Any) -> Scalars:
    """Return alpha and beta as float32 numbers.

    Raises DTypeError if b is missing or a scalar is not a real number, and InputError if a scalar
    is out of float32's range, for c without beta, and for a nonzero beta without c.
    """
    if b is None:
        raise DTypeError("b is None; it must be an array")
    if alpha is None and beta is None and c is None:
        return PLAIN
    if c is not None and beta is None:
        raise InputError("c without beta: the product adds beta·c, so pass beta (1 adds c itself)")
    scalars = Scalars(_float32("alpha", alpha, 1.0), _float32("beta", beta, 0.0))
    if scalars.beta and c is None:
        raise InputError(f"beta = {beta} without c: the product adds beta·c, so pass c")
    return scalars


def _float32(name: str, value: Any, default: float) -> float:
    """Return a scalar rounded to float32."""
    if value is None:
        return default
    if not isinstance(value, numbers.Real):
        raise DTypeError(f"{name} is {value!r}, a {type(value).__name__}; it must be a real number")
    size: Any = abs(value)
    if LARGEST < size < math.inf:
        rule = f"out of the range of float32, which ends at {LARGEST:.4g}"
        raise InputError(f"{name} is {reprlib.repr(value)}, {rule}")
    # Adding 0 turns -0 into 0: planned products are keyed by scalars, and the two compare equal.
    return float(np.float32(float(value))) + 0.0


def key_of(descriptors: Sequence[ArrayDescriptor | None], precision: str | None) -> Any:
    """What two products have in common if they differ in sizes, strides and scalars alone.

    For arrays of float32 on one device.
    """
    a, b, c, out = descriptors
    assert a is not None and b is not None
    ranks = len(a.shape), len(b.shape), c and len(c.shape), out and len(out.shape)
    return *ranks, precision, a.device


def check_float32(name: str, array: ArrayDescriptor) -> None:
    """Raise DTypeError unless the operand has dtype float32."""
    if not is_float32(array.dtype):
        raise DTypeError(
            f"{name} has dtype {array.dtype} and shape {tuple(array.shape)}: "
            "gemmlab.matmul computes float32 products"
        )


def check_arrays(arrays: dict[str, ArrayDescriptor]) -> int:
    """Return the device that all operands are on. Raises DTypeError and ArrayError."""
    for name, array in arrays.items():
        if not is_float32(array.dtype):
            check_float32(name, array)
    reference = arrays["a"]
    for name, array in arrays.items():
        if array.device != reference.device:
            places = _place(reference.device), _place(array.device)
            raise device_mismatch("a", reference, places[0], name, array, places[1])
    return reference.device


def device_mismatch(
    first: str, x: Any, x_place: str, second: str, y: Any, y_place: str
) -> ArrayError:
    """Return the error for operands on different devices."""
    places = f"{named(first, x)} is {x_place} and {named(second, y)} is {y_place}"
    return ArrayError(f"{places}: all arrays must be on one device")


def named(name: str, array: Any) -> str:
    """Return an operand's name, with its shape if the array has one; DLPack does not require it."""
    shape = getattr(array, "shape", None)
    return name if shape is None else f"{name} (shape {tuple(shape)})"


def check_sizes(arrays: dict[str, ArrayDescriptor]) -> Sizes:
    """Return the sizes of the product. Raises ShapeError."""
    sizes = shapes.multiply(arrays["a"].shape, arrays["b"].shape)
    if "c" in arrays:
        shapes.check_c(arrays["c"].shape, sizes)
    if "out" in arrays:
        shapes.check_out(arrays["out"].shape, sizes)
    return sizes


def check_overlap(arrays: dict[str, ArrayDescriptor]) -> None:
    """Raise ArrayError if elements of `out` share memory with each other or with another operand;
    `out` may be `c` itself."""
    out = arrays["out"]
    if shapes.overlaps_itself(out.shape, out.strides):
        raise ArrayError(
            f"out has shape {tuple(out.shape)} and strides {tuple(out.strides)}: several of its "
            "elements share memory"
        )
    for name in ("a", "b", "c"):
        other = arrays.get(name)
        if other is None or (name == "c" and other == out):
            continue
        if _may_overlap(out, other) and _overlap(out, other):
            raise ArrayError(
                f"out (shape {tuple(out.shape)}) and {name} (shape {tuple(other.shape)}) share "
                "memory: elements would be overwritten before they are read"
            )


def lay_out(
    arrays: dict[str, ArrayDescriptor], sizes: Sizes, packed: dict[str, PackedMatrix]
) -> Layout:
    """Return how the product reads and writes its operands."""
    copies: dict[str, Shape] = {}
    a = _factor("a", arrays["a"], sizes, copies)
    b = _factor("b", arrays["b"], sizes, copies)
    m, n, batch = sizes.m, sizes.n, sizes.batch
    c: Stack | None = Stack(m, n, n, 1, batch, m * n if batch > 1 else 0)  # a new array
    d, through_copy = None, False
    if "out" in arrays:
        strides = _full_strides(arrays["out"].strides, sizes)
        out = shapes.stack_of(sizes.matrices, strides, sizes.stack, row=True)
        through_copy = out is None or out.lines is None or out.step < 0
        c = c if through_copy else out
    if "c" in arrays:
        d = _added(arrays, sizes)
    assert c is not None and c.lines is not None
    names, (is_row_major, pitch) = ("a", "b"), c.lines
    if not is_row_major:
        a, b, c, names = b.transposed, a.transposed, c.transposed, ("b", "a")
        d = d and d.transposed
    if a.batch > 1 and not packed:
        a, b, c, d = shapes.fold(a, b, c, d)
        assert c.lines is not None
        _, pitch = c.lines
    c = Stack(c.rows, c.columns, pitch, 1, c.batch, c.step)
    left, right = a.operand(), b.transposed.operand()
    assert left is not None and right is not None, "`_factor` copies what cannot be read in place"
    return Layout(left, right, c, names, copies, through_copy, d)


def case_of(layout: Layout, gpu: Any, packed: dict[str, PackedMatrix]) -> Case:
    """Return what the choice of a tier depends on."""
    c = layout.c
    left, right = layout.names
    return Case(
        c.rows,
        c.columns,
        layout.left.depth,
        c.batch,
        gpu.capability,
        gpu.multiprocessors,
        (layout.left.k_major, layout.right.k_major),
        (
            packed[left].precision if left in packed else None,
            packed[right].precision if right in packed else None,
        ),
    )


def job_of(
    layout: Layout, choice: Choice, scalars: Scalars, packed: dict[str, PackedMatrix]
) -> Job:
    """Return the product as launches on tensor cores."""

    def factor_of(name: str, operand: Operand) -> Factor:
        factor = Factor(name, operand, choice.tier, choice.fallback, arch=choice.arch)
        if name not in packed:
            return factor
        if packed[name].layout != factor.packed():
            raise ShapeError(
                f"{name} is packed as {packed[name].shape}, but this product would have to "
                "broadcast it: pack the broadcast array"
            )
        return replace(factor, kept=packed[name].address)

    left, right = layout.names
    factors = factor_of(left, layout.left), factor_of(right, layout.right)
    d = layout.d if scalars.beta else None
    return Job(*factors, layout.c, choice, scalars.alpha, scalars.beta, d=d)


def _factor(name: str, array: ArrayDescriptor, sizes: Sizes, copies: dict[str, Shape]) -> Stack:
    """Return the operand as a readable stack; add to `copies` if it must be copied first."""
    row = name == "a"
    stack = shapes.stack_of(array.shape, array.strides, sizes.stack, row)
    if stack is not None and (stack if row else stack.transposed).operand() is not None:
        return stack
    # Copy the array in its own shape, or broadcast to the whole stack if it broadcasts in part.
    for shape in (tuple(array.shape), (*sizes.stack, *array.shape[-2:])):
        copies[name] = shape
        stack = shapes.stack_of(shape, shapes.contiguous(shape), sizes.stack, row)
        if stack is not None:
            break
    assert stack is not None
    return stack


def _added(arrays: dict[str, ArrayDescriptor], sizes: Sizes) -> Stack | None:
    """Return c, broadcast to the result, as matrices that are read in place.

    None if the matrices are not equally spaced, or if c may be `out`: the caller then
    copies another c there first.
    """
    c, out = arrays["c"], arrays.get("out")
    if out is not None and (c.shape, c.strides) == (out.shape, out.strides):
        return None
    missing = len(sizes.result) - len(c.shape)
    lengths = (1,) * missing + tuple(c.shape)
    strides = (0,) * missing + tuple(c.strides)
    steps = tuple(0 if n == 1 else step for n, step in zip(lengths, strides, strict=True))
    full = _full_strides(steps, sizes)
    return shapes.stack_of(sizes.matrices, full, sizes.stack, row=True)


def _full_strides(strides: Shape, sizes: Sizes) -> Shape:
    """Return the strides of a result with the axes of length 1 that 1-D operands leave out."""
    ends = list(strides[len(sizes.stack) :])
    columns = ends.pop() if sizes.has_columns else 1
    rows = ends.pop() if sizes.has_rows else sizes.n
    return (*strides[: len(sizes.stack)], rows, columns)


def _may_overlap(x: ArrayDescriptor, y: ArrayDescriptor) -> bool:
    """Whether the address ranges of two arrays intersect."""
    (x0, x1), (y0, y1) = (shapes.extent(z.shape, z.strides) for z in (x, y))
    return x.address + 4 * x0 < y.address + 4 * y1 and y.address + 4 * y0 < x.address + 4 * x1


def _overlap(x: ArrayDescriptor, y: ArrayDescriptor) -> bool:
    """Whether two arrays share an element, by NumPy's test, which reads no memory."""
    if math.prod(x.shape) == 0 or math.prod(y.shape) == 0:
        return False
    return bool(np.shares_memory(np.asarray(_View(x)), np.asarray(_View(y))))


class _View:
    """An array as NumPy's array interface describes it."""

    def __init__(self, array: ArrayDescriptor) -> None:
        self.__array_interface__ = {
            "version": 3,
            "shape": tuple(array.shape),
            "strides": tuple(4 * stride for stride in array.strides),
            "typestr": "<f4",
            "data": (array.address, True),
        }


def _place(device: int) -> str:
    return "on the host" if device == HOST else f"on GPU {device}"
