"""Values of the LLVM IR under construction, with the interface of NumPy arrays.

The NumPy tier's generated code and the functions of arithmetic/ run on values in place of arrays,
so each instruction's computation is defined in one place. A value is a vector, with one element per
lane of a warp, or uniform, with one element for all lanes. This corresponds to an array of the
NumPy tier that has axes of length 1.

Shortcuts such as `if tiny.any()` are never taken: `any` returns True and `all` returns False.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.errors import TierError

BOOL, U8, U16, U32, U64 = (np.dtype(t) for t in ("?", "u1", "u2", "u4", "u8"))
I32, I64, F16, F32, F64 = (np.dtype(t) for t in ("i4", "i8", "f2", "f4", "f8"))
# sets of lanes, as bits
ALL, NONE, LOWER_HALF = np.uint32(0xFFFFFFFF), np.uint32(0), np.uint32(0xFFFF)
NAN32 = 0x7FFFFFFF  # the canonical NaN, which the hardware returns


class NotCovered(TierError):
    """The native tier has no code for something that the NumPy tier supports.

    `instruction`: the instruction's index, if known. Any other exception during tracing is a bug.
    """

    instruction: int | None = None


def ir_type(dtype: np.dtype, vector: bool = False) -> str:
    """Return LLVM's name of a type."""
    bits = 8 * dtype.itemsize
    if dtype.kind == "f":
        name = {16: "half", 32: "float", 64: "double"}[bits]
    else:
        name = "i1" if dtype == BOOL else f"i{bits}"
    return f"<{WARP} x {name}>" if vector else name


def literal(value: np.generic, vector: bool = False) -> str:
    """Return a constant without its type."""
    dtype = value.dtype
    if dtype == BOOL:
        text = "true" if value else "false"
    elif dtype.kind != "f":
        text = str(int(value))
    elif dtype == F16:
        text = f"0xH{int(value.view(U16)):04X}"
    elif dtype == F32:  # LLVM writes a float constant as the bits of the equal double
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
    """Apply a NumPy function to values."""
    result: Value = ufunc(*operands)
    return result


def select(condition: Any, yes: Any, no: Any) -> Any:
    """Replaces the NumPy tier's `select`; it also accepts constants."""
    if any(isinstance(x, Value) for x in (condition, yes, no)):
        return where(condition, yes, no)
    return np.where(condition, yes, no)[()]


def where(condition: Any, yes: Any, no: Any) -> Value:
    """np.where for values and constants."""
    values = [x for x in (yes, no) if isinstance(x, Value)]
    f = (values[0] if values else condition).f
    dtype = np.result_type(*(x.dtype if isinstance(x, Value) else _scalar(x) for x in (yes, no)))
    if not isinstance(condition, Value):
        condition = f.constant(np.bool_(_scalar(condition)))
    elif condition.dtype != BOOL:
        condition = condition.astype(BOOL)
    vector = condition.vector or any(x.vector for x in values)
    any_nan = len(values) == 2 and all(x.any_nan for x in values)

    def side(x: Any) -> Value:
        if isinstance(x, Value):
            return (x if any_nan else x.astype(dtype)).broadcast(vector)
        return f.constant(np.asarray(x).astype(dtype)[()], vector)

    name = f.assign(f"select {condition.typed}, {side(yes).typed}, {side(no).typed}")
    return Value(f, name, dtype, vector, any_nan)


class Emitter(Protocol):
    """The function under construction, to which values append instructions."""

    ufuncs: Mapping[str, Callable[..., Value]]  # NumPy's universal functions
    functions: Mapping[str, Callable[..., Any]]  # its other functions
    multiples: dict[tuple[str, str, str], Value]  # address root × constant

    def do(self, text: str) -> None: ...

    def declare(self, text: str) -> None: ...

    def assign(self, text: str) -> str: ...

    def constant(self, value: Any, vector: bool = False) -> Value: ...

    def splat(self, x: Value) -> Value: ...

    def call(self, name: str, dtype: np.dtype, vector: bool, *operands: Value) -> Value: ...

    def invoke(self, function: Pointer, result: np.dtype | None, *operands: Operand) -> Value: ...

    def lanes(self, bits: Value) -> Value: ...

    def bits(self, condition: Value) -> Value: ...

    def pointer(self, name: str) -> Pointer: ...

    def load(
        self, where: Pointer, dtype: np.dtype, vector: bool = False, align: int = 0
    ) -> Value: ...

    def store(self, where: Pointer, value: Value, align: int = 0) -> None: ...

    def reserve(self, kind: str) -> Pointer: ...

    def load_pointer(self, where: Pointer) -> Pointer: ...


def _operator(ufunc: Any) -> Callable[[Any, Any], Value]:
    return lambda a, b: ufunc(a, b)


def _reflected(ufunc: Any) -> Callable[[Any, Any], Value]:
    return lambda a, b: ufunc(b, a)


class Value:
    """An SSA value. `any_nan`: its NaNs may have any payload, and become canonical when their bits
    are read."""

    __slots__ = ("affine", "any_nan", "dtype", "f", "name", "vector")

    def __init__(
        self, f: Emitter, name: str, dtype: np.dtype, vector: bool, any_nan: bool = False
    ) -> None:
        self.f, self.name, self.dtype, self.vector, self.any_nan = f, name, dtype, vector, any_nan
        # (root, offset): this vector is root plus the uniform value offset.
        self.affine: tuple[Value, Value] | None = None

    @property
    def type(self) -> str:
        return ir_type(self.dtype, self.vector)

    @property
    def typed(self) -> str:
        return f"{self.type} {self.name}"

    @property
    def is_number(self) -> bool:
        """Whether this is a constant other than NaN."""
        constant = not self.name.startswith(("%", "<"))
        return constant and (self.dtype.kind != "f" or "0x7FF" not in self.name)

    @property
    def size(self) -> int:
        return WARP if self.vector else 1

    def __bool__(self) -> bool:
        raise NotCovered("a Python decision that depends on a run-time value")

    def any(self) -> bool:
        return True

    def all(self) -> bool:
        return False

    def copy(self) -> Self:
        return self

    def __getitem__(self, index: tuple[()]) -> Self:
        """`x[()]`, which turns an array without axes into a scalar."""
        if index != ():
            raise NotCovered("indexing of lanes")
        return self

    def make(self, text: str, dtype: np.dtype, vector: bool | None = None) -> Value:
        """Append an instruction and return its result."""
        vector = self.vector if vector is None else vector
        return Value(self.f, self.f.assign(text), dtype, vector)

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotCovered("an array made from a run-time value")

    if not TYPE_CHECKING:  # hidden from mypy, which knows the attributes of a value

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("__array"):
                self.__array__()
            if hasattr(np.ndarray, name):
                raise NotCovered(f"ndarray.{name}")
            raise AttributeError(f"a value has no attribute {name!r}")

    def _number(self) -> NoReturn:
        raise NotCovered("a Python number made from a run-time value")

    __int__ = __index__ = __float__ = __complex__ = __len__ = _number

    # Conversions

    def broadcast(self, vector: bool = True) -> Value:
        """Broadcast a uniform value to all lanes."""
        if self.vector or not vector:
            return self
        return self.f.splat(self)

    def canonical(self) -> Value:
        """Replace NaNs by the canonical NaN."""
        if not self.any_nan:
            return self
        self.any_nan = False
        nan = literal(np.uint32(NAN32).view(F32), self.vector)
        is_nan = self.f.assign(f"fcmp uno {self.typed}, {self.name}")
        condition = ir_type(BOOL, self.vector)
        name = self.f.assign(f"select {condition} {is_nan}, {self.type} {nan}, {self.typed}")
        self.any_nan = True
        return Value(self.f, name, self.dtype, self.vector)

    def with_any_nan(self) -> Value:
        return Value(self.f, self.name, self.dtype, self.vector, any_nan=True)

    def _renamed(self, dtype: np.dtype) -> Value:
        """Reinterpret as another type with the same LLVM type."""
        value = Value(self.f, self.name, dtype, self.vector)
        value.affine = self.affine
        return value

    def view(self, dtype: Any) -> Value:
        """Reinterpret the bits as another type of equal width."""
        dtype = np.dtype(dtype)
        if dtype.itemsize != self.dtype.itemsize:
            raise NotCovered("a view with another element width")
        if dtype == self.dtype:
            return self
        source = self.canonical()
        if dtype.kind == "f" or source.dtype.kind == "f":
            target = ir_type(dtype, self.vector)
            return source.make(f"bitcast {source.typed} to {target}", dtype)
        return self._renamed(dtype)

    def astype(self, dtype: Any) -> Value:
        """Convert the number; integers are truncated to their low bits."""
        to, source = np.dtype(dtype), self.canonical()
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
        """Convert to float16 through float32, because LLVM may lack direct conversions."""
        nearest = self.astype(F32)
        if self.dtype != F64:  # integers that float32 cannot represent overflow float16 anyway
            return nearest.astype(F16)
        # Round to odd: of the two float32 neighbours of an inexact number, take the one whose last
        # bit is 1. The second rounding then yields the correctly rounded float16.
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
        emit, dtype = self.f.ufuncs.get(ufunc.__name__), kwargs.pop("dtype", None)
        if emit is None or method != "__call__" or kwargs:
            raise NotCovered(f"np.{ufunc.__name__}")
        operands = [x if isinstance(x, Value) else _scalar(x) for x in inputs]
        kinds = tuple(type(x) if _is_python(x) else x.dtype for x in operands)
        *wanted, result = _resolve(ufunc, kinds, dtype and np.dtype(dtype))
        vector = any(isinstance(x, Value) and x.vector for x in operands)
        f = self.f
        operands = [_cast(x, t) for x, t in zip(operands, wanted, strict=True)]
        values = [
            x.broadcast(vector) if isinstance(x, Value) else f.constant(x, vector) for x in operands
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
        emit = self.f.functions.get(function.__name__)
        if emit is None or kwargs:
            raise NotCovered(f"np.{function.__name__}")
        return emit(self.f, *args)


def _cast(x: Any, dtype: np.dtype) -> Any:
    """Convert a value or constant to NumPy's computation type."""
    return x.astype(dtype) if isinstance(x, Value) else np.asarray(x).astype(dtype)[()]


# Operands below already have the result's type: NumPy adds int64 and uint64 as float64.


def _affine(ufunc: np.ufunc, a: Any, b: Any, dtype: np.dtype) -> tuple[Value, Value] | None:
    """Return the (root, offset) form of a vector plus or minus a uniform value, if it has one."""
    if ufunc is np.add and not (isinstance(a, Value) and a.vector):
        a, b = b, a
    if not isinstance(a, Value) or not a.vector or (isinstance(b, Value) and b.vector):
        return None
    root, moved = a.affine or (a, dtype.type(0))
    moved = moved.astype(dtype)  # conversions may have changed the type since
    return root, moved + b if ufunc is np.add else moved - b


def _scaled(ufunc: np.ufunc, a: Any, b: Any, dtype: np.dtype) -> tuple[Value, Value] | None:
    """The same for a product with a uniform value, as in array indexing."""
    if ufunc is np.multiply and not (isinstance(a, Value) and a.affine):
        a, b = b, a
    if not isinstance(a, Value) or a.affine is None or (isinstance(b, Value) and b.vector):
        return None
    root, moved = a.affine
    key = ufunc.__name__, root.name, b.name if isinstance(b, Value) else str(b)
    if key not in a.f.multiples:
        a.f.multiples[key] = apply(ufunc, root.astype(dtype), b)
    return a.f.multiples[key], apply(ufunc, moved.astype(dtype), b)


def _is_python(x: Any) -> bool:
    return isinstance(x, (bool, int, float)) and not isinstance(x, np.generic)


def _scalar(x: Any) -> Any:
    """Return a constant operand. Python numbers keep their type, which adapts to the other
    operand's."""
    if _is_python(x):
        return x
    if isinstance(x, np.generic) or (isinstance(x, np.ndarray) and x.ndim == 0):
        return np.asarray(x)[()]
    raise NotCovered(f"an operand of type {type(x).__name__}")


@cache
def _resolve(
    ufunc: np.ufunc, kinds: tuple[Any, ...], dtype: np.dtype | None
) -> tuple[np.dtype, ...]:
    """Return the types in which NumPy computes: of each operand, then of the result."""
    if dtype is not None:
        return (dtype,) * (len(kinds) + 1)
    found: tuple[np.dtype, ...] = ufunc.resolve_dtypes((*kinds, None))
    if found[-1].kind == "f" and not any(getattr(x, "kind", "f") == "f" for x in kinds):
        raise TypeError(f"np.{ufunc.__name__} of {kinds[0]} and {kinds[-1]} rounds to float64")
    return found


class Pointer:
    """An address in the emulator's memory."""

    __slots__ = ("f", "name")

    def __init__(self, f: Emitter, name: str) -> None:
        self.f, self.name = f, name

    @property
    def typed(self) -> str:
        return f"ptr {self.name}"

    def at(self, offset: int | Value) -> Pointer:
        """Return the address `offset` bytes further on."""
        if isinstance(offset, int):
            if offset == 0:
                return self
            where = f"i64 {offset}"
        else:
            where = offset.astype(I64).typed
        return Pointer(self.f, self.f.assign(f"getelementptr i8, ptr {self.name}, {where}"))


Operand = Pointer | Value
