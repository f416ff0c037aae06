"""Where the memory accesses of machine code differ from those of its PTX."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gemmlab.cubin.code import Code, Instruction
from gemmlab.emulator import Run
from gemmlab.ptx.opcodes import ACCESSES
from gemmlab.sass.counts import Counted

OPERATIONS = {
    **dict.fromkeys(("LDG", "LDS", "LD", "LDL", "LDSM"), "load"),
    **dict.fromkeys(("STG", "STS", "ST", "STL", "STSM"), "store"),
    **dict.fromkeys(("ATOM", "ATOMG", "ATOMS", "RED", "REDG"), "atomic"),
    **ACCESSES,
}
SPILLS = ("LDL", "STL")
SPACES = {
    **dict.fromkeys(("LDG", "STG", "ATOMG", "REDG"), "global"),
    **dict.fromkeys(("LDS", "LDSM", "STS", "STSM", "ATOMS"), "shared"),
    **dict.fromkeys(SPILLS, "local"),
}
CAS_LOOP = "compare-and-swap loop; iterations not counted"
VECTORIZED_DIFFERENTLY = "vectorized differently than the emulator assumes; affects wavefronts"


@dataclass(frozen=True)
class Difference:
    """A kind of difference, and the warp-level accesses it involves in PTX and in machine code."""

    what: str
    access: str  # such as "global load", or the name of a routine
    lines: tuple[int, ...]  # PTX lines
    ptx: int  # warp-level accesses in the PTX
    machine: int  # warp-level accesses in the machine code


@dataclass
class PtxAccesses:
    """The accesses of one kind in one line of PTX."""

    space: str
    instructions: int = 0
    warps: int = 0
    # bytes per thread, after the emulator joins accesses
    widths: set[int] = field(default_factory=set)


def differences(run: Run, code: Code, counted: Counted) -> tuple[Difference, ...]:
    """Return one row per kind of difference and of access, in PTX order."""
    rows: dict[tuple[str, str], list[Difference]] = defaultdict(list)
    for found in (*_accesses(run, code, counted), *_routines(code, counted)):
        rows[found.what, found.access].append(found)
    return tuple(
        Difference(
            what,
            access,
            tuple(sorted({line for row in same for line in row.lines})),
            sum(row.ptx for row in same),
            sum(row.machine for row in same),
        )
        for (what, access), same in rows.items()
    )


def _accesses(run: Run, code: Code, counted: Counted) -> Iterator[Difference]:
    wanted = _ptx_accesses(run)
    done = _in_place(_machine_accesses(code, counted), wanted, _blocks(run))
    for place, requested in sorted(wanted.items()):
        line, operation = place
        made = done.pop(place, [])
        access, warps = f"{requested.space} {operation}", sum(times for _, times in made)
        widths = {one.width for one, _ in made if one.root in ("LDS", "STS")}
        if not widths <= requested.widths:
            yield Difference(VECTORIZED_DIFFERENTLY, access, (line,), requested.warps, warps)
            continue
        if operation == "atomic" and (loop := done.pop((line, "load"), [])):
            warps += sum(times for _, times in loop)
            yield Difference(CAS_LOOP, access, (line,), requested.warps, warps)
        elif what := _classify(requested, made, warps):
            yield Difference(what, access, (line,), requested.warps, warps)
    for (line, operation), made in sorted(done.items()):
        for one, times in made:
            what = "spilled" if one.root in SPILLS else "added"
            access = f"{SPACES.get(one.root, 'generic')} {operation}"
            yield Difference(what, access, (line,) if line else (), 0, times)


def _classify(requested: PtxAccesses, made: Sequence[tuple[Instruction, int]], warps: int) -> str:
    """Return how the accesses made for a line differ from those it requests, or "" if they do
    not."""
    if not made:
        return "merged into another access or eliminated" if requested.warps else ""
    if warps > requested.warps:
        guarded = any(one.guard for one, _ in made)
        return "predicated: issued with no active thread" if guarded else "hoisted above a branch"
    if warps < requested.warps:
        fewer = len(made) < requested.instructions
        return "merged into another access or eliminated" if fewer else "hoisted out of a loop"
    return "duplicated or split" if len(made) > requested.instructions else ""


def _ptx_accesses(run: Run) -> dict[tuple[int, str], PtxAccesses]:
    """Return the PTX accesses to global, shared and local memory by line and operation."""
    found: dict[tuple[int, str], PtxAccesses] = {}
    instructions, accesses = run.program.function.instructions, run.program.accesses
    for block, warps in zip(run.program.blocks, run.tally.warps.tolist(), strict=True):
        for index in range(block.first, block.last):
            one = instructions[index]
            operation = OPERATIONS.get(one.root)
            words = [word.partition("::")[0] for word in one.modifiers]
            if operation and not {"param", "const"} & {*words}:
                spaces = (word for word in words if word in ("global", "shared", "local"))
                space = next(spaces, "shared" if one.root.endswith("matrix") else "generic")
                requested = found.setdefault((one.line, operation), PtxAccesses(space))
                requested.instructions += 1
                requested.warps += warps
                if index in accesses:
                    requested.widths.add(accesses[index].width)
    return found


def _machine_accesses(
    code: Code, counted: Counted
) -> dict[tuple[int, str], list[tuple[Instruction, int]]]:
    """Return the machine code's accesses by line and operation, each with the warps that executed
    it."""
    found: dict[tuple[int, str], list[tuple[Instruction, int]]] = defaultdict(list)
    for block, executed in zip(code.blocks, counted.blocks, strict=True):
        for one in code.inside(block):
            if operation := OPERATIONS.get(one.root):
                found[one.line or 0, operation].append((one, executed.warps))
    return found


def _blocks(run: Run) -> dict[int, int]:
    """Return the PTX basic block of each line."""
    instructions = run.program.function.instructions
    return {
        one.line: number
        for number, block in enumerate(run.program.blocks)
        for one in instructions[block.first : block.last]
    }


def _in_place(
    done: dict[tuple[int, str], list[tuple[Instruction, int]]],
    wanted: Mapping[tuple[int, str], PtxAccesses],
    blocks: Mapping[int, int],
) -> dict[tuple[int, str], list[tuple[Instruction, int]]]:
    """Return the accesses by line, moved to the lines of their PTX block that lack them.

    A pass that reorders instructions (`cubin/reorder.py`) leaves the table of lines as it was.
    """
    lacking = defaultdict[tuple[int | None, str, int], list[int]](list)
    for (line, operation), requested in sorted(wanted.items()):
        if (line, operation) not in done and len(requested.widths) == 1:
            lacking[blocks[line], operation, min(requested.widths)].append(line)
    moved: dict[tuple[int, str], list[tuple[Instruction, int]]] = defaultdict(list)
    for place, made in sorted(done.items()):
        line, operation = place
        for access in made:
            lines = lacking[blocks.get(line), operation, access[0].width]
            there = place not in wanted and lines
            moved[(lines.pop(0), operation) if there else place].append(access)
    return moved


def _routines(code: Code, counted: Counted) -> Iterator[Difference]:
    """Yield ptxas's out-of-line routines: divisions, and slow paths for rare values."""
    starts = {index: name for name, index in code.labels.items() if name.startswith("$")}
    for block, executed in zip(code.blocks, counted.blocks, strict=True):
        if block.first in starts:
            name = starts[block.first].rpartition("$")[2]
            what = "called" if executed.warps else "assumed never called"
            yield Difference(what, name, (), 0, executed.warps)
