"""What the inner loop of a kernel costs to issue, by a rule for the register file.

A multiprocessor with 128 FP32 lanes can issue one FFMA per cycle on each of its four partitions;
every other instruction takes such a cycle too. The register file delivers two registers per cycle,
so an FFMA that reads three takes two cycles. Operands found in the reuse cache are not read.

The reuse cache holds one register per operand slot (a, b, c) and bank, even and odd registers. An
operand flagged `.reuse` enters it. It leaves when another register of its bank is read in its slot,
or when it is written. How ptxas sets the flags shows this size. With all flags cleared, a kernel
runs at half the peak, as the rule predicts.

Two registers of one bank cost less than a cycle: kernels whose FFMAs mostly read such pairs run
faster than one pair in two cycles permits. The rule leaves them out, so it gives an upper bound.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gemmlab.cubin.code import Instruction
from gemmlab.cubin.control import decode

_BANKS = 2
_PORTS = 2  # registers that the register file delivers per cycle
_OPERAND = re.compile(r"[-|~!]*R(\d+)\|?((?:\.\w+)*)")
_REGISTER = re.compile(r"(?<![A-Z])R(\d+)((?:\.\w+)*)")
# instructions whose first operand is no result
_NO_RESULT = frozenset({"ST", "STG", "STS", "STL", "STSM", "RED", "LDGSTS", "BRA", "EXIT", "SYNCS"})


@dataclass(frozen=True)
class Lint:
    """Counts over the instructions of a loop.

    instructions: all, of which `ffmas` are FFMAs; `others` counts the rest by opcode.
    cycles: issue cycles of one pass, by the rule.
    fresh: FFMAs that find no operand in the reuse cache.
    same_bank: FFMAs that read two or three registers of one bank.
    missed: FFMAs that read a register from its bank that the FFMA before read in the same slot.
    alone: cycles of one pass for a warp that has its partition to itself and finds its data loaded:
        the sum of stall counts, or of `cycles` where they are more; `stalled` of them are stalls.
    waits, yields: instructions that wait for a scoreboard, or let another warp go first.
    distances: for each load from shared memory, the cycles (as in `alone`) until its first use.
    """

    instructions: int
    ffmas: int
    others: tuple[tuple[str, int], ...]
    cycles: int
    fresh: int
    same_bank: int
    missed: int
    alone: int
    stalled: int
    waits: int
    yields: int
    distances: tuple[int, ...]

    @property
    def issue_bound(self) -> float:
        """The largest share of the FP32 peak that the number of instructions permits."""
        return self.ffmas / self.instructions

    @property
    def register_bound(self) -> float:
        """The largest share of the FP32 peak that the reads of registers permit too."""
        return self.ffmas / self.cycles


def lint(loop: Sequence[Instruction]) -> Lint:
    """Count over a loop (`loops.hot_loop`) of instructions with their bits.

    Raises ValueError for an empty loop, or one without bits.
    """
    if not loop or not all(one.word for one in loop):
        raise ValueError("the loop must have instructions, with their bits")
    cache: dict[tuple[int, int], int] = {}
    list(_costs(loop, cache))  # the cache at the start of a pass is that at the end of another
    costs = list(_costs(loop, cache))
    controls = [decode(one.word) for one in loop]
    spans = [max(cost.cycles, c.stall) for cost, c in zip(costs, controls, strict=True)]
    of_ffmas = [cost for one, cost in zip(loop, costs, strict=True) if one.root == "FFMA"]
    others = Counter(one.opcode for one in loop if one.root != "FFMA")
    return Lint(
        instructions=len(loop),
        ffmas=len(of_ffmas),
        others=tuple(others.most_common()),
        cycles=sum(cost.cycles for cost in costs),
        fresh=sum(not cost.hits for cost in of_ffmas),
        same_bank=sum(cost.same_bank for cost in of_ffmas),
        missed=sum(cost.missed for cost in of_ffmas),
        alone=sum(spans),
        stalled=sum(spans) - sum(cost.cycles for cost in costs),
        waits=sum(bool(c.waits) for c in controls),
        yields=sum(c.yields for c in controls),
        distances=tuple(_distances(loop, spans)),
    )


@dataclass(frozen=True)
class _Cost:
    cycles: int
    hits: int
    same_bank: bool
    missed: bool


def reads(
    code: Sequence[Instruction], cache: dict[tuple[int, int], int]
) -> Iterator[tuple[set[int], set[int]]]:
    """Yield, for each instruction, the registers that it reads and the slots found in the cache.

    code: straight. cache: (slot, bank) -> register, updated.
    """
    for one in code:
        slots = _slots(one)
        hits = {slot for slot, (r, _) in slots.items() if cache.get((slot, r % _BANKS)) == r}
        yield {r for slot, (r, _) in slots.items() if slot not in hits}, hits
        for slot, (r, reuse) in slots.items():
            cache.pop((slot, r % _BANKS), None)
            if reuse:
                cache[slot, r % _BANKS] = r
        written = _written(one)
        for key in [key for key, r in cache.items() if r in written]:
            del cache[key]


def _costs(loop: Sequence[Instruction], cache: dict[tuple[int, int], int]) -> Iterator[_Cost]:
    before: dict[int, int] = {}  # slot -> register, of the last FFMA
    for one, (read, hits) in zip(loop, reads(loop, cache), strict=True):
        slots, written = _slots(one), _written(one)
        if one.root == "FFMA":
            same_bank = len({r % _BANKS for r in read}) < len(read)
            missed = any(before.get(s) == r for s, (r, _) in slots.items() if s not in hits)
            yield _Cost(max(1, -(-len(read) // _PORTS)), len(hits), same_bank, missed)
            before = {slot: r for slot, (r, _) in slots.items() if r not in written}
        else:
            yield _Cost(1, len(hits), False, False)


def _slots(one: Instruction) -> dict[int, tuple[int, bool]]:
    """Return the registers read in the slots a, b, c, and whether they are flagged `.reuse`.

    Memory instructions have none: they do not read through the reuse cache.
    """
    if "[" in one.operands and "c[" not in one.operands:
        return {}
    slots = {}
    for i, text in enumerate(one.operands.split(",")[1:]):
        if found := _OPERAND.fullmatch(text.strip()):
            slots[i] = (int(found[1]), ".reuse" in found[2])
    return slots


def _written(one: Instruction) -> range:
    first = _OPERAND.fullmatch(one.operands.partition(",")[0].strip())
    if first is None or one.root in _NO_RESULT:
        return range(0)
    wide = 2 if "WIDE" in one.opcode or one.root == "CS2R" else 1
    number = int(first[1])
    return range(number, number + max(one.width // 4, wide))


def _read(one: Instruction) -> set[int]:
    text = one.operands
    if one.root not in _NO_RESULT:
        text = text.partition(",")[2]
    width = one.width // 4 if one.root in _NO_RESULT else 1
    found = set[int]()
    for number, suffix in _REGISTER.findall(text):
        found.update(range(int(number), int(number) + max(width, 1 + (".64" in suffix))))
    return found


def _distances(loop: Sequence[Instruction], spans: Sequence[int]) -> Iterator[int]:
    """Yield the distance of each load from shared memory to its first use, at most two passes."""
    ahead, ahead_spans = [*loop, *loop], [*spans, *spans]
    reads = [_read(one) for one in ahead]
    for i, one in enumerate(loop):
        if one.root != "LDS":
            continue
        written = set(_written(one))
        for j in range(i + 1, len(ahead)):
            if reads[j] & written:
                yield sum(ahead_spans[i:j])
                break
