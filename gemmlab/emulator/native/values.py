"""Values of the LLVM IR under construction, which behave as NumPy arrays do.

The NumPy tier's generated code and the functions of numerics.py run on these instead of arrays, so
what an instruction computes is written down once. A value is `vector` (one element for each lane of
a warp) or uniform (one for all lanes), as an array of the NumPy tier may have axes of length 1.

Shortcuts such as `if tiny.any()` are never taken: `any` is True and `all` is False.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from gemmlab.emulator.lanes import WARP

if TYPE_CHECKING:
    from gemmlab.emulator.native.builder import Function

BOOL, U8, U16, U32, U64 = (np.dtype(t) for t in ("?", "u1", "u2", "u4", "u8"))
I32, I64, F32, F64 = (np.dtype(t) for t in ("i4", "i8", "f4", "f8"))
NAN32 = 0x7FFFFFFF  # the NaN that the hardware returns


class NotCovered(Exception):
    """Something that only the NumPy tier can run; `instruction` is its index, where one is known."""

    instruction: int | None = None


def ir_type(dtype: np.dtype, vector: bool = False) -> str:
    """LLVM's name of a type."""
    bits = 8 * dtype.itemsize
    if dtype.kind == "f":
        if bits == 16:
            raise NotCovered("half precision")
        name = {32: "float", 64: "double"}[bits]
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

    def make(self, text: str, dtype: np.dtype, vector: bool | None = None) -> Value:
        """The value that an instruction makes."""
        vector = self.vector if vector is None else vector
        return Value(self.f, self.f.assign(text), dtype, vector)

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
        emit = UFUNCS.get(ufunc.__name__)
        if emit is None or method != "__call__" or kwargs:
            raise NotCovered(f"np.{ufunc.__name__}")
        operands = [x if isinstance(x, Value) else _scalar(x) for x in inputs]
        kinds = tuple(x if isinstance(x, type) else x.dtype for x in map(_kind, operands))
        *wanted, result = _resolve(ufunc, kinds)
        vector = any(isinstance(x, Value) and x.vector for x in operands)
        f = self.f
        values = [
            f.constant(np.asarray(x).astype(t)[()], vector)
            if not isinstance(x, Value)
            else x.astype(t).spread(vector)
            for x, t in zip(operands, wanted, strict=True)
        ]
        made = emit(f, result, *values)
        if ufunc in (np.add, np.subtract) and result.kind in "iu":
            made.affine = _affine(ufunc, operands[0], operands[1], result)
        return made

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any], kwargs: Any
    ) -> Any:
        emit = FUNCTIONS.get(function.__name__)
        if emit is None or kwargs:
            raise NotCovered(f"np.{function.__name__}")
        return emit(self.f, *args)


def _affine(ufunc: np.ufunc, a: Any, b: Any, dtype: np.dtype) -> tuple[Value, Value] | None:
    """How a sum or a difference of a vector and something uniform follows from the vector."""
    if ufunc is np.add and not (isinstance(a, Value) and a.vector):
        a, b = b, a
    if not isinstance(a, Value) or not a.vector or a.dtype.itemsize != dtype.itemsize:
        return None
    if isinstance(b, Value) and b.vector:
        return None
    root, moved = a.affine or (a, dtype.type(0))
    return root, moved + b if ufunc is np.add else moved - b


def _scalar(x: Any) -> Any:
    """A constant operand: Python numbers stay as they are, they take the other operand's type."""
    if isinstance(x, (bool, int, float)):
        return x
    if isinstance(x, np.generic) or isinstance(x, np.ndarray) and x.ndim == 0:
        return np.asarray(x)[()]
    raise NotCovered(f"an operand that is a {type(x).__name__}")


def _kind(x: Any) -> Any:
    return type(x) if isinstance(x, (bool, int, float)) else x


@cache
def _resolve(ufunc: np.ufunc, kinds: tuple[Any, ...]) -> tuple[np.dtype, ...]:
    """The types that NumPy computes in: of the operands, then of the result."""
    found: tuple[np.dtype, ...] = ufunc.resolve_dtypes((*kinds, None))
    return found


# What NumPy's functions are in LLVM: (function, result type, operands of one type) -> value

Emitter = Callable[..., Value]


def _plain(integer: str, real: str = "", unsigned: str = "") -> Emitter:
    def emit(f: Function, result: np.dtype, *operands: Value) -> Value:
        first, kind = operands[0], operands[0].dtype.kind
        word = real if kind == "f" else unsigned if kind in "ub" and unsigned else integer
        if not word:
            raise NotCovered(f"{integer or real} of {first.dtype}")
        names = ", ".join(x.name for x in operands)
        return first.make(f"{word} {first.type} {names}", result)

    return emit


def _comparison(signed: str, unsigned: str, real: str) -> Emitter:
    def emit(f: Function, result: np.dtype, a: Value, b: Value) -> Value:
        kind = a.dtype.kind
        word = f"fcmp {real}" if kind == "f" else f"icmp {signed if kind == 'i' else unsigned}"
        return a.make(f"{word} {a.type} {a.name}, {b.name}", BOOL)

    return emit


def intrinsic(name: str, *operands: Value, result: np.dtype | None = None) -> Value:
    """A call of llvm.<name>, of the first operand's type."""
    first = operands[0]
    suffix = f"v{WARP}" if first.vector else ""
    letter = "f" if first.dtype.kind == "f" else "i"
    full = f"llvm.{name}.{suffix}{letter}{8 * first.dtype.itemsize}"
    return first.f.call(full, first.dtype, first.vector, *operands)


def _intrinsic(integer: str, real: str = "", unsigned: str = "") -> Emitter:
    def emit(f: Function, result: np.dtype, *operands: Value) -> Value:
        kind = operands[0].dtype.kind
        word = real if kind == "f" else unsigned if kind in "ub" and unsigned else integer
        if not word:
            raise NotCovered(f"{integer or real} of {operands[0].dtype}")
        return intrinsic(word, *operands).astype(result)

    return emit


def where(condition: Any, yes: Any, no: Any) -> Value:
    """np.where, and the NumPy tier's `select`."""
    some = next(x for x in (condition, yes, no) if isinstance(x, Value))
    f = some.f
    values = [x for x in (yes, no) if isinstance(x, Value)]
    dtype = np.result_type(*(x.dtype if isinstance(x, Value) else _scalar(x) for x in (yes, no)))
    if not isinstance(condition, Value):
        condition = f.constant(np.bool_(condition))
    vector = condition.vector or any(x.vector for x in values)
    loose = all(x.loose for x in values) and len(values) == 2
    chosen = [
        (x if loose else x.astype(dtype)).spread(vector)
        if isinstance(x, Value)
        else f.constant(np.asarray(x).astype(dtype)[()], vector)
        for x in (yes, no)
    ]
    name = f.assign(f"select {condition.typed}, {chosen[0].typed}, {chosen[1].typed}")
    return Value(f, name, dtype, vector, loose)


def _shift(word: str, arithmetic: str = "") -> Emitter:
    """Shifts by the width or more give what is left when all bits have gone, as NumPy's do."""

    def emit(f: Function, result: np.dtype, a: Value, count: Value) -> Value:
        kind, bits = a.dtype.type, 8 * a.dtype.itemsize
        unsigned = count.view(f"u{a.dtype.itemsize}")
        if a.dtype.kind == "i" and arithmetic:
            count = apply(np.minimum, unsigned, unsigned.dtype.type(bits - 1))
            return a.make(f"{arithmetic} {a.type} {a.name}, {count.name}", result)
        moved = a.make(f"{word} {a.type} {a.name}, {count.name}", result)
        if not count.name.startswith(("%", "splat (i")) and int(count.name) < bits:
            return moved
        return where(unsigned < unsigned.dtype.type(bits), moved, kind(0))

    return emit


def _division(signed: str, unsigned: str) -> Emitter:
    """Of integers; the caller has replaced zeros. −1 divides apart, for the smallest number's sake."""

    def emit(f: Function, result: np.dtype, a: Value, b: Value) -> Value:
        if a.dtype.kind == "u":
            return a.make(f"{unsigned} {a.type} {a.name}, {b.name}", result)
        kind = a.dtype.type
        safe = where(b == kind(-1), kind(1), b)
        quotient = a.make(f"{signed} {a.type} {a.name}, {safe.name}", result)
        if signed == "srem":
            return where(b == kind(-1), kind(0), quotient)
        # NumPy's quotient rounds down.
        inexact = (quotient * safe != a) & ((a < kind(0)) != (safe < kind(0)))
        return where(b == kind(-1), kind(0) - a, quotient - inexact.astype(a.dtype))

    return emit


def _sign_bit(f: Function, result: np.dtype, x: Value) -> Value:
    signed = x.view(f"i{x.dtype.itemsize}")
    return signed < 0


def _absolute(f: Function, result: np.dtype, x: Value) -> Value:
    if x.dtype.kind == "f":
        return intrinsic("fabs", x)
    return where(x < x.dtype.type(0), x.dtype.type(0) - x, x) if x.dtype.kind == "i" else x


def _minimum(f: Function, result: np.dtype, a: Value, b: Value) -> Value:
    """Of floats: a NaN wins, as in NumPy."""
    if a.dtype.kind == "f":
        return where((a < b) | (a != a), a, b)
    return intrinsic("smin" if a.dtype.kind == "i" else "umin", a, b)


def _maximum(f: Function, result: np.dtype, a: Value, b: Value) -> Value:
    if a.dtype.kind == "f":
        return where((a > b) | (a != a), a, b)
    return intrinsic("smax" if a.dtype.kind == "i" else "umax", a, b)


def _negative(f: Function, result: np.dtype, x: Value) -> Value:
    if x.dtype.kind == "f":
        return x.make(f"fneg {x.typed}", result)
    return apply(np.subtract, x.dtype.type(0), x)


def _invert(f: Function, result: np.dtype, x: Value) -> Value:
    ones = f.constant(np.bool_(True) if x.dtype == BOOL else ~x.dtype.type(0), x.vector)
    return x.make(f"xor {x.type} {x.name}, {ones.name}", result)


def _next_after(f: Function, result: np.dtype, x: Value, toward: Value) -> Value:
    """The neighbour of x on the way to an infinity."""
    bits = x.view(f"i{x.dtype.itemsize}")
    one, zero = bits.dtype.type(1), x.dtype.type(0)
    step = where((toward > x) == (bits >= bits.dtype.type(0)), one, bits.dtype.type(-1))
    smallest = apply(np.copysign, one.view(x.dtype), toward)
    moved = where(x == zero, smallest, (bits + step).view(x.dtype))
    return where((x != x) | (x == toward), x, moved)


UFUNCS: dict[str, Emitter] = {
    "add": _plain("add", "fadd"),
    "subtract": _plain("sub", "fsub"),
    "multiply": _plain("mul", "fmul"),
    "divide": _plain("", "fdiv"),
    "bitwise_and": _plain("and"),
    "bitwise_or": _plain("or"),
    "bitwise_xor": _plain("xor"),
    "invert": _invert,
    "negative": _negative,
    "absolute": _absolute,
    "minimum": _minimum,
    "maximum": _maximum,
    "left_shift": _shift("shl"),
    "right_shift": _shift("lshr", "ashr"),
    "floor_divide": _division("sdiv", "udiv"),
    "remainder": _plain("", unsigned="urem"),
    "fmod": _division("srem", "urem"),
    "equal": _comparison("eq", "eq", "oeq"),
    "not_equal": _comparison("ne", "ne", "une"),
    "less": _comparison("slt", "ult", "olt"),
    "less_equal": _comparison("sle", "ule", "ole"),
    "greater": _comparison("sgt", "ugt", "ogt"),
    "greater_equal": _comparison("sge", "uge", "oge"),
    "isnan": lambda f, result, x: x != x,
    "isinf": lambda f, result, x: np.abs(x) == x.dtype.type(np.inf),
    "isfinite": lambda f, result, x: np.abs(x) < x.dtype.type(np.inf),
    "signbit": _sign_bit,
    "copysign": lambda f, result, x, sign: intrinsic("copysign", x, sign),
    "sign": lambda f, result, x: where(x > 0, x.dtype.type(1), where(x < 0, x.dtype.type(-1), x)),
    "nextafter": _next_after,
    "sqrt": _intrinsic("", "sqrt"),
    "rint": _intrinsic("", "rint"),
    "trunc": _intrinsic("", "trunc"),
    "floor": _intrinsic("", "floor"),
    "ceil": _intrinsic("", "ceil"),
    "bitwise_count": _intrinsic("ctpop"),
}


def _clip(f: Function, x: Value, low: Any, high: Any) -> Value:
    return apply(np.minimum, apply(np.maximum, x, low), high)


def _zeros_like(f: Function, x: Value) -> Value:
    return f.constant(x.dtype.type(0), x.vector)


def _full_like(f: Function, x: Value, value: Any) -> Value:
    return f.constant(x.dtype.type(value), x.vector)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "where": lambda f, *operands: where(*operands),
    "clip": _clip,
    "zeros_like": _zeros_like,
    "full_like": _full_like,
}
