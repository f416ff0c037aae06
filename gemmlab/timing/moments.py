"""One warp of a predicted launch, instruction by instruction: when it issues, and what it waits for
before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gemmlab.timing.facts import Facts
from gemmlab.timing.instructions import Op
from gemmlab.timing.multiprocessor import Multiprocessor
from gemmlab.timing.parameters import Parameters
from gemmlab.timing.prediction import first_blocks
from gemmlab.timing.warps import REASONS, SELECTED, Step, Warp

_SCOREBOARDS = {"short scoreboard", "long scoreboard"}
_ITERATION = 3  # of the loop, by when the blocks are no longer in step


@dataclass(frozen=True)
class Moment:
    """An instruction of the warp. cycle: of its issue, from the first moment on. waited: cycles
    since the instruction before, by Nsight Compute's reasons."""

    cycle: float
    op: Op
    waited: dict[str, float]


class _Followed(Multiprocessor):
    """Notes what the first warp of the first block does."""

    moments: list[Moment]

    def account(self, warp: Warp, step: Step, now: float) -> None:
        followed = warp.number == 0 and warp.block is self.blocks[0]
        before = list(step.stalls) if followed else []
        super().account(warp, step, now)
        if followed:
            spent = [x - y for x, y in zip(step.stalls, before, strict=True)]
            waited = {
                reason: cycles
                for i, (reason, cycles) in enumerate(zip(REASONS, spent, strict=True))
                if cycles > 0 and i != SELECTED
            }
            self.moments.append(Moment(now, step.op, waited))


def follow(facts: Facts, gpu: Parameters, cycles: float) -> list[Moment]:
    """Follow the first warp for `cycles` cycles in the third iteration of its loops.

    A window begins after a wait for a scoreboard; the one with the largest product of instructions
    and distinct reasons to wait is returned.
    """
    paths = first_blocks(facts, gpu)
    sm = _Followed(paths, gpu, min(facts.blocks, gpu.sms), facts.signals)
    sm.moments = []
    sm.run(len(paths))
    windows = [
        [x for x in sm.moments[i:] if x.cycle - sm.moments[i].cycle < cycles]
        for i in _starts(sm.moments)
    ]
    best = max(windows, key=lambda some: len(some) * len({x for one in some for x in one.waited}))
    return [replace(one, cycle=one.cycle - best[0].cycle) for one in best]


def _starts(moments: Sequence[Moment]) -> list[int]:
    turns = Counter[int]()
    found = []
    for i, one in enumerate(moments):
        turns[one.op.code.address] += 1
        if turns[one.op.code.address] == _ITERATION and _SCOREBOARDS & one.waited.keys():
            found.append(i)
    return found or [0]
