"""Determines which shared variable an access is meant for, by tracing its address to a variable.

An address computed from one variable must not be used to access another. C++ forbids it, and
hardware does not detect it. Stores outside the intended variable are reported; loads return
undefined values, because compilers load ahead of conditions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gemmlab.emulator.program import Program
from gemmlab.emulator.translation.liveness import results
from gemmlab.ptx import layout
from gemmlab.ptx.ir import Instruction, Memory, Operand, Reg, Symbol, Vector
from gemmlab.ptx.opcodes import SCALAR_ACCESSES

NUMBER, MIXED = "", "?"  # origins: no variable; possibly several variables
# Instructions that compute an address within a variable, and that select an address.
MOVES = {"mov", "cvta", "cvt", "add", "sub", "mad", "or", "and", "xor", "lop3"}
CHOICES = {"selp", "min", "max"}


def variables_meant(program: Program) -> dict[int, tuple[str, range]]:
    """Instruction -> name and byte range of the intended variable, if it is unambiguous."""
    function = program.function
    offsets = layout.shared_offsets(program.module, function)
    sizes = {v.name: v.size for v in layout.shared_variables(program.module, function)}
    places = {name: range(at, at + sizes[name]) for name, at in offsets.items() if sizes[name]}
    origins = _origins(function.instructions, places)
    found: dict[int, tuple[str, range]] = {}
    for k, i in enumerate(function.instructions):
        for o in i.operands:
            if isinstance(o, Memory) and i.root in SCALAR_ACCESSES:
                name = _origin(o.base, origins, places)
                # A joined access to adjacent addresses given by symbol may span several variables.
                is_joined = k in program.joined and isinstance(o.base, Symbol)
                if name in places and not is_joined:
                    found[k] = name, places[name]
    return found


def _origins(code: Sequence[Instruction], places: Mapping[str, range]) -> dict[str, str]:
    """Register -> origin, merged over all instructions that write it."""
    known: dict[str, str] = {}
    changed = True
    while changed:
        changed = False
        for i in code:
            origin = _result(i, known, places)
            for name in results(i):
                old = known.get(name, origin)
                now = origin if old == origin else MIXED
                if now is not None and known.get(name) != now:
                    known[name], changed = now, True
    return known


def _result(i: Instruction, known: Mapping[str, str], places: Mapping[str, range]) -> str | None:
    """The origin of an instruction's result; None if not known yet."""
    if i.root not in MOVES and i.root not in CHOICES:
        return NUMBER
    read = i.operands[1:3] if i.root == "selp" else i.operands[1:]
    found = {_origin(o, known, places) for o in read} - {None}
    if not found:
        return None
    names = found - {NUMBER}
    if i.root in CHOICES or any(isinstance(o, Vector) for o in i.operands):
        return NUMBER if not names else MIXED if len(found) > 1 or MIXED in names else names.pop()
    return NUMBER if not names else MIXED if len(names) > 1 else names.pop()


def _origin(o: Operand, known: Mapping[str, str], places: Mapping[str, range]) -> str | None:
    match o:
        case Reg():
            return known.get(o.name)
        case Symbol():
            return o.name if o.name in places else MIXED
        case Vector():
            return MIXED
    return NUMBER
