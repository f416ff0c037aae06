"""The state of warps, blocks and schedulers of a multiprocessor that is simulated."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from gemmlab.cubin.lint import BANKS
from gemmlab.timing.instructions import AWAIT, AWAIT_PRODUCTS, PIPES, Op
from gemmlab.timing.mbarriers import Mbarrier
from gemmlab.timing.memory import Traffic

# Why a warp does not issue, in Nsight Compute's words.
(SELECTED, WAIT, SHORT, LONG, CONSTANT, BARRIER) = range(6)
(MATH, MIO, LG, DISPATCH, PRODUCTS, NOT_SELECTED) = range(6, 12)
REASONS = (
    *("selected", "wait", "short scoreboard", "long scoreboard", "immediate constant", "barrier"),
    *("math pipe throttle", "MIO throttle", "LG throttle", "dispatch stall"),
    *("GMMA", "not selected"),
)


@dataclass(slots=True)
class Step:
    """An instruction on a path, with what it moves, and what it cost in the simulation."""

    op: Op
    traffic: Traffic | None
    issued: int = 0
    # cycles of warps, from their instruction before until it issued, by reason
    stalls: list[float] = field(default_factory=lambda: [0.0] * len(REASONS))

    def add(self, issued: int, stalls: Sequence[float]) -> None:
        self.issued += issued
        self.stalls = [x + y for x, y in zip(self.stalls, stalls, strict=True)]


@dataclass(slots=True, eq=False)
class Warp:
    """A warp on its path.

    ready: when it may issue its next instruction; `why` it may not before. blocked: until when, and
    why, that instruction found its unit taken. scoreboards: when each is free; causes: what set it.
    groups: when each group of asynchronous copies arrives; copies: the latest of the next group.
    times: when each instruction issued. number: of the warp in its block. products, multiplied: as
    groups and copies, of warpgroups' products. uses: of each ring of mbarriers. awaits: the
    scoreboard of a wait for an mbarrier's phase whose end is not known yet.
    """

    steps: Sequence[Step]
    block: Block
    scheduler: int
    ready: float
    last: float  # when it issued its last instruction
    held: float = 0.0  # `Scheduler.held` at that time
    position: int = 0
    stall: float = 1.0  # of its last instruction
    why: int = WAIT
    blocked: tuple[float, int] = (0.0, MATH)
    scoreboards: list[float] = field(default_factory=lambda: [0.0] * 6)
    causes: list[int] = field(default_factory=lambda: [SHORT] * 6)
    groups: list[float] = field(default_factory=list)
    filled: float = 0.0  # when the lines that it requested are in L1
    copies: float = 0.0
    times: list[float] = field(default_factory=list)
    number: int = 0
    products: list[float] = field(default_factory=list)
    multiplied: float = 0.0
    uses: dict[tuple[int, str], int] = field(default_factory=dict)
    awaits: int = -1

    def plan(self, now: float) -> None:
        """Set when the warp may issue its next instruction, after one at `now`."""
        op = self.steps[self.position].op
        ready, why = now + self.stall, WAIT
        for k in op.waits:
            if self.scoreboards[k] > ready:
                ready, why = self.scoreboards[k], self.causes[k]
        if op.kind == AWAIT and len(self.groups) > op.pending:
            done = max(self.groups[: len(self.groups) - op.pending])
            if done > ready:
                ready, why = done, LONG
        elif op.kind == AWAIT_PRODUCTS and len(self.products) > op.pending:
            done = max(self.products[: len(self.products) - op.pending])
            if done > ready:
                ready, why = done, PRODUCTS
        self.ready, self.why = ready, why

    def occupy(self, scoreboard: int, until: float, cause: int) -> None:
        if until > self.scoreboards[scoreboard]:
            self.scoreboards[scoreboard], self.causes[scoreboard] = until, cause


@dataclass(slots=True, eq=False)
class Block:
    """A resident thread block. updated: when its last atomic operation is done. live: warps that
    have not ended. waiting: at its barriers, by name; arrived: warps that do not wait; members:
    warps that a barrier needs, 0 for all that are live. mbarriers: by place in shared memory."""

    started: float
    ended: float = 0.0
    updated: float = 0.0
    live: int = 0
    warps: list[Warp] = field(default_factory=list)
    waiting: dict[str, list[Warp]] = field(default_factory=dict)
    arrived: dict[str, int] = field(default_factory=dict)
    members: dict[str, int] = field(default_factory=dict)
    mbarriers: dict[int, Mbarrier[Warp]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Scheduler:
    """One of the four partitions. warps: the oldest first. last: the warp that may go on. pipes:
    when each is free. queue: when its memory instructions leave for the shared unit. held: cycles
    so far in which it dispatched nothing, as registers were read in turn. banks: registers that
    each has to deliver from the time `read` on."""

    warps: list[Warp] = field(default_factory=list)
    last: Warp | None = None
    pipes: list[float] = field(default_factory=lambda: [0.0] * len(PIPES))
    queue: deque[float] = field(default_factory=deque)
    time: float = 0.0
    held: float = 0.0
    banks: list[float] = field(default_factory=lambda: [0.0] * BANKS)
    read: float = 0.0
    asleep: bool = True
