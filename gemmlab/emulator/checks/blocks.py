"""Who last wrote and read each piece of global memory, for races between blocks.

Blocks of a launch run in any order, so what one block writes another must not touch, unless the
first told the other: it wrote, executed a fence, and then an atomic operation or a strong store
(volatile, relaxed, release) on a place where the other has since looked with an atomic operation or
a strong load. What was told is passed on with what the other tells. Threads of a block count as one
here, and so do blocks of a cluster: whether they agreed among themselves is another check's matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np

from gemmlab.emulator.checks.shadow import PLAIN, strength
from gemmlab.emulator.ptx.ir import Instruction

BLOCK_BITS = 28
UNINITIALIZED = np.int64(-1)

# report(what, instruction, other instruction, block, other block, indices of the accesses)
Report = Callable[[str, int, int, int, int, np.ndarray], None]
Time = tuple[int, int]  # basic block of the launch so far, instruction
NEVER: Time = (-1, 0)
FENCES = {"gpu", "sys", "gl"}
RELEASES = {"release", "acq_rel"}


def is_fence(i: Instruction) -> bool:
    """A fence that other blocks can rely on."""
    return i.root in ("fence", "membar") and bool(FENCES & {*i.modifiers})


class GlobalShadow:
    """Records of all of global memory, for a whole launch."""

    def __init__(self, num_granules: int, code: list[Instruction]) -> None:
        self.code = code
        self.written, self.read, self.read_too = np.zeros((3, num_granules), np.int64)
        self.events: list[Time] = [NEVER]
        self.step = 0
        self.fences: dict[int, Time] = {}  # of each block, the last one
        self.told: defaultdict[int, dict[int, Time]] = defaultdict(dict)  # place -> block -> when
        self.heard: defaultdict[int, dict[int, Time]] = defaultdict(dict)  # block -> block -> when
        # Where nobody looks at what atomic operations leave, they tell nobody anything.
        self.someone_looks = any(
            i.root == "atom" or i.root == "ld" and {"volatile", "relaxed", "acquire"} & {*i.opcode}
            for i in code
        )

    def fence(self, blocks: np.ndarray, index: int) -> None:
        for block in blocks.tolist():
            self.fences[block] = (self.step, index)

    def load(self, blocks: np.ndarray, cells: np.ndarray, site: int, report: Report) -> None:
        """blocks: (n, 1); cells: (n, granules of each)."""
        blocks = np.broadcast_to(blocks, cells.shape)
        self.see(blocks, cells, site, report)
        mine = self._event(site) << BLOCK_BITS | blocks
        old = self.read[cells]
        same = (old == 0) | (old & (1 << BLOCK_BITS) - 1 == blocks)
        self.read[cells[same]] = mine[same]
        self.read_too[cells[~same]] = mine[~same]

    def see(self, blocks: np.ndarray, cells: np.ndarray, site: int, report: Report) -> None:
        """A load, also a strong one: a plain write of another block that it was not told of."""
        blocks = np.broadcast_to(blocks, cells.shape)
        self._compare(self.written, blocks, cells, site, report, "a read, and a write")

    def store(
        self, blocks: np.ndarray, cells: np.ndarray, site: int, changed: np.ndarray, report: Report
    ) -> None:
        blocks = np.broadcast_to(blocks, cells.shape)
        for records, what in (
            (self.written, "two writes"),
            (self.read, "a write, and a read"),
            (self.read_too, "a write, and a read"),
        ):
            self._compare(records, blocks, cells, site, report, what, changed)
        self.written[cells] = self._event(site) << BLOCK_BITS | blocks

    def note(self, blocks: np.ndarray, cells: np.ndarray, site: int) -> None:
        """An atomic operation or a strong store: no race, but who wrote last."""
        self.written[cells] = self._event(site) << BLOCK_BITS | blocks

    def look(self, blocks: np.ndarray, cells: np.ndarray, site: int) -> None:
        """An atomic operation or a strong access: what blocks tell and hear by it."""
        i = self.code[site]
        tells = i.root != "ld"
        hears = i.root not in ("st", "red")
        if not self.someone_looks:
            return
        now = (self.step, site)
        # Lanes that meet at one place take their turns in this order, as in `memory.atomics`.
        for block, cell in dict.fromkeys(zip(blocks.tolist(), cells.tolist(), strict=True)):
            board = self.told[cell] if tells or cell in self.told else {}
            if hears:
                for other, when in board.items():
                    if self.heard[block].get(other, NEVER) < when:
                        self.heard[block][other] = when
            until = now if RELEASES & {*i.modifiers} else self.fences.get(block, NEVER)
            if tells and until != NEVER:
                for other, when in self.heard[block].items():
                    board[other] = max(when, board.get(other, NEVER))
                board[block] = until

    def _event(self, site: int) -> int:
        """A number for what one instruction does now."""
        if self.events[-1] != (self.step, site):
            self.events.append((self.step, site))
        return len(self.events) - 1

    def _compare(
        self,
        records: np.ndarray,
        blocks: np.ndarray,
        cells: np.ndarray,
        site: int,
        report: Report,
        what: str,
        among: np.ndarray | bool = True,
    ) -> None:
        words = records[cells]
        suspect = (words > 0) & (words & (1 << BLOCK_BITS) - 1 != blocks) & among
        if not suspect.any():
            return
        where = np.flatnonzero(suspect)
        words, own = words.reshape(-1)[where], blocks.reshape(-1)[where]
        pairs = np.unique(np.stack([words, own]), axis=1)
        for word, block in pairs.T.tolist():
            other = word & (1 << BLOCK_BITS) - 1
            when = self.events[word >> BLOCK_BITS]
            is_plain = strength(self.code[when[1]]) == PLAIN
            if is_plain and self.heard[block].get(other, NEVER) < when:
                same = (words == word) & (own == block)
                report(what, site, when[1], block, other, where[same] // cells.shape[-1])
