"""Lanes that wait for others of their warp: those that a collective names (shfl.sync, vote.sync,
match.sync, redux.sync, elect.sync, bar.warp.sync).

A collective runs when all lanes that its membermask names, and that have not exited, have come to
it, or to another one with the same words and the same mask: PTX asks for no more, and CUDA allows
both sides of an `if` to have their own. Lanes of which some never come wait for ever.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Mask, Value, three_axes
from gemmlab.emulator.synchronization.collectives import bits_of, lanes_of, match_any
from gemmlab.emulator.synchronization.deadlock import MOST, Stuck

if TYPE_CHECKING:
    from gemmlab.emulator.execution.machine import Machine

GIVING = {"shfl", "vote", "match", "redux"}  # collectives to which each lane gives a value
Ready = dict[int, Mask | None]  # lanes, by the basic block that they come to next
Place = tuple[int, Mask | None]


def numbers(lanes: np.ndarray) -> str:
    """(32,) bool in words: "lane 3", "lanes 0 to 15, 20"."""
    runs: list[list[int]] = []
    for lane in np.flatnonzero(lanes).tolist():
        if runs and runs[-1][-1] == lane - 1:
            runs[-1].append(lane)
        else:
            runs.append([lane])
    texts = [f"{r[0]} to {r[-1]}" if len(r) > 2 else ", ".join(map(str, r)) for r in runs]
    return f"{'lane' if len(runs) == 1 and len(runs[0]) == 1 else 'lanes'} {', '.join(texts)}"


class Given(Exception):
    """What lanes give to a collective."""

    def __init__(self, value: Value) -> None:
        self.value = value


class Meeting(NamedTuple):
    """Lanes that execute one collective together, each at its own instruction."""

    lanes: np.ndarray
    named: np.ndarray  # by each of them, as bits
    first: int  # the first of their basic blocks
    values: np.ndarray | None = None  # that they give; None until that is known

    def given(self, value: Value) -> Value:
        """The values of all of them, where `value` has those of lanes at one instruction."""
        if self.values is None:
            raise Given(value)
        return np.where(self.lanes, self.values, three_axes(value))


class Group(NamedTuple):
    """Lanes of a warp that wait at a collective, with one mask."""

    site: int  # the instruction
    warp: int
    members: int  # the mask
    lanes: np.ndarray  # (32,)
    absent: np.ndarray  # for whom they wait


class WarpWaits:
    """Those of one machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.standing: dict[int, Mask] = {}  # lanes that cannot go on, by their basic block
        self.meeting: Meeting | None = None
        self.due: deque[tuple[int, Mask, Meeting]] = deque()

    def members(self, pc: int) -> np.ndarray:
        """The lanes that the collective at the start of a basic block names, as bits."""
        members = self.machine.launch.program.blocks[pc].members
        assert members is not None
        return three_axes(members(self.machine.registers))

    def lacking(self, pc: int, mask: Mask | None) -> np.ndarray | None:
        """Warps of `mask`, (blocks, warps, 1), some of whose members are not there; None for no
        warp."""
        machine = self.machine
        if machine.launch.program.blocks[pc].members is None or mask is None:
            return None
        missing = self.members(pc) & bits_of(machine.live) & ~bits_of(mask.array)
        lacking = ((missing != 0) & mask.array).any(axis=2, keepdims=True)
        return lacking if lacking.any() else None

    def choose(self, parts: Ready, order: list[int]) -> Place | None:
        """The first basic block with lanes that can go on, and those; if they can only together
        with lanes at other blocks, the others follow. None where all wait."""
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
        return self.follow() if self.due else None

    def _part(self, mask: Mask | None, warps: np.ndarray) -> Mask | None:
        """Those warps of a mask; None where there are none."""
        part = Mask(self.machine.active(mask) & warps, self.machine.extent)
        return part if part.lanes else None

    def meet(self, parts: dict[int, Mask]) -> None:
        """Find lanes that can go on because others of their warp execute the same elsewhere."""
        machine, alike = self.machine, defaultdict[tuple[str, ...], list[int]](list)
        blocks = machine.launch.program.blocks
        code = machine.launch.program.function.instructions
        for pc in parts:
            alike[code[blocks[pc].first].opcode].append(pc)
        for opcode, pcs in alike.items():
            lanes, named = np.zeros((2, *machine.extent.shape), np.uint32)
            for pc in pcs:
                lanes |= parts[pc].array
                named = np.where(parts[pc].array, self.members(pc), named)
            on = lanes.astype(bool)
            together = match_any(on, named, named)
            on &= (named & bits_of(machine.live) & ~together) == 0
            groups = {pc: Mask(on & parts[pc].array, machine.extent) for pc in pcs}
            groups = {pc: group for pc, group in groups.items() if group.lanes}
            if groups:
                meeting = Meeting(on, named, min(groups))
                if opcode[0] in GIVING:
                    meeting = meeting._replace(values=self._values(groups, meeting))
                self.due.extend((pc, groups[pc], meeting) for pc in sorted(groups))

    def _values(self, groups: dict[int, Mask], meeting: Meeting) -> np.ndarray:
        """What all lanes of a meeting give: the first thing that their basic blocks do."""
        machine, values = self.machine, None
        for pc, group in groups.items():
            self.meeting = meeting
            try:
                machine.launch.program.blocks[pc].run(machine, machine.registers, group)
            except Given as given:
                value = np.broadcast_to(three_axes(given.value), meeting.lanes.shape)
                values = value if values is None else np.where(group.array, value, values)
            self.meeting = None
        assert values is not None
        return values

    def follow(self) -> Place:
        """The next part of a meeting."""
        pc, mask, self.meeting = self.due.popleft()
        return pc, mask

    def hold(self) -> None:
        """Put aside the lanes that are ready, but for their members."""
        machine = self.machine
        for pc, mask in [*machine.ready.items()]:
            lacking = self.lacking(pc, mask)
            if lacking is None:
                continue
            assert mask is not None
            del machine.ready[pc]
            rest = self._part(mask, ~lacking)
            if rest is not None:
                machine.ready[pc] = rest
            self.standing[pc] = Mask(mask.array & lacking, machine.extent)

    def recall(self) -> None:
        """The lanes that were put aside are ready again."""
        standing, self.standing = self.standing, {}
        for pc, mask in standing.items():
            self.machine.go(pc, mask)

    def retry(self) -> None:
        """No other lane is ready: see whether those that were put aside can go on now, because
        others have exited."""
        self.recall()
        if self.choose(self.machine.ready, sorted(self.machine.ready)) is None:
            self.hold()
        self.due.clear()

    def groups(self, number: int) -> Iterator[Group]:
        """Who waits in one thread block, and for whom."""
        machine = self.machine
        for pc, mask in self.standing.items():
            site = machine.launch.program.blocks[pc].first
            named = np.broadcast_to(self.members(pc), machine.extent.shape)[number]
            for warp in np.flatnonzero(mask.array[number].any(axis=1)).tolist():
                here, live = mask.array[number, warp], machine.live[number, warp]
                for members in np.unique(named[warp, here]).tolist():
                    lanes = here & (named[warp] == members)
                    absent = lanes_of(np.uint32(members)) & live & ~lanes
                    if absent.any():
                        yield Group(site, warp, members, lanes, absent)

    def stuck(self, number: int) -> Iterator[Stuck]:
        """The same, in words."""
        alike = defaultdict[tuple[int, str], list[Group]](list)
        for group in self.groups(number):
            verb = "waits" if np.count_nonzero(group.lanes) == 1 else "wait"
            text = f"{numbers(group.lanes)} {verb} for {numbers(group.absent)}"
            alike[group.site, f"{text}, with mask {group.members:#x}"].append(group)
        for (site, text), groups in alike.items():
            lanes = np.zeros(self.machine.extent.shape[1:], bool)
            for group in groups:
                lanes[group.warp] |= group.lanes
            warps = ", ".join(str(group.warp) for group in groups[:MOST])
            opcode = ".".join(self.machine.launch.program.function.instructions[site].opcode)
            yield Stuck(site, lanes, f"{opcode}, warp {warps}: {text}")
