"""The mbarriers of a kernel: which of them each warp waits for, arrives at and copies for, in turn.

Kernels use mbarriers in rings: a warp moves from one to the next, and from the last to the first.
The emulator records what each warp does in the first turns around a ring; later turns repeat them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP, Mask
from gemmlab.emulator.execution.machine import Machine
from gemmlab.emulator.launch.launch import Launch
from gemmlab.emulator.observer import Observer, Transfer
from gemmlab.emulator.program import Block
from gemmlab.emulator.synchronization.mbarriers import State

TURNS = 12  # of waits that are recorded, more than a ring has mbarriers
MOST_STEPS = 3000  # basic blocks of a traced launch
WAIT, ARRIVE, COPY = "wait", "arrive", "copy"


@dataclass(frozen=True)
class Signal:
    """One use of an mbarrier. cell: its place in shared memory. amount: the parity of the phase
    that a wait is for, the lanes that arrive, or the bytes of a copy."""

    cell: int
    amount: int


@dataclass
class Signals:
    """What the warps of a block do with mbarriers.

    count: arrivals per phase, nbytes: bytes per phase, by cell. turns: (ring, kind, warp) -> uses
    in turn. rings: line of PTX, kind -> its ring. arrivers: warps that arrive at a barrier of the
    block without waiting.
    """

    count: dict[int, int] = field(default_factory=dict)
    nbytes: dict[int, int] = field(default_factory=dict)
    turns: dict[tuple[int, str, int], list[Signal]] = field(default_factory=dict)
    rings: dict[tuple[int, str], int] = field(default_factory=dict)
    arrivers: set[int] = field(default_factory=set)

    def turn(self, line: int, kind: str, warp: int, number: int) -> Signal | None:
        """Return the use with index `number` that a warp makes of the ring of PTX line `line`; None
        if the warp does not use that ring."""
        ring = self.rings.get((line, kind))
        recorded = None if ring is None else self.turns.get((ring, kind, warp))
        if not recorded:
            return None
        if number < len(recorded):
            return recorded[number]
        period = _period(tuple([one.cell for one in recorded]))
        one = recorded[number % period]
        if kind != WAIT:
            return one
        return Signal(one.cell, one.amount ^ number // period & 1)


@lru_cache(maxsize=256)
def _period(cells: tuple[int, ...]) -> int:
    """After how many uses a sequence repeats itself; all of them if it does not."""
    for period in range(1, len(cells)):
        if all(a == b for a, b in zip(cells, cells[period:], strict=False)):
            return period
    return len(cells)


class Enough(Exception):
    """Ends a traced launch."""


class Recorder(Observer):
    """Records the uses of mbarriers by the warps of the first block, and the basic blocks that each
    warp enters."""

    def __init__(self, machine: Machine, launch: Launch) -> None:
        program = launch.program
        self.machine, self.code = machine, program.function.instructions
        warps = machine.extent.warps
        self.row = machine.mbarriers.all_words.size // machine.num_blocks
        self.entered = np.zeros((warps, len(program.blocks)), bool)
        self.last = [0] * warps
        self.steps = 0  # basic blocks executed
        self.copied = (0, 0, 0, 0)  # step, instruction, warp and cell of the last copy
        self.awaited: dict[tuple[int, int], int] = {}  # warp, cell -> parity
        self.turns: dict[tuple[int, str, int], int] = {}
        self.order: list[tuple[int, str, int, Signal]] = []  # line, kind, warp, use
        self.found = Signals()
        self.first_phase: dict[int, int] = {}  # bytes copied for the first phase, by cell
        self.over: set[int] = set()

    def before(self, number: int, block: Block, mask: Mask | None) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise Enough
        for warp in np.flatnonzero(self.machine.active(mask)[0].any(axis=1)).tolist():
            self.entered[warp, number] = True
            self.last[warp] = number

    def barrier_arrived(self, barrier: int, lanes: np.ndarray) -> None:
        self.found.arrivers |= set(np.flatnonzero(lanes[0].any(axis=1)).tolist())

    def mbarrier_initialized(self, index: int, cells: np.ndarray, mask: Mask | None) -> None:
        expected = State.of(self.machine.mbarriers.all_words[cells]).expected
        for cell, count in zip(cells.tolist(), expected.tolist(), strict=True):
            self.found.count[cell % self.row] = count

    def mbarrier_arrived(self, index: int, cells: np.ndarray, mask: Mask | None) -> None:
        places = np.argwhere(self.machine.active(mask))
        lanes: dict[tuple[int, int], int] = {}
        for (block, warp, _), cell in zip(places.tolist(), cells.tolist(), strict=True):
            if block == 0:
                key = warp, cell % self.row
                lanes[key] = lanes.get(key, 0) + 1
        for (warp, cell), many in lanes.items():
            self._use(index, ARRIVE, warp, Signal(cell, many))

    def mbarrier_awaited(
        self, index: int, cells: np.ndarray, parity: np.ndarray, mask: Mask | None
    ) -> None:
        seen = set[int]()
        for (block, warp), cell, phase in zip(
            np.argwhere(self.machine.active(mask))[:, :2].tolist(),
            cells.tolist(),
            parity.tolist(),
            strict=True,
        ):
            if block == 0 and warp not in seen:
                seen.add(warp)
                self._use(index, WAIT, warp, Signal(cell % self.row, phase))

    def transfer_started(self, transfer: Transfer) -> None:
        block, warp = divmod(transfer.thread // WARP, self.machine.extent.warps)
        for cell in transfer.cells:
            if cell // self.row == 0 and cell % self.row not in self.over:
                own = cell % self.row
                self.first_phase[own] = self.first_phase.get(own, 0) + transfer.nbytes
        if block == 0 and transfer.cells:
            use = Signal(transfer.cells[0] % self.row, transfer.nbytes * len(transfer.cells))
            self._use(transfer.instruction, COPY, warp, use)

    def mbarrier_completed(self, cells: np.ndarray) -> None:
        self.over |= {cell for cell in cells.tolist() if cell < self.row}

    def _use(self, index: int, kind: str, warp: int, use: Signal) -> None:
        line = self.code[index].line
        place = (self.steps, index, warp, use.cell)
        if kind == COPY and self.copied == place:  # another lane of the same execution
            before = self.order[-1][3]
            self.order[-1] = line, kind, warp, Signal(use.cell, before.amount + use.amount)
            return
        self.copied = place
        if kind == WAIT:  # a wait that timed out is executed again
            if self.awaited.get((warp, use.cell)) == use.amount:
                return
            self.awaited[warp, use.cell] = use.amount
        self.order.append((line, kind, warp, use))
        turns = self.turns[line, kind, warp] = self.turns.get((line, kind, warp), 0) + 1
        if turns > TURNS and kind == WAIT:
            raise Enough

    def signals(self) -> Signals:
        """What was recorded, by ring: mbarriers that one instruction uses belong together."""
        ring = {cell: cell for cell in self.found.count}
        first: dict[tuple[int, str], int] = {}
        for line, kind, _, use in self.order:
            one, other = ring[first.setdefault((line, kind), use.cell)], ring[use.cell]
            ring = {cell: one if of == other else of for cell, of in ring.items()}
        found = self.found
        found.rings = {key: ring[cell] for key, cell in first.items()}
        for line, kind, warp, use in self.order:
            found.turns.setdefault((found.rings[line, kind], kind, warp), []).append(use)
        found.nbytes = {cell: self.first_phase.get(cell, 0) for cell in found.count}
        return found
