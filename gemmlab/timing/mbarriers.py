"""An mbarrier of a block that is simulated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

Waiter = TypeVar("Waiter")


@dataclass(eq=False)
class Mbarrier(Generic[Waiter]):
    """A phase is complete once `count` lanes have arrived and `nbytes` bytes have been copied.

    arrived, landed: of the present phase. latest: when the last of them is there. completed: when
    each phase was complete. waiting: warps, and the phase that each waits for.

    A phase's end is known as soon as its last part has been issued, before it happens.
    """

    count: int
    nbytes: int
    arrived: int = 0
    landed: int = 0
    latest: float = 0.0
    completed: list[float] = field(default_factory=list)
    waiting: list[tuple[int, Waiter]] = field(default_factory=list)

    def phase(self, parity: int) -> int:
        """The number of the phase that a wait for a parity is for; -1 is over from the start."""
        present = len(self.completed)
        return present if present & 1 == parity else present - 1

    def add(self, lanes: int, nbytes: int, when: float) -> list[Waiter]:
        """Let lanes arrive, or bytes. Returns the warps that have waited for this."""
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
