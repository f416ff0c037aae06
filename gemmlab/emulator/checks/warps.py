"""Checks the participation of lanes in warp collectives, and of warps in warpgroup instructions.

A lane that executes a collective must be in its own membermask, all participating lanes must have
the same mask, and every lane in the mask must execute the collective unless it has exited (PTX ISA,
"shfl.sync", "vote.sync", "bar.warp.sync"). A lane that diverged, did other work and then exited
does not count as exited: a mask that includes it is wrong. `.aligned` instructions require a full
warp; wgmma and setmaxnreg require all warps of a warpgroup. setmaxnreg moves registers among the
warps of a block, and waits until there are enough (PTX ISA, "setmaxnreg"): forever, if warps take
more than the block has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP, Mask, three_axes
from gemmlab.emulator.checks import advice
from gemmlab.emulator.checks.state import State
from gemmlab.emulator.observer import Observer
from gemmlab.emulator.program import Block
from gemmlab.emulator.synchronization.collectives import (
    LANE,
    SHUFFLES,
    bits_of,
    lanes_of,
    match_any,
    source_lanes,
)
from gemmlab.emulator.synchronization.warps import numbers
from gemmlab.emulator.tensor_cores.wgmma import GROUP_WARPS
from gemmlab.emulator.translation.translate import is_block_barrier
from gemmlab.ptx.ir import Imm, Instruction
from gemmlab.ptx.opcodes import ENDS, FULL_WARP

KIND = "warp participation"
REPAIR = "move it out of the branch, or pass the mask of the lanes inside"
ALL = np.uint32(0xFFFFFFFF)
SET = "setmaxnreg"
# Of a multiprocessor; a warp gets multiples of eight per thread.
REGISTERS, REGISTER_UNIT, MOST_REGISTERS = 65536, 8, 256
OF_GROUP = {"wgmma.mma_async", "setmaxnreg.inc", "setmaxnreg.dec"}
ONWARD = ENDS - {"brx", "trap"}  # instructions that do not count as other work before an exit


def is_aligned(i: Instruction) -> bool:
    """Whether the live lanes of a warp must execute an instruction together. Block barriers that
    wait have a separate check."""
    if is_block_barrier(i):
        return "arrive" in i.modifiers and (i.root == "bar" or "aligned" in i.modifiers)
    return "aligned" in i.modifiers


class Unknown(NamedTuple):
    """Lanes of a shuffle that read an inactive lane; arrays of (blocks, warps, 32)."""

    lanes: np.ndarray  # bool
    source: np.ndarray  # source lane
    named: np.ndarray  # membermask as bits


class Participation(Observer):
    """The participation check of one chunk."""

    def __init__(self, state: State) -> None:
        self.state, self.machine = state, state.machine
        self.code = state.code
        self.blocks = blocks = self.machine.launch.program.blocks
        self.shape = self.machine.extent.shape
        self.exist = self.machine.live.copy()
        spans = [range(b.first, b.last) for b in blocks]
        self.aligned = [[k for k in span if is_aligned(self.code[k])] for span in spans]
        self.works = [any(self.code[k].root not in ONWARD for k in span) for span in spans]
        meets = any(is_block_barrier(i) for i in self.code)
        self.has_company = meets or any(b.members is not None for b in blocks)
        # For each lane, the lanes with which it last executed anything, as bits.
        self.company = self.everyone = bits_of(self.exist)
        # Warpgroup instruction -> number of executions by each warp.
        self.executed: dict[int, np.ndarray] = {}
        self.here = self.exist  # live lanes, except those that are about to exit
        # Membermasks of the collective at the start of the current basic block, as bits; None if
        # they are full for all lanes.
        self.named: np.ndarray | None = None
        self.unknown: dict[int, Unknown] = {}  # shuffle -> its latest reads of inactive lanes
        # Lanes to which the shuffle of the current basic block returns undefined values.
        self.unread: np.ndarray | None = None
        self.used: set[int] = set()  # shuffles whose undefined results have been reported

    def before(self, number: int, block: Block, mask: Mask | None) -> None:
        on = self.machine.active(mask)
        self.named = self.unread = None
        if block.members is not None:
            members = self.machine.warps.members(number)
            if mask is not None or (members != ALL).any():
                self.named = np.broadcast_to(members, self.shape)
        if self.named is not None and self.code[block.first].guard is None:
            self._collective(block.first, on, self.named)
        if self.has_company and self.works[number]:
            together = self.everyone if mask is None else bits_of(on)
            self.company = together if mask is None else np.where(on, together, self.company)
        for index in self.aligned[number]:
            if self.code[index].guard is None:
                self._aligned(index, on)

    def after(self, number: int, block: Block, mask: Mask | None) -> None:
        """Check guarded instructions, because the values of guards are known now."""
        on = self.machine.active(mask)
        if self.named is not None and self.code[block.first].guard is not None:
            self._collective(block.first, self._enabled(block.first, on), self.named)
        if block.members is not None and self.code[block.first].name == "shfl":
            self._shuffle(block.first, self._enabled(block.first, on))
        for index in self.aligned[number]:
            if self.code[index].guard is not None:
                self._aligned(index, self._enabled(index, on))

    def _enabled(self, index: int, on: np.ndarray) -> np.ndarray:
        """The lanes that pass an instruction's guard."""
        if self.code[index].guard is None:
            return on
        enabled: np.ndarray = on & three_axes(self.machine.recorded[index][0])
        return enabled

    def _collective(self, index: int, on: np.ndarray, named: np.ndarray) -> None:
        """Check the masks of a collective. named: membermask of each lane, as bits."""
        machine, bit = self.machine, np.uint32(1) << LANE.astype(np.uint32)
        bad = on & (named & bit == 0)
        if bad.any():
            self._report(index, bad, lambda b, w: _excluded(named, bad, b, w))
        if machine.warps.rendezvous is None and (named != named[..., :1]).any():
            unlike = named & bits_of(on) & ~match_any(on, named, named)
            bad = on & (unlike != 0)
            if bad.any():
                self._report(index, bad, lambda b, w: _unlike(named, unlike, bad, b, w))
        left = self.left(on, named)
        if left is not None:
            bad = np.asarray(left.any(axis=3))
            self._report(index, bad, lambda b, w: _left(named, left, bad, b, w))

    def left(self, on: np.ndarray, named: np.ndarray) -> np.ndarray | None:
        """For each active lane (axis 2), the members (axis 3) that diverged from it, did other work
        and exited; None if there are none."""
        gone = named & bits_of(self.exist & ~self.machine.live)
        if not ((gone != 0) & on).any():
            return None
        left: np.ndarray = lanes_of(gone[..., None]) & ~lanes_of(self.company[..., None]).swapaxes(
            2, 3
        )
        left &= on[..., None]
        return left if left.any() else None

    def _shuffle(self, index: int, on: np.ndarray) -> None:
        """Mark results of a shuffle that come from inactive lanes as undefined."""
        _, distance, segment = self.machine.recorded[index]
        mode = next(m for m in self.code[index].modifiers if m in SHUFFLES)
        operands = (three_axes(x).astype(np.int64) for x in (distance, segment))
        source, inside = source_lanes(mode, LANE, *operands)
        # The width of a segment minus 1; valid if its set bits are exactly the lowest ones.
        size = ~(three_axes(segment) >> np.uint32(8)) & np.uint32(31)
        is_uneven = size & (size + np.uint32(1)) != 0
        if is_uneven.any() and (uneven := on & is_uneven).any():
            text = "the width of its segments is not 1, 2, 4, 8, 16 or 32"
            self._report(index, uneven, lambda b, w: text)
        if self.named is None:
            return
        rendezvous = self.machine.warps.rendezvous
        source = np.broadcast_to(np.where(inside, source, LANE), self.shape)
        giving = bits_of(on if rendezvous is None else rendezvous.lanes) & self.named
        unknown = on & (giving >> source.astype(np.uint32) & 1 == 0) & (source != LANE)
        if unknown.any():
            self.unread = unknown
            self.unknown[index] = Unknown(unknown, source, self.named)

    def use(self, index: int, other: int, what: str) -> None:
        """Report that an undefined result of a shuffle matters to the instruction `other`. what:
        the effect, for the message."""
        if index in self.used:
            return
        self.used.add(index)
        lanes, source, named = self.unknown[index]

        def text(block: int, warp: int) -> str:
            some = lanes[block, warp]
            read = np.zeros(WARP, bool)
            read[source[block, warp][some]] = True
            mask = named[block, warp, int(some.argmax())]
            outside = read & ~lanes_of(mask)
            repair = "let all lanes of the mask execute the shuffle, or read active lanes only"
            if outside.any():
                why = f"{numbers(outside)}, which mask {hex(int(mask))} does not include"
                repair = "include them in the mask"
            else:
                verb = "does" if np.count_nonzero(read) == 1 else "do"
                why = f"{numbers(read)}, which {verb} not participate"
            where = advice.line(self.code[other].site)
            return f"the value comes from {why}; it {what} at {where}: {repair}"

        self._report(index, lanes, text, other)

    def deadlocked(self, number: int) -> None:
        """Report a wrong mask if lanes wait for members that wait elsewhere."""
        elsewhere = np.zeros(self.shape[1:], bool)
        for mask in self.machine.warps.waiting.values():
            elsewhere |= mask.array[number]
        for waiting in self.machine.barriers.waiting:
            elsewhere |= waiting.lanes[number]
        for group in self.machine.warps.groups(number):
            if not (group.absent & ~elsewhere[group.warp]).any():
                bad = np.zeros(self.shape, bool)
                bad[number, group.warp] = group.lanes
                others = numbers(group.absent)
                text = f"mask {group.members:#x} includes {others}, which wait elsewhere: {REPAIR}"
                self._report(group.site, bad, lambda b, w, text=text: text)  # type: ignore[misc]
        self.end()

    def _aligned(self, index: int, on: np.ndarray) -> None:
        """Check an instruction that all lanes of a warp must execute together."""
        i = self.code[index]
        warps = np.asarray(on.any(axis=2, keepdims=True))
        if i.name in OF_GROUP:
            none = np.zeros(self.shape[:2], np.int64)
            self.executed[index] = self.executed.get(index, none) + warps[..., 0]
        if not (warps & ~on).any():
            return
        self.here = self.machine.live.copy()
        for number, mask in self.machine.ready.items():
            if self.blocks[number].terminator == "exit" and not self.works[number]:
                self.here &= ~self.machine.active(mask)
        wanted = np.ones_like(on) if i.root in FULL_WARP else self.here
        missing: np.ndarray = warps & wanted & ~on
        if missing.any():
            bad = on & missing.any(axis=2, keepdims=True)
            self._report(index, bad, lambda b, w: self._missing(missing[b, w], b, w))

    def _missing(self, lanes: np.ndarray, block: int, warp: int) -> str:
        live, exist = self.here[block, warp], self.exist[block, warp]
        groups = (
            (lanes & live, "elsewhere"),
            (lanes & exist & ~live, "exited"),
            (lanes & ~exist, "not in the block"),
        )
        words = [f"{numbers(some)} of the warp: {what}" for some, what in groups if some.any()]
        return f"it requires a full warp ({', '.join(words)}): move it out of the branch"

    def exited(self, lanes: np.ndarray) -> None:
        if not self.machine.live.any():
            self.end()

    def _registers(self) -> None:
        """Check that the warps of a block take no more registers than they start with.

        ptxas honours setmaxnreg only if it knows how many these are: from the threads per block.
        A warp that executes several setmaxnreg counts with its smallest number.
        """
        function = self.machine.launch.program.function
        shape = function.maxntid or function.reqntid
        sites = {i: times > 0 for i, times in self.executed.items() if self.code[i].root == SET}
        if shape is None or not sites:
            return
        granule = function.minnctapersm * math.prod(shape) * REGISTER_UNIT
        start = min(REGISTERS // granule * REGISTER_UNIT, function.maxnreg or MOST_REGISTERS)
        counts = np.full(self.shape[:2], np.inf)
        for index, warps in sites.items():
            counts = np.where(warps, np.minimum(counts, self._count(index)), counts)
        counts[np.isinf(counts)] = start
        taken, owned = counts.sum(axis=1) * WARP, start * WARP * self.shape[1]
        if not (taken > owned).any():
            return
        block = int(np.flatnonzero(taken > owned)[0])
        index = max((i for i, warps in sites.items() if warps[block].any()), key=self._count)
        text = (
            f"the block's threads take {taken[block]:.0f} registers, of {owned} that they start "
            "with, and wait for the others forever: take fewer, or release more"
        )
        bad = np.zeros(self.shape, bool)
        bad[block] = sites[index][block, :, None]
        self._report(index, bad, lambda b, w: text)

    def _count(self, index: int) -> float:
        """The registers per thread for which a setmaxnreg asks."""
        count = self.code[index].operands[0]
        assert isinstance(count, Imm)
        return float(count.value)

    def end(self) -> None:
        """At the end, check that all warps of each warpgroup have executed its instructions equally
        often, and that their registers suffice."""
        self._registers()
        blocks, warps = self.shape[:2]
        for index, times in self.executed.items():
            padded = np.zeros((blocks, -(-warps // GROUP_WARPS) * GROUP_WARPS), np.int64)
            padded[:, :warps] = times
            groups = padded.reshape(blocks, -1, GROUP_WARPS)
            most = np.repeat(groups.max(axis=2), GROUP_WARPS, axis=1)
            fewer = padded < most
            if not fewer.any():
                continue
            block = int(np.flatnonzero(fewer.any(axis=1))[0])
            group = int(np.flatnonzero(fewer[block])[0]) // GROUP_WARPS
            first = group * GROUP_WARPS
            counts = ", ".join(str(n) for n in groups[block, group].tolist())
            last = first + GROUP_WARPS - 1
            text = (
                f"it requires a full warpgroup; warps {first} to {last} ran it {counts} times: let "
                "all four warps execute it"
            )
            bad = np.zeros(self.shape, bool)
            bad[block, first + int(groups[block, group].argmax())] = True
            self._report(index, bad, lambda b, w, text=text: text)  # type: ignore[misc]

    def _report(
        self,
        index: int,
        bad: np.ndarray,
        text: Callable[[int, int], str],
        other: int | None = None,
    ) -> None:
        """Add a finding for the first warp in `bad`. text: the message for block and warp."""
        findings = self.state.findings
        if findings.wants(KIND, index, other):
            block, warp = (int(x) for x in np.argwhere(bad.any(axis=2))[0])
            lanes = bad[block, warp]
            name = advice.function(self.code[index])
            message = f"{numbers(lanes)} at {name}: {text(block, warp)}"
            threads = (warp * WARP + np.flatnonzero(lanes)).tolist()
            at = self.machine.block_index(block)
            findings.add(KIND, message, index, other, at, threads)


def _mask(named: np.ndarray, lanes: np.ndarray, block: int, warp: int) -> str:
    """The membermask of the first of the given lanes."""
    return hex(int(named[block, warp, int(lanes[block, warp].argmax())]))


def _excluded(named: np.ndarray, bad: np.ndarray, block: int, warp: int) -> str:
    mask = _mask(named, bad, block, warp)
    return f"mask {mask} excludes them: pass a mask of all lanes that execute it"


def _unlike(named: np.ndarray, unlike: np.ndarray, bad: np.ndarray, block: int, warp: int) -> str:
    lane = int(bad[block, warp].argmax())
    others = lanes_of(unlike[block, warp, lane])
    theirs = hex(int(named[block, warp, int(others.argmax())]))
    mask = _mask(named, bad, block, warp)
    return f"mask {mask} includes {numbers(others)}, where the mask is {theirs}: pass one mask"


def _left(named: np.ndarray, left: np.ndarray, bad: np.ndarray, block: int, warp: int) -> str:
    lane = int(bad[block, warp].argmax())
    others = numbers(left[block, warp, lane])
    mask = _mask(named, bad, block, warp)
    return f"mask {mask} includes {others}, which took another path and exited: {REPAIR}"
