"""Execution counts of each line of PTX in an emulated launch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gemmlab.emulator import Run


@dataclass(frozen=True)
class Executed:
    """Execution counts."""

    warps: int = 0
    threads: int = 0

    def __add__(self, other: Executed) -> Executed:
        return Executed(self.warps + other.warps, self.threads + other.threads)

    def __floordiv__(self, times: int) -> Executed:
        return Executed(self.warps // times, self.threads // times)


@dataclass(frozen=True)
class PtxLine:
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
    executed = zip(run.program.blocks, tally.warps.tolist(), tally.lanes.tolist(), strict=True)
    for number, (block, warps, threads) in enumerate(executed):
        # Further instructions with the same opcode in the block have the same counts.
        first = {
            (code[i].line, code[i].opcode): i for i in reversed(range(block.first, block.last))
        }
        for (line, opcode), index in first.items():
            old = found[line].get(opcode, PtxLine())
            found[line][opcode] = PtxLine(
                old.executed + Executed(warps, threads),
                opcode[0] == "brx" or (opcode[0] == "bra" and code[index].guard is not None),
                old.divergent + int(tally.divergent[index]),
                old.guarded_off + int(tally.guarded_off[index]),
                code[index].guard is not None,
                number,
                opcode[0],
            )
    return {line: _of_line([*kinds.values()]) for line, kinds in found.items()}


def _of_line(kinds: Sequence[PtxLine]) -> PtxLine:
    if len(kinds) == 1:
        return kinds[0]
    chosen = max(kinds, key=lambda kind: (kind.branch, kind.executed.threads))
    return replace(chosen, clear=len({kind.executed for kind in kinds}) == 1)
