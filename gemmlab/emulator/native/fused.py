"""a·b + c of float32 with one rounding, as a NumPy ufunc of compiled code.

Most kernels spend half of their time on the NumPy tier in it: NumPy has no such operation, and
`numerics.rounded_fma32` takes nine, ten times as long. Compiling takes a tenth of a second, or a
few milliseconds where the code is in the disk cache.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from gemmlab.emulator.arithmetic import numerics
from gemmlab.emulator.native.compiler import Library, missing

# Thread-instructions on the NumPy tier above which it pays: it has run for about as long then.
WORTH = 10_000_000
_executed = 0  # by this process, on the NumPy tier

_TERMS = 4  # a, b, c and the result, of 4 bytes each
_FLOAT = 11  # NPY_FLOAT, NumPy's number of float32
# PyUFunc_FromFuncAndData, by its index in NumPy's C API: the functions, their data, the types of
# their terms, the number of functions, of inputs, of outputs; identity, name, text, unused.
_MAKE = 1
_NO_IDENTITY = -1
_SIGNATURE = [ctypes.c_void_p] * 3 + [ctypes.c_int] * 4 + [ctypes.c_char_p] * 2 + [ctypes.c_int]


def executed(instructions: int) -> None:
    """Tell how many thread-instructions a launch has executed on the NumPy tier.

    Once there are enough, `numerics.fma32` becomes faster. Its bits are the same.
    """
    global _executed
    _executed += instructions
    if _executed > WORTH and numerics.compiled_fma32 is None and missing() is None:
        numerics.compiled_fma32 = fma32()


@cache
def fma32() -> Any:
    """Return the ufunc. Its NaNs are the canonical one."""
    from gemmlab.emulator.native.code import kept  # takes long to import

    library = Library(kept("fma32", _text, thoroughly=True), ["loop"])
    functions, data = (ctypes.c_void_p * 1)(library["loop"]), (ctypes.c_void_p * 1)()
    types, name = ctypes.create_string_buffer(bytes([_FLOAT] * _TERMS)), b"fma32"
    _KEPT.extend((library, functions, data, types, name))
    addresses = (ctypes.addressof(x) for x in (functions, data, types))
    api: Any = np._core._multiarray_umath._UFUNC_API  # type: ignore[attr-defined]
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    table = pointer(("PyCapsule_GetPointer", ctypes.pythonapi))(api, None)
    make = ctypes.PYFUNCTYPE(ctypes.py_object, *_SIGNATURE)(
        (ctypes.c_size_t * (_MAKE + 1)).from_address(table)[_MAKE]
    )
    return make(*addresses, 1, _TERMS - 1, 1, _NO_IDENTITY, name, b"a*b + c, rounded once", 0)


_KEPT: list[Any] = []  # what the ufunc refers to


def _text() -> str:
    """The IR of a ufunc's loop: of dense arrays, which LLVM vectorizes, and of others."""
    return f"""
declare float @llvm.fma.f32(float, float, float)
define void @loop(ptr %pointers, ptr %sizes, ptr %strides, ptr %data) #0 {{
  %size = load i64, ptr %sizes
  {_each("%at# = getelementptr ptr, ptr %pointers, i64 #")}
  {_each("%p# = load ptr, ptr %at#")}
  {_each("%by# = getelementptr i64, ptr %strides, i64 #")}
  {_each("%s# = load i64, ptr %by#")}
  {_each("%dense# = icmp eq i64 %s#, 4")}
  %inputs = and i1 %dense0, %dense1
  %rest = and i1 %dense2, %dense3
  %dense = and i1 %inputs, %rest
  %is_empty = icmp eq i64 %size, 0
  br i1 %is_empty, label %end, label %start
start:
  br i1 %dense, label %dense.loop, label %other.loop
{_loop("dense", "%dense.x# = getelementptr float, ptr %p#, i64 %dense.i")}
{_loop("other", "%o# = mul i64 %s#, %other.i", "%other.x# = getelementptr i8, ptr %p#, i64 %o#")}
end:
  ret void
}}
"""


def _each(line: str, count: int = _TERMS) -> str:
    """The line for each term, whose number replaces #."""
    return "\n  ".join(line.replace("#", str(i)) for i in range(count))


def _loop(name: str, *places: str) -> str:
    """A loop over the elements; `places` are lines that find those of each term."""
    lines = f"""
{name}.loop:
  $i = phi i64 [ 0, %start ], [ $next, $loop ]
  {" ".join(f"{chr(10)}  {_each(place)}" for place in places)}
  {_each("$v# = load float, ptr $x#, align 4", _TERMS - 1)}
  $sum = call float @llvm.fma.f32(float $v0, float $v1, float $v2)
  $is_nan = fcmp uno float $sum, $sum
  $result = select i1 $is_nan, float 0x7FFFFFFFE0000000, float $sum
  store float $result, ptr $x3, align 4
  $next = add nuw nsw i64 $i, 1
  $more = icmp ult i64 $next, %size
  br i1 $more, label $loop, label %end"""
    return lines.replace("$", f"%{name}.")
