"""Checks of wgmma: its tiles and registers must not be accessed before the wait for its group.

Before the wait, only further wgmma instructions may use the accumulators, and registers that hold A
must not change. PTX contains register copies that machine code does not, so a `mov` propagates the
state of its source and does not count as an access.

A warp must execute wgmma.fence before its first wgmma, and again after writing registers that the
next one uses (PTX ISA, "wgmma.fence"). Compilers may move assignments of constants past the fence.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from gemmlab.core.tensor_map import CHUNK
from gemmlab.emulator.arithmetic.lanes import WARP, Mask
from gemmlab.emulator.checks import advice
from gemmlab.emulator.checks.state import State
from gemmlab.emulator.observer import Observer
from gemmlab.emulator.program import Block
from gemmlab.emulator.tensor_cores.wgmma import GROUP_WARPS, Places
from gemmlab.emulator.translation.liveness import results, sources
from gemmlab.ptx.ir import Imm, Instruction, Reg, Vector, registers

NEVER = np.int64(np.iinfo(np.int64).min)  # no group, or a group that has been waited for


class Reading(NamedTuple):
    """The tile reads of one instruction by several warps, pending until the wait."""

    places: Places
    group: np.ndarray  # per warp
    holder: np.ndarray  # column of each warp's first thread
    cells: np.ndarray  # (warps, granules)
    epoch: int


class TileReads(Observer):
    """Models the tensor cores of each warpgroup as an engine whose clock a wait acquires."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.committed = np.zeros(state.machine.extent.shape[:2], np.int64)  # groups per warp
        self.readings: list[Reading] = []

    def wgmma_read(self, index: int, at: Places, chunks: np.ndarray) -> None:
        state, shadow, clocks = self.state, self.state.shadow, self.state.clocks
        rows = (at[0] * state.machine.extent.warps + at[1]) * WARP
        starts = at[0][:, None] * state.shared.shape[1] + chunks.reshape(len(rows), -1) * CHUNK
        cells = state.pieces(starts.reshape(-1), CHUNK).reshape(len(rows), -1)
        shadow.load_initialized(rows[:, None], cells, index, in_flight=True)
        shadow.check_fence(rows[:, None], cells, index, "reads")
        clocks.engine_epoch += 1
        holder = clocks.column(rows)
        self.readings.append(Reading(at, self.committed[at], holder, cells, clocks.engine_epoch))

    def wgmma_committed(self, mask: Mask | None) -> None:
        self.committed += self.state.machine.active(mask).any(axis=2)

    def wgmma_awaited(self, most: int, mask: Mask | None) -> None:
        state, clocks = self.state, self.state.clocks
        on = state.machine.active(mask).any(axis=2)
        done, left = np.where(on, self.committed - most, NEVER), []
        for r in self.readings:
            due = r.group < done[r.places]
            for k in np.flatnonzero(due).tolist():
                block, warp = int(r.places[0][k]), int(r.places[1][k])
                engine = clocks.engine(("wgmma", warp // GROUP_WARPS))
                state.shadow.complete_reads(r.cells[k], r.holder[k], engine, r.epoch)
                self._hear(block, warp, engine, r.epoch)
            if not due.all():
                left.append(_part(r, ~due))
        self.readings = left

    def _hear(self, block: int, warp: int, engine: int, epoch: int) -> None:
        """A wait by one warp acquires the tensor cores' clock for all warps of its warpgroup."""
        clocks = self.state.clocks
        released = np.zeros(clocks.known.shape[1], np.int32)
        released[engine] = epoch
        first = block * clocks.threads + warp // GROUP_WARPS * GROUP_WARPS * WARP
        clocks.acquire(np.arange(first, min(first + GROUP_WARPS * WARP, clocks.num_rows)), released)


def _part(r: Reading, keep: np.ndarray) -> Reading:
    places = tuple(x[keep] for x in r.places)
    return Reading(places, r.group[keep], r.holder[keep], r.cells[keep], r.epoch)


class Step(NamedTuple):
    """The effect of one instruction on the registers of wgmma."""

    instruction: int
    verb: str  # "multiply", "fence", "commit", "wait", "move" or "touch"
    results: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    most: int = 0  # groups that may remain pending after a wait


class Accumulators(Observer):
    """The registers of wgmma, with the group that last used each of them, per warp."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.code = state.code
        self.blocks = state.machine.launch.program.blocks
        self.shape = state.machine.extent.shape[:2]
        self.committed = np.zeros(self.shape, np.int64)
        self.done = np.zeros(self.shape, np.int64)
        self.group: dict[tuple[str, str], np.ndarray] = {}  # ("written" or "read", register)
        self.site: dict[str, int] = {}  # register -> wgmma that last used it
        self.fenced = np.zeros(self.shape, bool)
        self.fresh: dict[str, np.ndarray] = {}  # register -> written since the last wgmma.fence
        self.writer: dict[str, int] = {}  # register -> instruction that last wrote it

    @cached_property
    def names(self) -> frozenset[str]:
        """The registers that wgmma uses, and all registers connected to them by copies."""
        found = {x for i in self.code if is_product(i) for x in registers(i.operands[:2])}
        copies = [
            ({*registers(i.operands[:1])}, {*registers(i.operands[1:])})
            for i in self.code
            if is_copy(i)
        ]
        while True:
            more = {x for to, of in copies if found & of or found & to for x in to | of} - found
            if not more:
                return frozenset(found)
            found |= more

    @cached_property
    def steps(self) -> list[list[Step]]:
        """The steps of each basic block."""
        return [list(self._steps(b.first, b.last)) if self.names else [] for b in self.blocks]

    def _steps(self, first: int, last: int) -> Iterator[Step]:
        for k in range(first, last):
            i = self.code[k]
            if is_product(i):
                a = registers(i.operands[1:2]) if isinstance(i.operands[1], Vector) else ()
                yield Step(k, "multiply", tuple(registers(i.operands[:1])), tuple(a))
            elif i.opcode[:2] == ("wgmma", "fence"):
                yield Step(k, "fence")
            elif i.opcode[:2] == ("wgmma", "commit_group"):
                yield Step(k, "commit")
            elif i.opcode[:2] == ("wgmma", "wait_group") and i.operands:
                most = i.operands[0]
                if isinstance(most, Imm):
                    yield Step(k, "wait", most=int(most.value))
            elif i.guard is None:
                written = tuple(self.names & {*results(i)})
                read = tuple(self.names & {*sources(i)})
                if written or read:
                    yield Step(k, "move" if is_copy(i) else "touch", written, read)

    def before(self, number: int, block: Block, mask: Mask | None) -> None:
        steps = self.steps[number]
        if not steps:
            return
        on = np.asarray(self.state.machine.active(mask).any(axis=2))
        for step in steps:
            match step.verb:
                case "multiply":
                    self._check_fence(step, on)
                    for use, names in (("written", step.results), ("read", step.sources)):
                        for name in names:
                            self._write(name, on, False)
                            self._set(use, name, on, self.committed)
                            self.site[name] = step.instruction
                case "fence":
                    self.fenced |= on
                    self.fresh = {name: fresh & ~on for name, fresh in self.fresh.items()}
                case "commit":
                    self.committed += on
                case "wait":
                    self.done = np.where(on, self.committed - step.most, self.done)
                case "move":
                    self._move(step, on)
                case _:
                    self._touch(step, on)

    def _set(self, use: str, name: str, on: np.ndarray, group: np.ndarray | np.int64) -> None:
        old = self.group.get((use, name), NEVER)
        self.group[use, name] = np.where(on, group, old)

    def _move(self, step: Step, on: np.ndarray) -> None:
        moved = np.full(self.shape, NEVER)
        for source in step.sources:
            moved = np.maximum(moved, self.group.get(("written", source), NEVER))
        fresh = [name for name in step.sources if name in self.fresh]
        for result in step.results:
            self._write(result, on, np.any([self.fresh[name] for name in fresh], axis=0))
            self.writer.update((result, self.writer[name]) for name in fresh if name in self.writer)
            self._set("written", result, on, moved)
            self._set("read", result, on, NEVER)
            for source in self.site.keys() & step.sources:
                self.site[result] = self.site[source]

    def _touch(self, step: Step, on: np.ndarray) -> None:
        for name in step.sources:
            self._check("written", name, step.instruction, on, "is read")
        for name in step.results:
            self._check("written", name, step.instruction, on, "is written")
            self._check("read", name, step.instruction, on, "is written")
            self._write(name, on, self.code[step.instruction].root != "mov")
            self.writer[name] = step.instruction

    def _write(self, name: str, on: np.ndarray, is_fresh: np.ndarray | bool) -> None:
        old = self.fresh.get(name, False)
        self.fresh[name] = np.where(on, is_fresh, old)

    def _check_fence(self, step: Step, on: np.ndarray) -> None:
        index = step.instruction
        here = advice.line(self.code[index].site)
        if (on & ~self.fenced).any():
            what = f"no wgmma.fence before a warp's first wgmma: put `wgmma.fence` before {here}"
            self._report("missing fence", what, index, None, on & ~self.fenced)
            return
        for name in (*step.results, *step.sources):
            late = on & self.fresh.get(name, False)
            if late.any():
                there = advice.line(self.code[self.writer[name]].site)
                what = (
                    f"{name} is written at {there}, a wgmma uses it at {here}, no wgmma.fence "
                    f"between: put `wgmma.fence` before {here}"
                )
                self._report("missing fence", what, index, self.writer[name], late)
                return

    def _check(self, use: str, name: str, index: int, on: np.ndarray, what: str) -> None:
        group = self.group.get((use, name))
        if group is None:
            return
        early = on & (group >= self.done) & (group != NEVER)
        if early.any():
            role = "an accumulator" if use == "written" else "a register with elements of A"
            here, site = advice.line(self.code[index].site), self.site.get(name)
            of = "" if site is None else f", started at {advice.line(self.code[site].site)}"
            message = (
                f"{name}, {role} of a wgmma{of}, {what} at {here} before the wgmma has finished: "
                f"put `wgmma.wait_group` before {here}"
            )
            self._report("missing wait", message, index, site, early)

    def _report(
        self, kind: str, message: str, index: int, other: int | None, warps: np.ndarray
    ) -> None:
        """Add a finding for the first of the given warps."""
        if self.state.findings.wants(kind, index, other):
            block, warp = (int(x) for x in np.argwhere(warps)[0])
            at = self.state.machine.block_index(block)
            threads = range(warp * WARP, (warp + 1) * WARP)
            self.state.findings.add(kind, message, index, other, at, threads)


def is_product(i: Instruction) -> bool:
    return i.opcode[:2] == ("wgmma", "mma_async") and len(i.operands) > 1


def is_copy(i: Instruction) -> bool:
    """Whether an instruction copies a register, possibly packing or unpacking it."""
    return i.root == "mov" and all(isinstance(o, (Reg, Vector)) for o in i.operands)
