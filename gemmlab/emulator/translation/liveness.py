"""Liveness of registers: backward dataflow over the basic blocks to a fixed point."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gemmlab.emulator.program import Block
from gemmlab.ptx.ir import Instruction, Memory, Reg, Vector, registers
from gemmlab.ptx.opcodes import WITHOUT_RESULT


def results(i: Instruction) -> tuple[str, ...]:
    """Names of the registers that an instruction writes."""
    is_none = i.root in WITHOUT_RESULT and "red" not in i.modifiers
    if is_none or not i.operands or isinstance(i.operands[0], Memory):
        return ()
    first = i.operands[0]
    return (first.name,) if isinstance(first, Reg) else tuple(registers([first]))


def sources(i: Instruction) -> Iterator[str]:
    """Names of the registers that an instruction reads, except its guard."""
    first = 1 if results(i) else 0
    for o in i.operands[first:]:
        if isinstance(o, Reg):
            yield o.name
            continue
        yield from registers([o])
        if isinstance(o, Memory):
            yield from registers(o.coordinates)
    if "wgmma" in i.opcode and isinstance(i.operands[0] if i.operands else None, Vector):
        yield from registers(i.operands[:1])  # accumulators are read, too


def read_registers(code: Iterable[Instruction]) -> set[str]:
    """Return the names of the registers that some instruction reads, as an operand or as its
    guard."""
    guards = {i.guard.reg.name for i in code if i.guard is not None}
    return guards | {name for i in code for name in sources(i)}


def live_at_starts(code: Sequence[Instruction], blocks: Sequence[Block]) -> list[frozenset[str]]:
    """Return the registers that are live at the start of each basic block."""
    reads, writes = list[set[str]](), list[set[str]]()
    for block in blocks:
        read, written = set[str](), set[str]()
        for i in code[block.first : block.last]:
            read |= {*sources(i)} - written
            if i.guard is None:
                written |= {*results(i)}
            elif i.guard.reg.name not in written:
                read.add(i.guard.reg.name)
        reads.append(read)
        writes.append(written)
    live = [frozenset(read) for read in reads]
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(blocks))):
            after = live_after(live, blocks[number])
            now = frozenset(reads[number] | after - writes[number])
            if now != live[number]:
                live[number], changed = now, True
    return live


def live_after(live: Sequence[frozenset[str]], block: Block) -> frozenset[str]:
    """Return the registers that are live at the end of a basic block, given those live at the
    starts."""
    return frozenset().union(*(live[k] for k in block.targets if k < len(live)))
