"""What an emulated launch executed of each line of PTX."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gemmlab.emulator import Run


@dataclass(frozen=True)
class Executed:
    """How often something was executed."""

    warps: int = 0
    threads: int = 0

    def __add__(self, other: Executed) -> Executed:
        return Executed(self.warps + other.warps, self.threads + other.threads)

    def __floordiv__(self, times: int) -> Executed:
        return Executed(self.warps // times, self.threads // times)


@dataclass(frozen=True)
class PtxLine:
    """What was executed of one line of PTX; copies of a function that was inlined are added up."""

    executed: Executed = Executed()
    branch: bool = False  # it holds a conditional one, whose numbers these are
    divergent: int = 0  # times that parted the lanes of a warp
    guarded_off: int = 0  # threads whose guard was false
    guarded: bool = False
    block: int = 0  # the basic block of PTX that it is in
    root: str = ""  # the first word of its instruction
    clear: bool = True  # all that the line holds was executed as often

    @property
    def on(self) -> int:
        """Threads that took part."""
        return self.executed.threads - self.guarded_off


Lines = Mapping[int, PtxLine]  # by number


def ptx_lines(run: Run) -> dict[int, PtxLine]:
    """By line of the PTX text."""
    code, tally = run.program.function.instructions, run.tally
    found: dict[int, dict[tuple[str, ...], PtxLine]] = defaultdict(dict)
    executed = zip(run.program.blocks, tally.warps.tolist(), tally.lanes.tolist(), strict=True)
    for number, (block, warps, threads) in enumerate(executed):
        # A second instruction of the same kind in the block would say the same again.
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
    chosen = max(kinds, key=lambda kind: (kind.branch, kind.executed.threads))
    return replace(chosen, clear=len({kind.executed for kind in kinds}) == 1)
