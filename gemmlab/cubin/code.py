"""Machine code as data: instructions with the PTX line each came from, and their basic blocks.

The input is the text of nvdisasm --print-line-info-ptx, or -hex for the instructions' bits. A basic
block also ends where the lanes of a warp reconverge (BSYNC), because diverged lanes arrive there in
several groups.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

LEAVE = -1  # the successor of an instruction that ends a thread

_LINE = re.compile(r'\s*//## File "\.nv_debug_ptx_txt[^"]*", line (\d+)')
_LABEL = re.compile(r"(\.L_[\w.]+|\$[\w.$]+):")
_CODE = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([\w.]+)\s*([^;]*);")
_WORD = re.compile(r"/\* 0x([0-9a-f]{16}) \*/")
_TARGET = re.compile(r"`\((\S+)\)")
_WIDTH = re.compile(r"\.[US]?(8|16|64|128)\b")
_CONDITION = re.compile(r"!?U?P\d\b")
JUMPS = ("BRA", "JMP", "BRX", "JMX", "EXIT", "RET", "CALL", "BSYNC", "KILL")
# without a guard, control does not fall through
ENDLESS = ("BRA", "JMP", "BRX", "JMX", "EXIT", "RET", "KILL")
INDIRECT = ("BRX", "JMX")


@dataclass(frozen=True)
class Instruction:
    """A machine instruction. `line`: the PTX line it came from, starting at 1, or None.

    `word`: its 128 bits, or 0 if the listing does not have them.
    """

    address: int  # bytes, from the start of the kernel
    guard: str  # "P0", "!P0", "UP1" or ""
    opcode: str  # "LDG.E.128"
    operands: str
    line: int | None
    word: int = 0

    @cached_property
    def root(self) -> str:
        return self.opcode.partition(".")[0]

    @property
    def conditional(self) -> bool:
        """Whether some threads may be predicated off. A branch may have a second predicate."""
        second = self.root in ENDLESS and _CONDITION.match(self.operands)
        return self.guard not in ("", "PT", "UPT") or bool(second)

    @property
    def target(self) -> str | None:
        found = _TARGET.search(self.operands)
        return found[1] if found else None

    @property
    def width(self) -> int:
        """Bytes per thread of a load or store."""
        if self.root in ("LDSM", "STSM"):  # one to four matrices, a register of each
            return 4 * int(self.opcode.rpartition(".")[2][-1])
        found = _WIDTH.search(self.opcode)
        return int(found[1]) // 8 if found else 4

    @property
    def calls_routine(self) -> bool:
        """Whether it calls one of ptxas's routines, such as division or square root."""
        return self.root == "CALL" and "__internal_" in self.operands

    def __str__(self) -> str:
        guard = f"@{self.guard} " if self.guard else ""
        return f"{guard}{self.opcode} {self.operands}".strip()


@dataclass(frozen=True)
class Edge:
    """A control-flow edge. A cold edge is rarely taken, for example to an out-of-line slow path."""

    target: int  # block, or LEAVE
    cold: bool = False


@dataclass
class Block:
    """A basic block: instructions [first, last)."""

    first: int
    last: int
    edges: list[Edge] = field(default_factory=list)


@dataclass(frozen=True, eq=False)  # compared by identity, so that what follows from it is kept
class Code:
    """A kernel and the code after it in its section. Unreachable blocks are omitted, such as the
    endless loop and padding after the last exit."""

    instructions: list[Instruction]
    labels: dict[str, int]  # name -> index of the next instruction
    blocks: list[Block]  # the first is the entry

    def inside(self, block: Block) -> list[Instruction]:
        """Return the block's instructions without padding."""
        return self._bodies[block.first]

    @cached_property
    def _bodies(self) -> dict[int, list[Instruction]]:
        return {
            block.first: [x for x in self.instructions[block.first : block.last] if x.root != "NOP"]
            for block in self.blocks
        }


def read(text: str) -> Code:
    """Parse one section of nvdisasm's output."""
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    line: int | None = None
    rows = iter(text.splitlines())
    for row in rows:
        if found := _LINE.match(row):
            line = int(found[1])
        elif found := _LABEL.match(row):
            labels[found[1]] = len(instructions)
            if found[1].startswith("$"):  # a routine, whose instructions have lines of their own
                line = None
        elif found := _CODE.match(row):
            address, guard, opcode, operands = found.groups()
            low, word = _WORD.search(row, found.end()), 0
            if low and (high := _WORD.search(next(rows, ""))):  # the high half is on the next row
                word = int(high[1] + low[1], 16)
            instructions.append(
                Instruction(int(address, 16), guard or "", opcode, operands.strip(), line, word)
            )
    return Code(instructions, labels, _blocks(instructions, labels))


def _blocks(code: list[Instruction], labels: dict[str, int]) -> list[Block]:
    starts = {0, *(i + 1 for i, x in enumerate(code) if x.root in JUMPS)}
    starts |= {labels[x.target] for x in code if x.target in labels}
    starts |= {index for name, index in labels.items() if name.startswith("$")}
    cuts = sorted(start for start in starts if start < len(code))
    blocks = [Block(first, last) for first, last in pairwise([*cuts, len(code)])]
    number = {block.first: i for i, block in enumerate(blocks)}
    functions = sorted({0, *(i for name, i in labels.items() if name.startswith("$"))})
    # first instruction of a routine -> blocks that it returns to
    returns = defaultdict[int, list[int]](list)
    for i, block in enumerate(blocks[:-1]):
        last = code[block.last - 1]
        if last.root == "CALL" and last.target in labels:
            returns[labels[last.target]].append(i + 1)
    for i, block in enumerate(blocks):
        function = max(start for start in functions if start <= block.first)
        block.edges = list(_edges(code, labels, number, block, i, returns[function]))
    # nvdisasm does not list the targets of an indirect branch. They are the otherwise unreachable
    # code.
    jumps = [block for block in blocks if code[block.last - 1].root in INDIRECT]
    if jumps:
        orphans = set(range(1, len(blocks))) - _reached(blocks)
        named = {number[i] for name, i in labels.items() if name.startswith(".L_") and i in number}
        trap = {i for i in orphans if any(edge.target == i for edge in blocks[i].edges)}
        for block in jumps:
            block.edges += [Edge(i) for i in sorted(orphans - trap)]
            block.edges += [Edge(i, cold=True) for i in sorted(named - orphans)]
    kept = sorted(_reached(blocks))
    renamed = {old: new for new, old in enumerate(kept)} | {LEAVE: LEAVE}
    for i in kept:
        blocks[i].edges = [Edge(renamed[e.target], e.cold) for e in blocks[i].edges]
    return [blocks[i] for i in kept]


def _edges(
    code: list[Instruction],
    labels: dict[str, int],
    number: dict[int, int],
    block: Block,
    index: int,
    returns: list[int],
) -> Iterator[Edge]:
    last = code[block.last - 1]
    follows = block.last in number
    called = last.root == "CALL" and last.target in labels
    if last.root in ("BRA", "JMP") or called:
        if last.target in labels and number.get(labels[last.target]) is not None:
            # The target of BRA.DIV executes lane by lane what a diverged warp cannot do. ptxas's
            # routines handle values for which no short instruction sequence is correct.
            cold = ".DIV" in last.opcode or last.calls_routine
            yield Edge(number[labels[last.target]], cold)
    elif last.root == "RET":
        yield from (Edge(i) for i in returns)
    elif last.root in ("EXIT", "KILL"):
        yield Edge(LEAVE)
    ends = (last.root in ENDLESS or called) and not last.conditional and ".DIV" not in last.opcode
    if follows and not ends:
        yield Edge(index + 1)
    elif not follows and not ends:
        yield Edge(LEAVE)


def _reached(blocks: list[Block]) -> set[int]:
    reached, waiting = set[int](), [0] if blocks else []
    while waiting:
        block = waiting.pop()
        if block not in reached:
            reached.add(block)
            waiting += [edge.target for edge in blocks[block].edges if edge.target != LEAVE]
    return reached
