"""Describe the operands of a product on a GPU; import arrays of other libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemmlab.errors import ArrayError, DTypeError
from gemmlab.linalg import frameworks, recent
from gemmlab.linalg.arrays import ArrayDescriptor, Framework
from gemmlab.linalg.frameworks import carrier, find
from gemmlab.linalg.operands import NAMES, PLAIN, Arrays, Operands, Scalars, device_mismatch
from gemmlab.linalg.packed import PackedMatrix


def describe(
    framework: Framework | None,
    given: Arrays,
    scalars: Scalars,
    precision: str | None,
    stream: int | None,
) -> Operands:
    """Describe a, b, c and out, of which a is on a GPU.

    `framework` is that of a; None for a packed operand or an array of another library. `stream` is
    the handle that the caller gave. Raises DTypeError and ArrayError.
    """
    a, b, c, out = given
    arrays, restore = given, None
    packed: dict[str, PackedMatrix] = {}
    kind = type(a)
    if (
        framework is None
        or type(b) is not kind
        or not (c is None or type(c) is kind)
        or not (out is None or type(out) is kind)
    ):
        is_foreign = framework is None and kind is not PackedMatrix
        own_type = None if framework is None else kind
        if framework is None:
            framework = carrier() if is_foreign else a.framework
        arrays, packed = _imported(framework, own_type, given, stream)
        if arrays[3] is not out or is_foreign:
            restore = _restorer(a, out)
    try:
        describe = framework.describe
        descriptors = [None if x is None else describe(x) for x in arrays]
    except ArrayError:
        descriptors = _described_by_name(framework, arrays)
    options = precision, stream, restore, out
    if scalars is PLAIN and not packed and all(x is None for x in options):
        recent.keep_similar(framework, arrays, descriptors)
    rest = scalars, precision, framework, packed, stream, restore
    return Operands(given, arrays, descriptors, *rest)


def describe_one(
    framework: Framework | None, array: Any, stream: int | None
) -> tuple[Framework, Any, ArrayDescriptor]:
    """Describe a single array `a` on a GPU; return its framework and the imported array, too."""
    if framework is None:
        framework = carrier()
        array = _import(framework, "a", array, stream)
    return framework, array, frameworks.describe(framework, array, "a")


def _described_by_name(framework: Framework, arrays: Arrays) -> list[ArrayDescriptor | None]:
    """Describe operands; errors name the operand, which costs time."""
    pairs = zip(NAMES, arrays, strict=True)
    return [None if x is None else frameworks.describe(framework, x, n) for n, x in pairs]


def _imported(
    framework: Framework, own_type: type | None, given: Arrays, stream: int | None
) -> tuple[Arrays, dict[str, PackedMatrix]]:
    """Return all operands as arrays of the framework, and the packed operands among them.

    Arrays of `own_type` belong to the framework; the library of others is looked up. For arrays of
    other libraries, DLPack makes the product's stream wait for theirs.
    """
    packed: dict[str, PackedMatrix] = {}
    arrays = []
    for name, array in zip(NAMES, given, strict=True):
        if isinstance(array, PackedMatrix):
            if (name, array.side) not in (("a", "left"), ("b", "right")):
                raise ArrayError(f"{name} is packed for the {array.side} side of a product")
            packed[name], array = array, array.array
        if array is not None and type(array) is not own_type:
            owner, on_host = frameworks.locate(array, name)
            if owner is not framework:
                if on_host:
                    raise device_mismatch("a", given[0], "on a GPU", name, array, "on the host")
                array = _import(framework, name, array, stream)
        arrays.append(array)
    a, b, c, out = arrays
    return (a, b, c, out), packed


def _import(framework: Framework, name: str, array: Any, stream: int | None) -> Any:
    """Import an array of another library without a copy. Raises ArrayError."""
    if name == "out" and find(array, name) is None:
        rule = "out must be an array of PyTorch or CuPy, because DLPack may give read-only memory"
        raise ArrayError(f"out is a {type(array).__name__}: {rule}")
    try:
        with framework.entered(array.__dlpack_device__()[1], stream):
            return framework.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ArrayError(f"{name} cannot be imported through DLPack: {error}") from error


def _restorer(a: Any, out: Any) -> Callable[[Any], Any]:
    """Return the function that converts a result to `out`, or to an array of a's library.

    Raises DTypeError if that library cannot import arrays.
    """
    if out is not None:
        return lambda result: out
    if not hasattr(a, "__array_namespace__"):
        rule = "its library has no __array_namespace__ to return the result with"
        raise DTypeError(f"a is a {type(a).__name__}: {rule}")
    restore: Callable[[Any], Any] = a.__array_namespace__().from_dlpack
    return restore
