"""Python for calls of what the PTX does not define. Those that it does are expanded before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmlab.emulator.ptx.ir import Instruction, Symbol, Vector
from gemmlab.emulator.translation.emit.instructions import U32, U64, Emitters, enabled

if TYPE_CHECKING:
    from gemmlab.emulator.translation.translate import Translator


def callee(i: Instruction) -> str | None:
    """The name of the function that is called; None of one whose address is in a register."""
    target = next((o for o in i.operands if not isinstance(o, Vector)), None)
    return target.name if i.root == "call" and isinstance(target, Symbol) else None


def call(t: Translator, i: Instruction) -> None:
    """call (result), name, (arguments): of CUDA's own functions printf is there. assert is an
    error that says so when a thread reaches it."""
    name = callee(i)
    if name is None:
        t.unsupported("a pointer to no function that takes these arguments")
    vectors = [o.items for o in i.operands if isinstance(o, Vector)]
    if name != "vprintf" or [len(items) for items in vectors] != [1, 2]:
        t.unsupported(f"{name} is not defined in this PTX")
    (result,), arguments = vectors
    t.line("printf = m.printf")  # first, so that the native tier declines at once
    mask, indent = enabled(t, i)
    for k, argument in enumerate(arguments):
        t.line(f"{indent}x{k}, = {_frame(t, argument, 'load', k)}, {mask})")
    t.line(f"{indent}x2 = printf(x0, x1, {mask})")
    t.line(f"{indent}{_frame(t, result, 'store', 2)}, (x2,), {mask})")


def _frame(t: Translator, variable: object, how: str, k: int) -> str:
    """The beginning of an access to what a call passes."""
    if not isinstance(variable, Symbol) or variable.name not in t.local:
        t.unsupported("printf with other arguments than a format and a list")
    access = t.access(U32 if how == "store" else U64, 1, 0, f"p{k}_")
    return f"m.space_frame.{how}({access}, {t.constant(U64.type(t.local[variable.name]))}"


EMITTERS: Emitters = {"call": (call, {1, 2, 3, 4})}
