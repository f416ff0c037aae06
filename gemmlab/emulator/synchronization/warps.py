"""Makes lanes wait for the other members of a warp collective (shfl.sync, vote.sync, match.sync,
redux.sync, elect.sync, bar.warp.sync).

A collective executes when all live lanes of its membermask have reached it, or have reached another
instruction with the same opcode and mask. PTX requires no more than that, and CUDA permits each
side of an `if` to contain its own instruction. If a member never arrives, the others wait forever.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Mask, Value, three_axes
from gemmlab.emulator.launch.threads import Ready, Threads
from gemmlab.emulator.synchronization.collectives import bits_of, lanes_of, match_any
from gemmlab.emulator.synchronization.deadlock import MAX_ENTRIES, Blocked
from gemmlab.ptx.opcodes import EXCHANGES

Place = tuple[int, Mask | None]


def numbers(lanes: np.ndarray) -> str:
    """Format (32,) bool as text: "lane 3", "lanes 0 to 15, 20"."""
    runs: list[list[int]] = []
    for lane in np.flatnonzero(lanes).tolist():
        if runs and runs[-1][-1] == lane - 1:
            runs[-1].append(lane)
        else:
            runs.append([lane])
    texts = [f"{r[0]} to {r[-1]}" if len(r) > 2 else ", ".join(map(str, r)) for r in runs]
    return f"{'lane' if len(runs) == 1 and len(runs[0]) == 1 else 'lanes'} {', '.join(texts)}"


class Given(Exception):
    """Aborts a basic block at its collective and carries the collective's operand."""

    def __init__(self, value: Value) -> None:
        self.value = value


class Rendezvous(NamedTuple):
    """Lanes that execute one collective together, at several identical instructions."""

    lanes: np.ndarray
    named: np.ndarray  # membermask of each lane, as bits
    first: int  # the lowest of their basic blocks
    values: np.ndarray | None = None  # operand of each lane; None until collected

    def given(self, value: Value) -> Value:
        """The operands of all lanes; `value` has only those of the lanes at one instruction."""
        if self.values is None:
            raise Given(value)
        return np.where(self.lanes, self.values, three_axes(value))


class Group(NamedTuple):
    """Lanes of a warp that wait at a collective with the same membermask."""

    site: int  # index of the instruction
    warp: int
    members: int  # the membermask
    lanes: np.ndarray  # (32,)
    absent: np.ndarray  # (32,) members that have not arrived


class WarpWaits:
    """The lanes of one machine that wait at warp collectives."""

    def __init__(self, threads: Threads) -> None:
        self.threads = threads
        self.waiting: dict[int, Mask] = {}  # basic block -> lanes that wait at its start
        self.rendezvous: Rendezvous | None = None
        self.due: deque[tuple[int, Mask, Rendezvous]] = deque()

    def members(self, pc: int) -> np.ndarray:
        """The membermasks of the collective at the start of basic block `pc`, as bits."""
        members = self.threads.launch.program.blocks[pc].members
        assert members is not None
        return three_axes(members(self.threads.registers))

    def lacking(self, pc: int, mask: Mask | None) -> np.ndarray | None:
        """The warps of `mask` with missing members, (blocks, warps, 1) bool; None if no warp has
        any."""
        threads = self.threads
        if threads.launch.program.blocks[pc].members is None or mask is None:
            return None
        missing = self.members(pc) & bits_of(threads.live) & ~bits_of(mask.array)
        lacking = ((missing != 0) & mask.array).any(axis=2, keepdims=True)
        return lacking if lacking.any() else None

    def choose(self, parts: Ready, order: list[int]) -> Place | None:
        """The first basic block whose lanes, or some of them, can run, and those lanes. None if all
        must wait.

        Lanes that can only run together with lanes at other basic blocks are queued in `due`.
        """
        lacking = {}
        for pc in order:
            found = self.lacking(pc, parts[pc])
            if found is None:
                return pc, parts[pc]
            lacking[pc] = found
        for pc, warps in lacking.items():
            some = self._part(parts[pc], ~warps)
            if some is not None:
                return pc, some
        self.meet({pc: part for pc in order if (part := self._part(parts[pc], lacking[pc]))})
        return self.next_due() if self.due else None

    def _part(self, mask: Mask | None, warps: np.ndarray) -> Mask | None:
        """The lanes of `mask` in the given warps; None if there are none."""
        part = Mask(self.threads.active(mask) & warps, self.threads.extent)
        return part if part.lanes else None

    def meet(self, parts: dict[int, Mask]) -> None:
        """Queue lanes whose missing members wait at an identical instruction elsewhere."""
        threads, alike = self.threads, defaultdict[tuple[str, ...], list[int]](list)
        blocks = threads.launch.program.blocks
        code = threads.launch.program.function.instructions
        for pc in parts:
            alike[code[blocks[pc].first].opcode].append(pc)
        for opcode, pcs in alike.items():
            lanes, named = np.zeros((2, *threads.extent.shape), np.uint32)
            for pc in pcs:
                lanes |= parts[pc].array
                named = np.where(parts[pc].array, self.members(pc), named)
            on = lanes.astype(bool)
            together = match_any(on, named, named)
            on &= (named & bits_of(threads.live) & ~together) == 0
            groups = {pc: Mask(on & parts[pc].array, threads.extent) for pc in pcs}
            groups = {pc: group for pc, group in groups.items() if group.lanes}
            if groups:
                rendezvous = Rendezvous(on, named, min(groups))
                if opcode[0] in EXCHANGES:
                    rendezvous = rendezvous._replace(values=self._values(groups, rendezvous))
                self.due.extend((pc, groups[pc], rendezvous) for pc in sorted(groups))

    def _values(self, groups: dict[int, Mask], rendezvous: Rendezvous) -> np.ndarray:
        """The operands of all lanes of a rendezvous. Each basic block is run up to its collective,
        which is its first instruction."""
        threads, values = self.threads, None
        for pc, group in groups.items():
            self.rendezvous = rendezvous
            try:
                threads.launch.program.blocks[pc].run(threads, threads.registers, group)
            except Given as given:
                value = np.broadcast_to(three_axes(given.value), rendezvous.lanes.shape)
                values = value if values is None else np.where(group.array, value, values)
            self.rendezvous = None
        assert values is not None
        return values

    def next_due(self) -> Place:
        """The next basic block of the current rendezvous, and its lanes."""
        pc, mask, self.rendezvous = self.due.popleft()
        return pc, mask

    def hold(self) -> None:
        """Move ready lanes with missing members to `waiting`."""
        threads = self.threads
        for pc, mask in [*threads.ready.items()]:
            lacking = self.lacking(pc, mask)
            if lacking is None:
                continue
            assert mask is not None
            del threads.ready[pc]
            rest = self._part(mask, ~lacking)
            if rest is not None:
                threads.ready[pc] = rest
            self.waiting[pc] = Mask(mask.array & lacking, threads.extent)

    def recall(self) -> None:
        """Move the lanes in `waiting` back to the machine's ready lanes."""
        waiting, self.waiting = self.waiting, {}
        for pc, mask in waiting.items():
            self.threads.go(pc, mask)

    def retry(self) -> None:
        """Called when no lane is ready: waiting lanes can run if their missing members exited."""
        self.recall()
        if self.choose(self.threads.ready, sorted(self.threads.ready)) is None:
            self.hold()
        self.due.clear()

    def groups(self, number: int) -> Iterator[Group]:
        """The groups of lanes of one block that wait for members."""
        threads = self.threads
        for pc, mask in self.waiting.items():
            site = threads.launch.program.blocks[pc].first
            named = np.broadcast_to(self.members(pc), threads.extent.shape)[number]
            for warp in np.flatnonzero(mask.array[number].any(axis=1)).tolist():
                here, live = mask.array[number, warp], threads.live[number, warp]
                for members in np.unique(named[warp, here]).tolist():
                    lanes = here & (named[warp] == members)
                    absent = lanes_of(np.uint32(members)) & live & ~lanes
                    if absent.any():
                        yield Group(site, warp, members, lanes, absent)

    def blocked(self, number: int) -> Iterator[Blocked]:
        """The groups as entries of the deadlock report."""
        alike = defaultdict[tuple[int, str], list[Group]](list)
        for group in self.groups(number):
            verb = "waits" if np.count_nonzero(group.lanes) == 1 else "wait"
            text = f"{numbers(group.lanes)} {verb} for {numbers(group.absent)}"
            alike[group.site, f"{text}, with mask {group.members:#x}"].append(group)
        for (site, text), groups in alike.items():
            lanes = np.zeros(self.threads.extent.shape[1:], bool)
            for group in groups:
                lanes[group.warp] |= group.lanes
            warps = ", ".join(str(group.warp) for group in groups[:MAX_ENTRIES])
            opcode = ".".join(self.threads.launch.program.function.instructions[site].opcode)
            yield Blocked(site, lanes, f"{opcode}, warp {warps}: {text}")
