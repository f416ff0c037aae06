"""Finds optimistic loads: plain loads whose result a later atomic operation validates.

Examples are `old = *p` before a loop of `atomicCAS(p, old, …)`, `if (v > *p) atomicMax(p, v)`, and
`atomicMin(p + other, p[mine] + 1)`. The atomic operation on the same array reads the location
again, so the load may race with that instruction of other threads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from gemmlab.emulator.translation.liveness import results
from gemmlab.ptx.ir import Instruction, Memory, Reg, Symbol, registers
from gemmlab.ptx.opcodes import ATOMICS, SCALAR_LOADS

LOOK_AGAIN = {"cas", "min", "max", "and", "or"}
MOVES = {"mov", "cvta", "add", "sub", "mad", "selp"}  # instructions that compute addresses
Pair = tuple[int, int]


def guesses(code: Sequence[Instruction]) -> frozenset[Pair]:
    """Pairs of instructions that may race, in both orders."""
    arrays = _arrays(code)
    pairs = set[Pair]()
    loads: defaultdict[str, list[int]] = defaultdict(list)
    for k, i in enumerate(code):
        place = next((o for o in i.operands if isinstance(o, Memory)), None)
        if place is None or i.root not in ATOMICS | SCALAR_LOADS:
            continue
        if isinstance(place.base, Symbol):
            names = {place.base.name}
        else:
            names = arrays[place.base.name] if isinstance(place.base, Reg) else set()
        for name in names:
            if i.root in SCALAR_LOADS:
                loads[name].append(k)
            elif LOOK_AGAIN & {*i.modifiers}:
                pairs |= {pair for load in loads[name] for pair in ((load, k), (k, load))}
    return frozenset(pairs)


def _arrays(code: Sequence[Instruction]) -> defaultdict[str, set[str]]:
    """Register -> variables and parameters that it may point into."""
    arrays: defaultdict[str, set[str]] = defaultdict(set)
    changed = True
    while changed:
        changed = False
        for i in code:
            if i.root == "ld" and "param" in i.modifiers and isinstance(i.operands[1], Memory):
                base = i.operands[1].base
                found = (
                    {f"{base.name}+{i.operands[1].offset}"} if isinstance(base, Symbol) else set()
                )
            elif i.root in MOVES:
                found = {o.name for o in i.operands[1:] if isinstance(o, Symbol)}
                found = found.union(*(arrays[name] for name in registers(i.operands[1:])))
            else:
                continue
            for name in results(i):
                if not found <= arrays[name]:
                    arrays[name], changed = arrays[name] | found, True
    return arrays
