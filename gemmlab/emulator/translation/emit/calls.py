"""Python for calls of functions that the PTX does not define. Defined functions are inlined
earlier.

Of CUDA's device functions, printf, malloc and free are supported. assert raises an error when a
thread reaches it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gemmlab.emulator.translation.emit.instructions import Emitters, enabled
from gemmlab.emulator.translation.translator import U32, U64, Translator
from gemmlab.ptx.ir import Instruction, Symbol, Vector
from gemmlab.ptx.recursion import OVERFLOW


class Known(NamedTuple):
    """A CUDA device function. A method of the machine takes its arguments, each of 64 bits."""

    method: str
    num_arguments: int
    result: np.dtype | None
    takes_index: bool = False  # whether the first argument is the instruction's index


KNOWN = {
    "vprintf": Known("printf", 2, U32),
    "malloc": Known("malloc", 1, U64),
    "free": Known("free", 1, None, takes_index=True),
}
# Functions that end a launch, and their error messages.
FATAL = {
    "__assertfail": "an assertion failed",
    OVERFLOW: "recursion is deeper than a thread's stack allows",
}


def call(t: Translator, i: Instruction) -> None:
    """call (result), name, (arguments)"""
    name = i.callee
    if name is None:
        t.unsupported("an indirect call with no matching target")
    if name not in KNOWN:
        t.unsupported(f"{name} is not defined in this PTX")
    known, vectors = KNOWN[name], [o.items for o in i.operands if isinstance(o, Vector)]
    num_results = int(known.result is not None)
    if [len(items) for items in vectors] != [1] * num_results + [known.num_arguments]:
        t.unsupported(f"the arguments of {name} differ from CUDA's")
    t.line(f"function = m.{known.method}")  # first, so that the native tier falls back at once
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
    """Emit the start of an access to a call's parameters."""
    if not isinstance(variable, Symbol) or variable.name not in t.local:
        t.unsupported("call arguments must be .param variables")
    access = t.access(dtype, 1, 0, f"p{k}_")
    return f"m.space_frame.{how}({access}, {t.constant(U64.type(t.local[variable.name]))}"


EMITTERS: Emitters = {"call": (call, {1, 2, 3, 4})}
