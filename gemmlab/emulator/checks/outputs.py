"""Finds outputs that a launch has not written completely.

An array that the kernel reads or updates atomically is not an output. An output whose contents are
undefined must be written completely. Any other output may keep elements in two cases: data decides
which elements are written, as in a scatter, a stream compaction or a filter; or integer arguments
say which, as for the first n elements of a longer array, or rows with padding between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import combinations, permutations
from operator import and_
from typing import NamedTuple

import numpy as np

from gemmlab.emulator.checks.blocks import GlobalShadow
from gemmlab.emulator.checks.findings import SHOWN, Findings
from gemmlab.emulator.checks.shadow import site_of
from gemmlab.emulator.memory.arena import GLOBAL_BASE
from gemmlab.emulator.program import Block, Program
from gemmlab.emulator.translation.liveness import results, sources
from gemmlab.ptx.ir import Instruction, Memory, registers
from gemmlab.ptx.opcodes import SCALAR_ACCESSES, WITHOUT_RESULT

KIND = "unwritten output"
LOADS = SCALAR_ACCESSES - WITHOUT_RESULT
SAME = {"param", "const"}  # state spaces whose contents are part of the launch


class Output(NamedTuple):
    """An array that a kernel is expected to write."""

    name: str  # "argument 1"
    start: int  # first byte in the arena
    nbytes: int
    itemsize: int  # bytes of an element
    is_undefined: bool  # whether its elements must be written before they are read
    sizes: tuple[int, ...]  # positive integers among the launch's arguments

    def granules(self, size: int) -> slice:
        """The granules of `size` bytes of the arena that it fills."""
        return slice(-(-self.start // size), (self.start + self.nbytes) // size)


def find_unwritten(
    output: Output, program: Program, findings: Findings, shadow: GlobalShadow, granule: int
) -> None:
    """Report the elements of an output that a launch has not written, if it has written others.

    granule: bytes per entry of `shadow`.
    """
    cells = output.granules(granule)
    when = shadow.written.when[cells]
    bad, written = np.flatnonzero(when <= 0), np.flatnonzero(when > 0)
    is_read = shadow.read.when[cells].any() or shadow.looked[cells].any()
    if not bad.size or not written.size or is_read:
        return
    missing_bytes = np.zeros(output.nbytes, bool)
    head = cells.start * granule - output.start
    missing_bytes[head : head + when.size * granule] = np.repeat(when <= 0, granule)
    is_missing = np.logical_or.reduce(missing_bytes.reshape(-1, output.itemsize), axis=1)
    if not output.is_undefined:
        sites = np.unique(site_of(shadow.written.by[cells][written])).tolist()
        if is_set_by_sizes(~is_missing, output.sizes) or not placed_by_data(program).isdisjoint(
            sites
        ):
            return
    elements = np.flatnonzero(is_missing)
    site = shadow.writer(int(written[np.abs(written - bad[0]).argmin()]) + cells.start)
    assert site is not None
    shown = ", ".join(map(str, elements[:SHOWN].tolist()))
    more = ", …" if len(elements) > SHOWN else ""
    message = (
        f"{len(elements):,} of {len(is_missing):,} elements of {output.name} are never written "
        f"({shown}{more}); this store writes their neighbor"
    )
    address = output.start + int(elements[0]) * output.itemsize + GLOBAL_BASE
    findings.add(KIND, message, site, addresses=[address])


def is_set_by_sizes(is_written: np.ndarray, sizes: Sequence[int]) -> bool:
    """Whether integer arguments determine which elements of an array are written.

    They do if the kernel writes the first n elements of an array whose length is not a product of
    two arguments, or the first n of every ld elements, in m rows or columns. is_written: per
    element. sizes: the positive integer arguments.
    """
    total, written = len(is_written), np.flatnonzero(is_written)
    shapes = [shape for shape in permutations(sizes, 3) if shape[1] < shape[2]]
    if total not in {a * b for a, b in combinations(sizes, 2)}:
        shapes += [(1, n, total) for n in sizes]
    return any(
        rows * columns == len(written)
        and np.array_equal(written, np.add.outer(stride * np.arange(rows), np.arange(columns)).flat)
        for rows, columns, stride in shapes
    )


def placed_by_data(program: Program) -> set[int]:
    """Instructions whose addresses or execution depend on values that the kernel has loaded, other
    than parameters and constants."""
    code, blocks = program.function.instructions, program.blocks
    controlled = _controlled(code, blocks)
    tainted, dependent = set[str](), 0  # registers; blocks, as bits
    size, last_size = 0, -1
    while size > last_size:
        for number, block in enumerate(blocks[:-1]):
            is_dependent = bool(dependent >> number & 1)
            for i in code[block.first : block.last]:
                is_load = i.root in LOADS and SAME.isdisjoint(i.modifiers)
                if is_dependent or is_load or not tainted.isdisjoint(_reads(i)):
                    tainted.update(results(i))
            if is_dependent or not tainted.isdisjoint(_reads(code[block.last - 1])):
                dependent |= controlled[number]
        size, last_size = len(tainted) + dependent.bit_count(), size
    return {
        k
        for number, block in enumerate(blocks)
        for k in range(block.first, block.last)
        if dependent >> number & 1 or not tainted.isdisjoint(_addresses(code[k]))
    }


def _reads(i: Instruction) -> set[str]:
    return {*sources(i)} | ({i.guard.reg.name} if i.guard is not None else set())


def _addresses(i: Instruction) -> set[str]:
    """Registers that determine the addresses of an instruction, and its guard."""
    places = [o for o in i.operands if isinstance(o, Memory)]
    parts = [part for place in places for part in (place, *place.coordinates)]
    return {*registers(parts)} | ({i.guard.reg.name} if i.guard is not None else set())


def _controlled(code: Sequence[Instruction], blocks: Sequence[Block]) -> list[int]:
    """For each basic block, the blocks control-dependent on it, as bits (Ferrante 1987)."""
    end = len(blocks) - 1
    successors = [_successors(code[block.last - 1], block, end) for block in blocks[:-1]]
    # For each block, its post-dominators: the blocks on every path from it to the end.
    after = [(1 << len(blocks)) - 1] * end + [1 << end]
    changed = True
    while changed:
        changed = False
        for number in reversed(range(end)):
            now = 1 << number | reduce(and_, (after[s] for s in successors[number]))
            changed |= now != after[number]
            after[number] = now
    found = []
    for number in range(end):
        reached = 0
        for s in successors[number]:
            reached |= after[s]
        found.append(reached & ~(after[number] & ~(1 << number)))
    return found


def _successors(last: Instruction, block: Block, end: int) -> list[int]:
    """The blocks that may run next. last: the block's last instruction."""
    leaves = [end] if block.terminator in ("exit", "trap") else []
    if last.guard is not None or block.terminator not in ("branch", "switch", "exit", "trap"):
        return leaves + block.targets
    return leaves or block.targets[:-1]
