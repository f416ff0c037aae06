"""What the inner loop of a kernel costs to issue, by a rule for the register file.

A multiprocessor with 128 FP32 lanes can issue one FFMA per cycle on each of its four partitions;
every other instruction takes such a cycle too. Each of the two banks of the register file, even and
odd registers, delivers one register per cycle. An instruction collects its operands within two
cycles, so two from one bank cost nothing if the neighbours leave that bank free; an FFMA that reads
three takes at least a cycle and a half on average. Operands found in the reuse cache are not read.

The reuse cache holds one register per operand slot (a, b, c) and bank. An operand flagged `.reuse`
enters it. It leaves when another register of its bank is read in its slot, or when it is written.
How ptxas sets the flags shows this size.

A bank also takes one result per cycle. The data of a load from shared memory, four registers of an
LDS.128, delay FFMAs that write to the same bank in every cycle, and hardly delay FFMAs that
alternate between the banks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gemmlab.cubin.code import Instruction
from gemmlab.cubin.control import decode

BANKS = 2
_WINDOW = 2  # cycles in which an instruction collects its operands
_OPERAND = re.compile(r"[-|~!]*R(\d+)\|?((?:\.\w+)*)")
_REGISTER = re.compile(r"(?<![A-Z])R(\d+)((?:\.\w+)*)")
# instructions whose first operand is no result
_NO_RESULT = frozenset({"ST", "STG", "STS", "STL", "STSM", "RED", "LDGSTS", "BRA", "EXIT", "SYNCS"})


@dataclass(frozen=True)
class Lint:
    """Counts over the instructions of a loop.

    instructions: all, of which `ffmas` are FFMAs; `others` counts the rest by opcode.
    cycles: issue cycles of one pass, by the rule for reads.
    fresh: FFMAs that find no operand in the reuse cache.
    alike: FFMAs whose result goes to the bank of the result of the FFMA before.
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
    alike: int
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
    costs = list(_costs([*loop, *loop]))[len(loop) :]  # a pass that follows another
    controls = [decode(one.word) for one in loop]
    spans = [max(cost.cycles, c.stall) for cost, c in zip(costs, controls, strict=True)]
    of_ffmas = [cost for one, cost in zip(loop, costs, strict=True) if one.root == "FFMA"]
    results = [_written(one)[0] for one in loop if one.root == "FFMA"]
    others = Counter(one.opcode for one in loop if one.root != "FFMA")
    return Lint(
        instructions=len(loop),
        ffmas=len(of_ffmas),
        others=tuple(others.most_common()),
        cycles=sum(cost.cycles for cost in costs),
        fresh=sum(not cost.hits for cost in of_ffmas),
        alike=sum(x % BANKS == y % BANKS for x, y in pairwise(results)),
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
    missed: bool


def reads(
    code: Sequence[Instruction], cache: dict[tuple[int, int], int]
) -> Iterator[tuple[set[int], set[int]]]:
    """Yield, for each instruction, the registers that it reads and the slots found in the cache.

    code: straight. cache: (slot, bank) -> register, updated.
    """
    for one in code:
        slots = _slots(one)
        hits = {slot for slot, (r, _) in slots.items() if cache.get((slot, r % BANKS)) == r}
        yield {r for slot, (r, _) in slots.items() if slot not in hits}, hits
        for slot, (r, reuse) in slots.items():
            cache.pop((slot, r % BANKS), None)
            if reuse:
                cache[slot, r % BANKS] = r
        written = _written(one)
        for key in [key for key, r in cache.items() if r in written]:
            del cache[key]


def dispatch(queues: list[float], read: Sequence[float]) -> float:
    """Return the cycles until the next instruction can be dispatched, after one that reads `read`
    registers of each bank.

    queues: registers that each bank still has to deliver, one per cycle; updated. An instruction
    collects its operands in _WINDOW cycles. Measured: benchmarks/h100/register-file.json.
    """
    first, second = queues[0] + read[0], queues[1] + read[1]
    cycles = (first if first > second else second) - _WINDOW + 1
    cycles = cycles if cycles > 1.0 else 1.0
    queues[0] = first - cycles if first > cycles else 0.0
    queues[1] = second - cycles if second > cycles else 0.0
    return cycles


def deliver(queues: list[float], cycles: float) -> None:
    """Let time pass in which banks deliver registers."""
    first, second = queues
    queues[0] = first - cycles if first > cycles else 0.0
    queues[1] = second - cycles if second > cycles else 0.0


def _costs(code: Sequence[Instruction]) -> Iterator[_Cost]:
    cache: dict[tuple[int, int], int] = {}
    before: dict[int, int] = {}  # slot -> register, of the last FFMA
    queues = [0.0] * BANKS
    for one, (read, hits) in zip(code, reads(code, cache), strict=True):
        cycles = round(
            dispatch(queues, [sum(r % BANKS == bank for r in read) for bank in range(BANKS)])
        )
        missed = False
        if one.root == "FFMA":
            slots, written = _slots(one), _written(one)
            missed = any(before.get(s) == r for s, (r, _) in slots.items() if s not in hits)
            before = {slot: r for slot, (r, _) in slots.items() if r not in written}
        yield _Cost(cycles, len(hits), missed)


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
