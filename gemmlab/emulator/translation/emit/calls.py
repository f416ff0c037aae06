"""Python for calls of what the PTX does not define. Those that it does are expanded before.

Of CUDA's own functions printf, malloc and free are there. assert is an error that says so when a
thread reaches it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gemmlab.emulator.translation.emit.instructions import U32, U64, Emitters, enabled
from gemmlab.ptx.ir import Instruction, Symbol, Vector
from gemmlab.ptx.recursion import OVERFLOW

if TYPE_CHECKING:
    from gemmlab.emulator.translation.translate import Translator


def callee(i: Instruction) -> str | None:
    """The name of the function that is called; None of one whose address is in a register."""
    target = next((o for o in i.operands if not isinstance(o, Vector)), None)
    return target.name if i.root == "call" and isinstance(target, Symbol) else None


class Known(NamedTuple):
    """A function of CUDA's own: a method of the machine takes its arguments, of 64 bits each."""

    method: str
    num_arguments: int
    result: np.dtype | None
    takes_index: bool = False  # of the instruction, as the first argument


KNOWN = {
    "vprintf": Known("printf", 2, U32),
    "malloc": Known("malloc", 1, U64),
    "free": Known("free", 1, None, takes_index=True),
}
# Functions that end a launch, and what they say.
FATAL = {
    "__assertfail": "an assertion failed",
    OVERFLOW: "functions call themselves more often than a thread's stack has room for",
}


def call(t: Translator, i: Instruction) -> None:
    """call (result), name, (arguments)"""
    name = callee(i)
    if name is None:
        t.unsupported("a pointer to no function that takes these arguments")
    if name not in KNOWN:
        t.unsupported(f"{name} is not defined in this PTX")
    known, vectors = KNOWN[name], [o.items for o in i.operands if isinstance(o, Vector)]
    num_results = int(known.result is not None)
    if [len(items) for items in vectors] != [1] * num_results + [known.num_arguments]:
        t.unsupported(f"{name} with other arguments than CUDA's")
    t.line(f"function = m.{known.method}")  # first, so that the native tier declines at once
    mask, indent = enabled(t, i)
    values = [str(t.index)] if known.takes_index else []
    for k, argument in enumerate(vectors[-1]):
        t.line(f"{indent}x{k}, = {_frame(t, argument, 'load', U64, k)}, {mask})")
        values.append(f"x{k}")
    t.line(f"{indent}result = function({', '.join(values)}, {mask})")
    if known.result is not None:
        (result,), k = vectors[0], known.num_arguments
        t.line(f"{indent}{_frame(t, result, 'store', known.result, k)}, (result,), {mask})")


def _frame(t: Translator, variable: object, how: str, dtype: np.dtype, k: int) -> str:
    """The beginning of an access to what a call passes."""
    if not isinstance(variable, Symbol) or variable.name not in t.local:
        t.unsupported("a call passes something else than .param variables")
    access = t.access(dtype, 1, 0, f"p{k}_")
    return f"m.space_frame.{how}({access}, {t.constant(U64.type(t.local[variable.name]))}"


EMITTERS: Emitters = {"call": (call, {1, 2, 3, 4})}
