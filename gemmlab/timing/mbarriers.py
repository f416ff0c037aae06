"""An mbarrier of a block that is simulated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

Waiter = TypeVar("Waiter")


@dataclass(eq=False)
class Mbarrier(Generic[Waiter]):
    """A phase is complete once `count` lanes have arrived and `nbytes` bytes have been copied.

    arrived, landed: lanes and bytes of the current phase. latest: the time of the last of them.
    completed: the end time of each phase. waiting: warps, and the phase that each waits for.

    A phase's end time is known, possibly in advance, once its last arrival or copy has issued.
    """

    count: int
    nbytes: int
    arrived: int = 0
    landed: int = 0
    latest: float = 0.0
    completed: list[float] = field(default_factory=list)
    waiting: list[tuple[int, Waiter]] = field(default_factory=list)

    def phase(self, parity: int) -> int:
        """The phase that a wait for a parity awaits, by number; -1 is complete from the start."""
        present = len(self.completed)
        return present if present & 1 == parity else present - 1

    def add(self, lanes: int, nbytes: int, when: float) -> list[Waiter]:
        """Count arrivals of lanes or bytes. Returns the warps whose wait is over."""
        self.arrived += lanes
        self.landed += nbytes
        self.latest = max(self.latest, when)
        if self.arrived < self.count or self.landed < self.nbytes:
            return []
        self.arrived -= self.count
        self.landed -= self.nbytes
        self.completed.append(self.latest)
        self.latest = 0.0
        present = len(self.completed)
        free = [warp for phase, warp in self.waiting if phase < present]
        self.waiting = [(phase, warp) for phase, warp in self.waiting if phase >= present]
        return free
