"""Execution counts of each line of PTX in an emulated launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from gemmlab.emulator import Run
from gemmlab.emulator.program import Program


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


class _Kind(NamedTuple):
    """An opcode on a line: its counts if it is never executed, and the basic block and the first
    instruction of each of its places."""

    never: PtxLine
    places: list[tuple[int, int]]


@lru_cache(maxsize=8)
def kinds_of_lines(program: Program) -> dict[int, list[_Kind]]:
    """Return the opcodes on each line of PTX. This does not depend on what a launch executes."""
    code, found = program.function.instructions, dict[int, dict[tuple[str, ...], _Kind]]()
    for number, index in program.kinds:
        one = code[index]
        opcode, is_guarded = one.opcode, one.guard is not None
        is_branch = opcode[0] == "brx" or (opcode[0] == "bra" and is_guarded)
        never = PtxLine(branch=is_branch, guarded=is_guarded, block=number, root=opcode[0])
        of_line = found.setdefault(one.line, {})
        before = of_line[opcode].places if opcode in of_line else []
        of_line[opcode] = _Kind(never, [*before, (number, index)])
    return {line: [*kinds.values()] for line, kinds in found.items()}


def ptx_lines(run: Run) -> dict[int, PtxLine]:
    """Return the counts by line of the PTX text."""
    tally = run.tally
    counts = [*map(Executed, tally.warps.tolist(), tally.lanes.tolist())]
    divergent, guarded_off = tally.divergent.tolist(), tally.guarded_off.tolist()

    def counted(kind: _Kind) -> PtxLine:
        (number, index), *others = kind.places
        executed, split, off = counts[number], divergent[index], guarded_off[index]
        for number, index in others:
            executed, split, off = (
                executed + counts[number],
                split + divergent[index],
                off + guarded_off[index],
            )
        if executed == kind.never.executed:
            return kind.never
        _, branch, _, _, guarded, block, root, _ = kind.never
        return PtxLine(executed, branch, split, off, guarded, block, root)

    return {
        line: _of_line([*map(counted, kinds)])
        for line, kinds in kinds_of_lines(run.program).items()
    }


def _of_line(kinds: Sequence[PtxLine]) -> PtxLine:
    if len(kinds) == 1:
        return kinds[0]
    chosen = max(kinds, key=lambda kind: (kind.branch, kind.executed.threads))
    return chosen._replace(clear=len({kind.executed for kind in kinds}) == 1)
