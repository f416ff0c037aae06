"""Values of the LLVM IR under construction, which behave as NumPy arrays do.

The NumPy tier's generated code and the functions of arithmetic/ run on these instead of arrays, so
what an instruction computes is written down once. A value is `vector` (one element for each lane of
a warp) or uniform (one for all lanes), as an array of the NumPy tier may have axes of length 1.

Shortcuts such as `if tiny.any()` are never taken: `any` is True and `all` is False.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.errors import TierError

if TYPE_CHECKING:
    from gemmlab.emulator.native.builder import Function

BOOL, U8, U16, U32, U64 = (np.dtype(t) for t in ("?", "u1", "u2", "u4", "u8"))
I32, I64, F16, F32, F64 = (np.dtype(t) for t in ("i4", "i8", "f2", "f4", "f8"))
NAN32 = 0x7FFFFFFF  # the NaN that the hardware returns


class NotCovered(TierError):
    """Something that only the NumPy tier can run; `instruction` is its index, where known.

    Whatever else is raised while code is traced is a bug here.
    """

    instruction: int | None = None


def ir_type(dtype: np.dtype, vector: bool = False) -> str:
    """LLVM's name of a type."""
    bits = 8 * dtype.itemsize
    if dtype.kind == "f":
        name = {16: "half", 32: "float", 64: "double"}[bits]
    else:
        name = "i1" if dtype == BOOL else f"i{bits}"
    return f"<{WARP} x {name}>" if vector else name


def literal(value: np.generic, vector: bool = False) -> str:
    """A constant, without its type."""
    dtype = value.dtype
    if dtype == BOOL:
        text = "true" if value else "false"
    elif dtype.kind != "f":
        text = str(int(value))
    elif dtype == F16:
        text = f"0xH{int(value.view(U16)):04X}"
    elif dtype == F32:  # as the bits of the double of that value
        bits = int(value.view(U32))
        if bits >> 23 & 0xFF == 0xFF:
            wide = (bits >> 31) << 63 | 0x7FF << 52 | (bits & 0x7FFFFF) << 29
        else:
            wide = int(value.astype(F64).view(U64))
        text = f"0x{wide:016X}"
    else:
        text = f"0x{int(value.view(U64)):016X}"
    return f"splat ({ir_type(dtype)} {text})" if vector else text


def apply(ufunc: Any, *operands: Any) -> Value:
    """A NumPy function of values."""
    result: Value = ufunc(*operands)
    return result


def select(condition: Any, yes: Any, no: Any) -> Any:
    """The NumPy tier's `select`, also where all is known now."""
    if any(isinstance(x, Value) for x in (condition, yes, no)):
        return where(condition, yes, no)
    return np.where(condition, yes, no)[()]


def where(condition: Any, yes: Any, no: Any) -> Value:
    """np.where"""
    values = [x for x in (yes, no) if isinstance(x, Value)]
    f = (values[0] if values else condition).f
    dtype = np.result_type(*(x.dtype if isinstance(x, Value) else _scalar(x) for x in (yes, no)))
    if not isinstance(condition, Value):
        condition = f.constant(np.bool_(_scalar(condition)))
    elif condition.dtype != BOOL:
        condition = condition.astype(BOOL)
    vector = condition.vector or any(x.vector for x in values)
    loose = len(values) == 2 and all(x.loose for x in values)

    def side(x: Any) -> Value:
        if isinstance(x, Value):
            return (x if loose else x.astype(dtype)).spread(vector)
        return f.constant(np.asarray(x).astype(dtype)[()], vector)

    name = f.assign(f"select {condition.typed}, {side(yes).typed}, {side(no).typed}")
    return Value(f, name, dtype, vector, loose)


def _operator(ufunc: Any) -> Callable[[Any, Any], Value]:
    return lambda a, b: ufunc(a, b)


def _reflected(ufunc: Any) -> Callable[[Any, Any], Value]:
    return lambda a, b: ufunc(b, a)


class Value:
    """One SSA value. `loose`: its NaNs have any bits, and are the hardware's when someone looks."""

    __slots__ = ("affine", "dtype", "f", "loose", "name", "vector")

    def __init__(
        self, f: Function, name: str, dtype: np.dtype, vector: bool, loose: bool = False
    ) -> None:
        self.f, self.name, self.dtype, self.vector, self.loose = f, name, dtype, vector, loose
        # Another vector, and the uniform value that this one is more in every lane.
        self.affine: tuple[Value, Value] | None = None

    @property
    def type(self) -> str:
        return ir_type(self.dtype, self.vector)

    @property
    def typed(self) -> str:
        return f"{self.type} {self.name}"

    @property
    def is_number(self) -> bool:
        """A constant that is not NaN."""
        constant = not self.name.startswith(("%", "<"))
        return constant and (self.dtype.kind != "f" or "0x7FF" not in self.name)

    @property
    def size(self) -> int:
        return WARP if self.vector else 1

    def __bool__(self) -> bool:
        raise NotCovered("a Python decision about a value that is not known yet")

    def any(self) -> bool:
        return True

    def all(self) -> bool:
        return False

    def copy(self) -> Self:
        return self

    def __getitem__(self, index: tuple[()]) -> Self:
        """`x[()]`, which makes a scalar of an array with no axes."""
        if index != ():
            raise NotCovered("picking lanes out of a value")
        return self

    def make(self, text: str, dtype: np.dtype, vector: bool | None = None) -> Value:
        """The value that an instruction makes."""
        vector = self.vector if vector is None else vector
        return Value(self.f, self.f.assign(text), dtype, vector)

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotCovered("an array made of a value")

    if not TYPE_CHECKING:  # which knows what a value has

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("__array"):
                self.__array__()
            if hasattr(np.ndarray, name):
                raise NotCovered(f"{name} of an array")
            raise AttributeError(f"a value has no {name}")

    def _number(self) -> NoReturn:
        raise NotCovered("a Python number made of a value that is not known yet")

    __int__ = __index__ = __float__ = __complex__ = __len__ = _number

    # Forms of the same value

    def spread(self, vector: bool = True) -> Value:
        """The same for every lane."""
        if self.vector or not vector:
            return self
        return self.f.splat(self)

    def settled(self) -> Value:
        """With the hardware's NaN where it is a NaN."""
        if not self.loose:
            return self
        self.loose = False
        nan = literal(np.uint32(NAN32).view(F32), self.vector)
        is_nan = self.f.assign(f"fcmp uno {self.typed}, {self.name}")
        condition = ir_type(BOOL, self.vector)
        name = self.f.assign(f"select {condition} {is_nan}, {self.type} {nan}, {self.typed}")
        self.loose = True
        return Value(self.f, name, self.dtype, self.vector)

    def loosened(self) -> Value:
        return Value(self.f, self.name, self.dtype, self.vector, loose=True)

    def _renamed(self, dtype: np.dtype) -> Value:
        """The same bits of another type that LLVM does not tell apart."""
        value = Value(self.f, self.name, dtype, self.vector)
        value.affine = self.affine
        return value

    def view(self, dtype: Any) -> Value:
        """The same bits."""
        dtype = np.dtype(dtype)
        if dtype.itemsize != self.dtype.itemsize:
            raise NotCovered("a view of another width")
        if dtype == self.dtype:
            return self
        source = self.settled()
        if dtype.kind == "f" or source.dtype.kind == "f":
            target = ir_type(dtype, self.vector)
            return source.make(f"bitcast {source.typed} to {target}", dtype)
        return self._renamed(dtype)

    def astype(self, dtype: Any) -> Value:
        """The same number, or for integers its low bits."""
        to, source = np.dtype(dtype), self.settled()
        if to == source.dtype:
            return source
        have, want = source.dtype.kind, to.kind
        target = ir_type(to, self.vector)
        if to == F16 and source.dtype != F32:
            return source._to_half()
        if want == "b":
            zero = source.f.constant(source.dtype.type(0))
            return source != zero
        if have == "f" and want == "f":
            word = "fptrunc" if to.itemsize < source.dtype.itemsize else "fpext"
        elif have == "f":
            word = "fptosi" if want == "i" else "fptoui"
        elif want == "f":
            word = "sitofp" if have == "i" else "uitofp"
        elif to.itemsize == source.dtype.itemsize and have != "b":
            return self._renamed(to)
        elif to.itemsize < source.dtype.itemsize:
            word = "trunc"
        else:
            word = "sext" if have == "i" else "zext"
        return source.make(f"{word} {source.typed} to {target}", to)

    def _to_half(self) -> Value:
        """By way of float32, which LLVM can always convert from."""
        nearest = self.astype(F32)
        if self.dtype != F64:  # whole numbers that float32 does not hold are too large anyway
            return nearest.astype(F16)
        # Of the two float32 around a number that lies between, the one whose last bit is 1.
        bits, back = nearest.view(I32), nearest.astype(F64)
        up = apply(np.abs, back) < apply(np.abs, self)
        odd = where(up, bits + 1, bits - 1).view(F32)
        exact = (back == self) | (back != back) | (bits & 1 == 1)
        return where(exact, nearest, odd).astype(F16)

    # Operators and NumPy's protocols

    __add__, __radd__ = _operator(np.add), _reflected(np.add)
    __sub__, __rsub__ = _operator(np.subtract), _reflected(np.subtract)
    __mul__, __rmul__ = _operator(np.multiply), _reflected(np.multiply)
    __truediv__, __rtruediv__ = _operator(np.divide), _reflected(np.divide)
    __floordiv__, __rfloordiv__ = _operator(np.floor_divide), _reflected(np.floor_divide)
    __mod__, __rmod__ = _operator(np.remainder), _reflected(np.remainder)
    __and__, __rand__ = _operator(np.bitwise_and), _reflected(np.bitwise_and)
    __or__, __ror__ = _operator(np.bitwise_or), _reflected(np.bitwise_or)
    __xor__, __rxor__ = _operator(np.bitwise_xor), _reflected(np.bitwise_xor)
    __lshift__, __rlshift__ = _operator(np.left_shift), _reflected(np.left_shift)
    __rshift__, __rrshift__ = _operator(np.right_shift), _reflected(np.right_shift)
    __lt__, __le__ = _operator(np.less), _operator(np.less_equal)
    __gt__, __ge__ = _operator(np.greater), _operator(np.greater_equal)
    __eq__, __ne__ = _operator(np.equal), _operator(np.not_equal)  # type: ignore[assignment]

    def __neg__(self) -> Value:
        return apply(np.negative, self)

    def __invert__(self) -> Value:
        return apply(np.invert, self)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from gemmlab.emulator.native.ufuncs import UFUNCS

        emit, dtype = UFUNCS.get(ufunc.__name__), kwargs.pop("dtype", None)
        if emit is None or method != "__call__" or kwargs:
            raise NotCovered(f"np.{ufunc.__name__}")
        operands = [x if isinstance(x, Value) else _scalar(x) for x in inputs]
        kinds = tuple(type(x) if _is_python(x) else x.dtype for x in operands)
        *wanted, result = _resolve(ufunc, kinds, dtype and np.dtype(dtype))
        vector = any(isinstance(x, Value) and x.vector for x in operands)
        f = self.f
        operands = [_cast(x, t) for x, t in zip(operands, wanted, strict=True)]
        values = [
            x.spread(vector) if isinstance(x, Value) else f.constant(x, vector) for x in operands
        ]
        made = emit(f, result, *values)
        if ufunc in (np.add, np.subtract) and result.kind in "iu":
            made.affine = _affine(ufunc, operands[0], operands[1], result)
        elif ufunc in (np.multiply, np.left_shift) and result.kind in "iu":
            made.affine = _scaled(ufunc, operands[0], operands[1], result)
        return made

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any], kwargs: Any
    ) -> Any:
        from gemmlab.emulator.native.ufuncs import FUNCTIONS

        emit = FUNCTIONS.get(function.__name__)
        if emit is None or kwargs:
            raise NotCovered(f"np.{function.__name__}")
        return emit(self.f, *args)


def _cast(x: Any, dtype: np.dtype) -> Any:
    """A value or a constant as the type that NumPy computes in."""
    return x.astype(dtype) if isinstance(x, Value) else np.asarray(x).astype(dtype)[()]


# Operands below are of the result's type already: NumPy adds int64 and uint64 as float64.


def _affine(ufunc: np.ufunc, a: Any, b: Any, dtype: np.dtype) -> tuple[Value, Value] | None:
    """How a sum or a difference of a vector and something uniform follows from the vector."""
    if ufunc is np.add and not (isinstance(a, Value) and a.vector):
        a, b = b, a
    if not isinstance(a, Value) or not a.vector or isinstance(b, Value) and b.vector:
        return None
    root, moved = a.affine or (a, dtype.type(0))
    moved = moved.astype(dtype)  # a register's type may have changed since
    return root, moved + b if ufunc is np.add else moved - b


def _scaled(ufunc: np.ufunc, a: Any, b: Any, dtype: np.dtype) -> tuple[Value, Value] | None:
    """The same for a multiple: elements of an array lie at multiples of an index."""
    if ufunc is np.multiply and not (isinstance(a, Value) and a.affine):
        a, b = b, a
    if not isinstance(a, Value) or a.affine is None or isinstance(b, Value) and b.vector:
        return None
    root, moved = a.affine
    key = ufunc.__name__, root.name, b.name if isinstance(b, Value) else str(b)
    if key not in a.f.multiples:
        a.f.multiples[key] = apply(ufunc, root.astype(dtype), b)
    return a.f.multiples[key], apply(ufunc, moved.astype(dtype), b)


def _is_python(x: Any) -> bool:
    return isinstance(x, (bool, int, float)) and not isinstance(x, np.generic)


def _scalar(x: Any) -> Any:
    """A constant operand: Python numbers stay as they are, they take the other operand's type."""
    if _is_python(x):
        return x
    if isinstance(x, np.generic) or isinstance(x, np.ndarray) and x.ndim == 0:
        return np.asarray(x)[()]
    raise NotCovered(f"an operand that is a {type(x).__name__}")


@cache
def _resolve(
    ufunc: np.ufunc, kinds: tuple[Any, ...], dtype: np.dtype | None
) -> tuple[np.dtype, ...]:
    """The types that NumPy computes in: of the operands, then of the result."""
    if dtype is not None:
        return (dtype,) * (len(kinds) + 1)
    found: tuple[np.dtype, ...] = ufunc.resolve_dtypes((*kinds, None))
    if found[-1].kind == "f" and not any(getattr(x, "kind", "f") == "f" for x in kinds):
        raise TypeError(f"np.{ufunc.__name__} of {kinds[0]} and {kinds[-1]} is rounded to float64")
    return found
