"""Which variable of shared memory an access means, by where its address comes from.

An address is computed from a variable's own. Beyond its end lies another variable, or nothing: C++
allows neither, and no machine notices. What is stored there is reported; what is loaded from there
is undefined, for compilers load ahead of conditions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gemmlab.emulator.program import Program
from gemmlab.emulator.translation.liveness import results
from gemmlab.ptx import layout
from gemmlab.ptx.ir import Instruction, Memory, Operand, Reg, Symbol, Vector

NUMBER, MIXED = "", "?"  # what comes from no variable; what may come from several
# What moves an address within a variable, and what chooses between addresses.
MOVES = {"mov", "cvta", "cvt", "add", "sub", "mad", "or", "and", "xor", "lop3"}
CHOICES = {"selp", "min", "max"}


def variables_meant(program: Program) -> dict[int, tuple[str, range]]:
    """By instruction: the variable's name and its bytes; only where there is no doubt."""
    function = program.function
    offsets = layout.shared_offsets(program.module, function)
    sizes = {v.name: v.size for v in layout.shared_variables(program.module, function)}
    places = {name: range(at, at + sizes[name]) for name, at in offsets.items() if sizes[name]}
    origins = _origins(function.instructions, places)
    found: dict[int, tuple[str, range]] = {}
    for k, i in enumerate(function.instructions):
        for o in i.operands:
            if isinstance(o, Memory) and i.root in ("ld", "st", "atom", "red"):
                name = _origin(o.base, origins, places)
                # Neighbours that are accessed as one by their names may be several variables.
                is_joined = k in program.joined and isinstance(o.base, Symbol)
                if name in places and not is_joined:
                    found[k] = name, places[name]
    return found


def _origins(code: Sequence[Instruction], places: Mapping[str, range]) -> dict[str, str]:
    """Of each register what it comes from, over all instructions that write it."""
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
    """Where an instruction's result comes from; None where that is not known yet."""
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
