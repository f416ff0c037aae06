"""Execution counts of each line of PTX in an emulated launch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gemmlab.emulator import Run


class Executed(NamedTuple):
    """Execution counts."""

    warps: int = 0
    threads: int = 0

    def __add__(self, other: Executed) -> Executed:  # type: ignore[override]
        return Executed(self.warps + other.warps, self.threads + other.threads)

    def __floordiv__(self, times: int) -> Executed:
        return Executed(self.warps // times, self.threads // times)


class PtxLine(NamedTuple):
    """Execution counts of one PTX line, summed over the inlined copies of its function."""

    executed: Executed = Executed()
    branch: bool = False  # whether it has a conditional branch, which these counts describe
    divergent: int = 0  # executions that diverged a warp
    guarded_off: int = 0  # thread-instructions that were predicated off
    guarded: bool = False
    block: int = 0  # index of the PTX basic block
    root: str = ""  # first word of the opcode
    clear: bool = True  # whether all instructions of the line have the same counts

    @property
    def on(self) -> int:
        """Predicated-on thread-instructions."""
        return self.executed.threads - self.guarded_off


Lines = Mapping[int, PtxLine]  # by line number


def ptx_lines(run: Run) -> dict[int, PtxLine]:
    """Return the counts by line of the PTX text."""
    code, tally = run.program.function.instructions, run.tally
    found: dict[int, dict[tuple[str, ...], PtxLine]] = defaultdict(dict)
    counts = [*map(Executed, tally.warps.tolist(), tally.lanes.tolist())]
    divergent, guarded_off = tally.divergent.tolist(), tally.guarded_off.tolist()
    for number, index in run.program.kinds:
        one = code[index]
        opcode, is_guarded, of_line = one.opcode, one.guard is not None, found[one.line]
        executed, split, off = counts[number], divergent[index], guarded_off[index]
        old = of_line.get(opcode)
        if old is not None:
            executed, split, off = (
                old.executed + executed,
                old.divergent + split,
                old.guarded_off + off,
            )
        is_branch = opcode[0] == "brx" or (opcode[0] == "bra" and is_guarded)
        of_line[opcode] = PtxLine(executed, is_branch, split, off, is_guarded, number, opcode[0])
    return {line: _of_line([*kinds.values()]) for line, kinds in found.items()}


def _of_line(kinds: Sequence[PtxLine]) -> PtxLine:
    if len(kinds) == 1:
        return kinds[0]
    chosen = max(kinds, key=lambda kind: (kind.branch, kind.executed.threads))
    return chosen._replace(clear=len({kind.executed for kind in kinds}) == 1)
