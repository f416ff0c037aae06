"""Plain loads that guess: `old = *p` and then a loop of `atomicCAS(p, old, …)`, or `if (v > *p)
atomicMax(p, v)`. Whatever they give, the atomic operation of the same place that follows looks
again. So such a load may meet what other threads do by that instruction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gemmlab.emulator.ptx.ir import Instruction, Memory, Reg, Symbol
from gemmlab.emulator.translation.liveness import results

LOOK_AGAIN = {"cas", "min", "max", "and", "or"}
Pair = tuple[int, int]


def guesses(code: Sequence[Instruction]) -> frozenset[Pair]:
    """Instructions that may meet, as (later, earlier), in both orders."""
    written = Counter(name for i in code for name in results(i))
    copies = {
        results(i)[0]: o.name
        for i in code
        if i.root in ("mov", "cvta") and len(results(i)) == 1
        if isinstance(o := i.operands[1], Reg) or isinstance(o, Symbol) and not o.offset
    }

    def address(i: Instruction) -> tuple[str, int] | None:
        place = next((o for o in i.operands if isinstance(o, Memory)), None)
        if place is None or not isinstance(place.base, Reg | Symbol):
            return None
        name = place.base.name
        while name in copies and written[name] == 1:
            name = copies[name]
        return name, place.offset

    pairs = set[Pair]()
    loads: dict[tuple[str, int], list[int]] = {}
    for k, i in enumerate(code):
        where = address(i)
        if where is None:
            continue
        if i.root == "ld":
            loads.setdefault(where, []).append(k)
        elif i.root in ("atom", "red") and LOOK_AGAIN & {*i.modifiers}:
            pairs |= {pair for load in loads.get(where, ()) for pair in ((load, k), (k, load))}
    return frozenset(pairs)
