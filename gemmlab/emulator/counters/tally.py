"""The raw counts that a launch records, from which counters are computed."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from gemmlab.emulator.counters.rules import SiteCounts
from gemmlab.emulator.program import Program


def _nothing() -> None:
    """A function that can be pickled, for a tally that is sent to another process."""


class Deadline:
    """A limit on the processor time of this thread, from now on."""

    def __init__(self, seconds: float) -> None:
        self._end = time.thread_time() + seconds
        # Reading processor time takes a system call. It passes no faster than time on the clock,
        # so the clock is read first.
        self._earliest = time.monotonic() + seconds

    def has_passed(self) -> bool:
        if (now := time.monotonic()) < self._earliest:
            return False
        left = self._end - time.thread_time()
        self._earliest = now + left
        return left < 0


@dataclass
class Tally:
    """Counts of everything that a launch has executed so far."""

    warps: np.ndarray  # per basic block: number of executions, summed over warps
    lanes: np.ndarray  # per basic block: active lanes, summed over executions
    sites: defaultdict[tuple[int, str], SiteCounts]  # per memory instruction and space
    guarded_off: np.ndarray  # per instruction: lanes whose guard was false
    divergent: np.ndarray  # per branch instruction: number of times it diverged a warp
    copied: Counter[str] = field(default_factory=Counter)  # copy engine: direction -> bytes
    work_of: list[int] = field(default_factory=list)  # Program.work
    work: int = 0  # thread-instructions; a matrix product counts as its multiply-adds
    limit: float = math.inf  # value of `work` above which the launch is long
    deadline: Deadline | None = None  # after which it is long
    at_limit: Callable[[], None] = _nothing  # called once, by `is_long`
    is_known_long: bool = False

    @classmethod
    def of(cls, program: Program) -> Tally:
        blocks, code = len(program.blocks), len(program.function.instructions)
        warps, lanes = np.zeros((2, blocks), np.int64)
        guarded_off, divergent = np.zeros((2, code), np.int64)
        return cls(
            warps, lanes, defaultdict(SiteCounts), guarded_off, divergent, work_of=program.work
        )

    def execute(self, pc: int, warps: int, lanes: int) -> None:
        """Count one execution of basic block `pc`."""
        self.warps[pc] += warps
        self.lanes[pc] += lanes
        self.work += lanes * self.work_of[pc]
        if self.work > self.limit or (self.deadline and self.deadline.has_passed()):
            self.is_long()

    def is_long(self) -> None:
        """Mark the launch as long; the first time, call `at_limit`."""
        self.limit, self.deadline = math.inf, None
        if not self.is_known_long:
            self.is_known_long = True
            self.at_limit()
