"""What a launch has executed: counted by the machine, turned into counters afterwards."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from gemmlab.emulator.counters.rules import SiteCounts
from gemmlab.emulator.translation.translate import Block, Program


@dataclass
class Tally:
    """What the launch has executed so far."""

    warps: np.ndarray  # per basic block: times a warp executed it
    lanes: np.ndarray  # per basic block: lanes that were active, summed
    sites: defaultdict[tuple[int, str], SiteCounts]  # per memory instruction and space
    guarded_off: np.ndarray  # per instruction: lanes whose guard was false
    divergent: np.ndarray  # per instruction: times it parted the lanes of a warp
    copied: Counter[str] = field(default_factory=Counter)  # bytes of the copy engine, by direction
    work: int = 0  # thread-instructions
    limit: float = math.inf  # of work, at which `at_limit` is called, once
    at_limit: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, program: Program) -> Tally:
        blocks, code = len(program.blocks), len(program.function.instructions)
        warps, lanes = np.zeros((2, blocks), np.int64)
        guarded_off, divergent = np.zeros((2, code), np.int64)
        return cls(warps, lanes, defaultdict(SiteCounts), guarded_off, divergent)

    def execute(self, pc: int, block: Block, warps: int, lanes: int) -> None:
        """Count one execution of a basic block."""
        self.warps[pc] += warps
        self.lanes[pc] += lanes
        self.work += lanes * (block.last - block.first)
        if self.work > self.limit:
            self.limit = math.inf
            self.at_limit()
