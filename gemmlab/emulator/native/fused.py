"""Operations that NumPy lacks, as ufuncs of compiled code.

On the NumPy tier, `float4` spends two thirds of its time in a·b + c of float32 with one rounding,
for which NumPy needs nine operations; the ufunc takes a tenth of the time. `fp16x3` spends a third
in the sums of tensor cores. Compiling takes a tenth of a second, or a few milliseconds if the code
is in the disk cache.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from gemmlab.emulator.arithmetic import compiled
from gemmlab.emulator.native.compiler import Library, missing
from gemmlab.errors import TierError

# Thread-instructions on the NumPy tier after which compiling pays off: they take about as long.
WORTH = 10_000_000
_executed = 0  # by this process, on the NumPy tier


@dataclass(frozen=True)
class Operation:
    """An operation on single elements.

    types: of the inputs, then of the result, as NumPy's letters. lines: IR that computes %result of
    the inputs %v0, %v1, …
    """

    name: str
    types: str
    lines: tuple[str, ...]


FMA32 = Operation(
    "fma32",
    "ffff",
    (
        "%sum = call float @llvm.fma.f32(float %v0, float %v1, float %v2)",
        "%is_nan = fcmp uno float %sum, %sum",  # the result is the canonical NaN
        "%result = select i1 %is_nan, float 0x7FFFFFFFE0000000, float %sum",
    ),
)
ADD_PRODUCT = Operation(
    "add_product",
    "fffii",
    (
        "%product = fmul float %v0, %v1",
        "%scaled = fmul float %product, %v2",
        "%term = fptosi float %scaled to i32",
        "%result = add i32 %v3, %term",
    ),
)
LARGEST_SUM = Operation(
    "largest_sum",
    "hhhh",
    (
        "%sum = add i16 %v0, %v1",
        "%is_larger = icmp sgt i16 %sum, %v2",
        "%result = select i1 %is_larger, i16 %sum, i16 %v2",
    ),
)

# NumPy's letter of a type -> its number there, bytes, LLVM's type.
_TYPES = {"f": (11, 4, "float"), "i": (5, 4, "i32"), "h": (3, 2, "i16")}
# PyUFunc_FromFuncAndData, by its index in NumPy's C API: the functions, their data, the types of
# their terms, the number of functions, of inputs, of outputs; identity, name, text, unused.
_MAKE = 1
_NO_IDENTITY = -1
_SIGNATURE = [ctypes.c_void_p] * 3 + [ctypes.c_int] * 4 + [ctypes.c_char_p] * 2 + [ctypes.c_int]


def executed(instructions: int) -> None:
    """Tell how many thread-instructions a launch has executed on the NumPy tier.

    Once there are enough, the functions of `arithmetic.compiled` are used.
    """
    global _executed
    _executed += instructions
    if _executed <= WORTH or compiled.fma32 is not None or missing() is not None:
        return
    try:
        compiled.add_product, compiled.largest_sum = ufunc(ADD_PRODUCT), ufunc(LARGEST_SUM)
        compiled.fma32 = ufunc(FMA32)
    except TierError:  # no memory for the code: try again after as many instructions
        _executed = 0


@cache
def ufunc(operation: Operation) -> Any:
    """Return the operation as a ufunc."""
    from gemmlab.emulator.native.code import kept  # takes long to import

    image = kept(repr(operation), lambda: _text(operation), thoroughly=True)
    library = Library(image, ["loop"])
    functions, data = (ctypes.c_void_p * 1)(library["loop"]), (ctypes.c_void_p * 1)()
    numbers = bytes(_TYPES[letter][0] for letter in operation.types)
    types, name = ctypes.create_string_buffer(numbers), operation.name.encode()
    _KEPT.extend((library, functions, data, types, name))
    addresses = (ctypes.addressof(x) for x in (functions, data, types))
    api: Any = np._core._multiarray_umath._UFUNC_API  # type: ignore[attr-defined]
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    table = pointer(("PyCapsule_GetPointer", ctypes.pythonapi))(api, None)
    make = ctypes.PYFUNCTYPE(ctypes.py_object, *_SIGNATURE)(
        (ctypes.c_size_t * (_MAKE + 1)).from_address(table)[_MAKE]
    )
    return make(*addresses, 1, len(numbers) - 1, 1, _NO_IDENTITY, name, None, 0)


_KEPT: list[Any] = []  # what the ufuncs refer to


# The loops, and the terms with stride 0 in each; the other terms are dense. The last loop takes any
# strides.
_LOOPS: dict[str, frozenset[int] | None] = {
    "dense": frozenset(),
    "row": frozenset({0}),  # the first input is broadcast along a row
    "other": None,
}


def _text(operation: Operation) -> str:
    """The IR of a ufunc's loops over its elements; LLVM vectorizes all but the last one."""
    terms = [(i, *_TYPES[letter][1:]) for i, letter in enumerate(operation.types)]
    lines = ["%size = load i64, ptr %sizes"]
    for i, _, _ in terms:
        lines += [
            f"%at{i} = getelementptr ptr, ptr %pointers, i64 {i}",
            f"%p{i} = load ptr, ptr %at{i}",
            f"%by{i} = getelementptr i64, ptr %strides, i64 {i}",
            f"%s{i} = load i64, ptr %by{i}",
        ]
    lines += ["%is_empty = icmp eq i64 %size, 0", "br i1 %is_empty, label %end, label %try.dense"]
    names = [*_LOOPS]
    for (name, same), following in zip(_LOOPS.items(), [*names[1:], ""], strict=True):
        lines.append(f"try.{name}:")
        fits = "true"
        for i, nbytes, _ in terms if same is not None else ():
            stride = 0 if same and i in same else nbytes
            lines.append(f"%{name}.is{i} = icmp eq i64 %s{i}, {stride}")
            lines.append(f"%{name}.fit{i} = and i1 {fits}, %{name}.is{i}")
            fits = f"%{name}.fit{i}"
        other = f"%try.{following}" if following else "%end"
        lines.append(f"br i1 {fits}, label %{name}.loop, label {other}")
        lines += _loop(name, same, operation)
    body = "\n  ".join([*lines, "end:", "ret void"])
    # NumPy passes arrays that are the same or do not overlap, so no element depends on another.
    nodes = ["!0 = distinct !{}", '!1 = !{!"llvm.loop.parallel_accesses", !0}']
    nodes += [f"!{2 + i} = distinct !{{!{2 + i}, !1}}" for i in range(len(names))]
    head = "define void @loop(ptr %pointers, ptr %sizes, ptr %strides, ptr %data) #0 {"
    declared = "declare float @llvm.fma.f32(float, float, float)"
    return "\n".join([declared, head, f"  {body}", "}", *nodes])


def _loop(name: str, same: frozenset[int] | None, operation: Operation) -> list[str]:
    """One of `_LOOPS`. `name` precedes the names of its values."""
    *inputs, result = [(i, *_TYPES[letter][1:]) for i, letter in enumerate(operation.types)]
    last, nbytes, kind = result
    lines = [f"%i = phi i64 [ 0, %try.{name} ], [ %next, %loop ]"]
    for i, _, type_ in (*inputs, result):
        if same is None:
            lines += [
                f"%o{i} = mul i64 %s{i}, %i",
                f"%x{i} = getelementptr i8, ptr %p{i}, i64 %o{i}",
            ]
        else:
            at = "0" if i in same else "%i"
            lines.append(f"%x{i} = getelementptr {type_}, ptr %p{i}, i64 {at}")
    each = "!llvm.access.group !0"
    lines += [f"%v{i} = load {kind}, ptr %x{i}, align {size}, {each}" for i, size, kind in inputs]
    lines += [
        *operation.lines,
        f"store {kind} %result, ptr %x{last}, align {nbytes}, {each}",
        "%next = add nuw nsw i64 %i, 1",
        "%more = icmp ult i64 %next, %size",
        f"br i1 %more, label %loop, label %end, !llvm.loop !{2 + [*_LOOPS].index(name)}",
    ]
    own = ["loop", *(line[1:].partition(" = ")[0] for line in lines if " = " in line)]
    named = re.compile(rf"%({'|'.join(own)})(?![\w.])")
    return [f"{name}.loop:", *(named.sub(rf"%{name}.\1", line) for line in lines)]
