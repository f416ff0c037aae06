"""Integer expressions such as "ceil_div(n, 128)" and "m * k + 1". Nothing else is evaluated."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from gemmlab.errors import InputError, UnknownNameError

_OPERATORS: dict[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,  # as in C for positive integers
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_FUNCTIONS: dict[str, Callable[..., int]] = {
    "ceil_div": lambda a, b: -(-a // b),
    "min": min,
    "max": max,
}
_LARGEST = 2**63  # bound on intermediate values, which also bounds the cost of an evaluation


def evaluate(text: str, names: Mapping[str, int]) -> int:
    """Evaluate an expression of integers, `names`, + - * / // % << >>, ceil_div, min and max.

    Raises InputError for any other expression, a division by zero, and a value outside the range of
    int64; UnknownNameError for a name that is not in `names`.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise InputError(f"{text!r} is not an integer expression") from None
    try:
        return _value(tree.body, text, names)
    except ZeroDivisionError:
        raise InputError(f"{text!r} divides by zero") from None
    except RecursionError:
        raise InputError(f"{text[:60]!r}… is nested too deeply") from None


def _value(node: ast.AST, text: str, names: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return _checked(value, text)
        case ast.Name(id=name):
            if name not in names:
                known = ", ".join(names) or "none"
                where = f" in {text!r}" if text.strip() != name else ""
                raise UnknownNameError(f"unknown size {name!r}{where}; known sizes: {known}")
            return names[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, text, names)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            a, b = _value(left, text, names), _value(right, text, names)
            if isinstance(op, (ast.LShift, ast.RShift)) and not 0 <= b < 64:
                raise InputError(f"{text!r} shifts by {b} bits")
            return _checked(_OPERATORS[type(op)](a, b), text)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            if len(args) < 2 or (name == "ceil_div" and len(args) != 2):
                raise InputError(f"{text!r}: {name} takes two arguments")
            return _checked(_FUNCTIONS[name](*(_value(arg, text, names) for arg in args)), text)
    raise InputError(
        f"{text!r} is not an integer expression: use integers, sizes, + - * / // % << >>, "
        "ceil_div, min and max"
    )


def _checked(value: int, text: str) -> int:
    if not -_LARGEST <= value < _LARGEST:
        raise InputError(f"the value of {text!r} does not fit in 64 bits")
    return value
