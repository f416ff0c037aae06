"""A translated function: its basic blocks and the facts about it that a launch needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from gemmlab.ptx.ir import Function, Instruction, Module, registers
from gemmlab.ptx.layout import shared_variables
from gemmlab.ptx.opcodes import ATOMICS, EXCHANGES, FETCHES
from gemmlab.ptx.products import multiply_adds


class Access(NamedTuple):
    """The static properties of a memory instruction."""

    instruction: int
    offset: int  # bytes added to the address register
    dtype: np.dtype  # of one element
    num_elements: int  # 1, 2 or 4

    @property
    def width(self) -> int:
        """Bytes per lane."""
        return self.dtype.itemsize * self.num_elements

    def at(self, address: Any) -> Any:
        """The effective addresses, as int64: the registers plus the offset, wrapped to their width.

        A rule of both tiers. The native tier passes a value of its IR.
        """
        kind = address.dtype.type
        wrapped = address + kind(self.offset % (1 << 8 * address.dtype.itemsize))
        return wrapped.astype(np.int64)


@dataclass
class Block:
    """A basic block and its terminator."""

    first: int  # instruction indices [first, last)
    last: int
    terminator: str = "fall"  # fall, branch, switch, exit, trap, or a kind of wait
    targets: list[int] = field(default_factory=list)  # block indices; the last is the next block
    run: Callable[..., Any] = lambda machine, registers, mask: None
    spins: bool = False  # ends in the back edge of a loop that waits for memory to change
    locks: bool = False  # ends in the back edge of a loop that may take a lock
    # mask of lanes that must arrive before the block starts
    members: Callable[[list[Any]], Any] | None = None
    reduction: str = ""  # operation of bar.red: popc, and, or
    result: int | None = None  # slot of the register that the terminator writes


@dataclass(eq=False)  # compared by identity, so that what follows from it is kept
class Program:
    """A translated function."""

    function: Function
    module: Module
    blocks: list[Block]
    initial: dict[str, Any]  # register that is live across blocks -> zero
    source: str  # generated Python
    accesses: dict[int, Access]  # by index of the memory instruction; one for joined accesses
    origins: list[int] = field(default_factory=list)  # the instruction of each source line
    # the source lines of each basic block's instructions
    bodies: list[range] = field(default_factory=list)
    dtypes: dict[str, np.dtype] = field(default_factory=dict)  # of the register variables
    # Joined accesses: the vector access to execute, or None at the other accesses of its group.
    joined: dict[int, Instruction | None] = field(default_factory=dict)
    left_out: frozenset[int] = frozenset()  # instructions that are counted but not executed
    # Cache of the native tier's code.
    native: dict[Any, Any] = field(default_factory=dict, repr=False)

    # Facts that every launch needs

    @cached_property
    def callees(self) -> frozenset[str]:
        """Names of the called functions that the PTX does not define."""
        return frozenset(name for i in self.function.instructions if (name := i.callee))

    @cached_property
    def registers_read(self) -> frozenset[str]:
        """Registers that are read, not counting destinations of atomic operations."""
        found: set[str] = set()
        for i in self.function.instructions:
            found.update(registers(i.operands[1 if i.root in FETCHES else 0 :]))
        return frozenset(found)

    @cached_property
    def communicates(self) -> bool:
        """Whether threads exchange data: by shared memory, atomic operations or warp exchanges."""
        code = self.function.instructions
        shares = bool(shared_variables(self.module, self.function))
        return shares or any(i.root in ATOMICS or i.root in EXCHANGES for i in code)

    @property
    def may_wait(self) -> bool:
        """Whether loops may wait for other threads to change memory, or sleep."""
        return any(b.spins or b.terminator == "sleep" for b in self.blocks)

    @cached_property
    def work(self) -> list[int]:
        """Per basic block, what one lane executes: an instruction is one, a matrix product the
        multiply-adds per lane."""
        each = [_work(i) for i in self.function.instructions]
        return [sum(each[block.first : block.last]) for block in self.blocks]

    @cached_property
    def kinds(self) -> list[tuple[int, int]]:
        """Basic block and first instruction of each opcode on each line of PTX. Further
        instructions of the same opcode on the line have the same counts in a basic block."""
        code, found = self.function.instructions, list[tuple[int, int]]()
        for number, block in enumerate(self.blocks):
            first = {
                (code[i].line, code[i].opcode): i for i in reversed(range(block.first, block.last))
            }
            found += [(number, i) for i in first.values()]
        return found

    @cached_property
    def block_of(self) -> np.ndarray:
        """The index of each instruction's basic block."""
        owner = np.zeros(len(self.function.instructions), np.int64)
        for number, block in enumerate(self.blocks):
            owner[block.first : block.last] = number
        return owner


def _work(i: Instruction) -> int:
    return multiply_adds(i.opcode) or 1
