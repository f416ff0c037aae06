"""Detects livelocks: warps that spin on memory that no running warp will change.

A warp that spins on a flag keeps executing, so the deadlock report does not find it. The state of a
launch is its memory, its waiting lanes and those registers that decide what happens next; a loop
may count how often it spins. If that state, after every chunk of blocks has had a turn, equals the
state after an earlier round, the launch repeats itself forever. Each round's state is compared with
one saved state, which is replaced after 1, 2, 4, … rounds (R. P. Brent, An Improved Monte Carlo
Factorization Algorithm, 1980, section 2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.execution.decisions import deciding_registers
from gemmlab.emulator.execution.machine import Machine
from gemmlab.emulator.launch.launch import Launch
from gemmlab.emulator.memory.chunk import offsets_of
from gemmlab.emulator.observer import Observer, Request
from gemmlab.emulator.synchronization.deadlock import MAX_ENTRIES, place
from gemmlab.emulator.translation.spins import is_poll
from gemmlab.errors import LivelockError, Site


class Chunk(NamedTuple):
    """A machine and its running generator."""

    machine: Machine
    steps: Iterator[None]


class Part(NamedTuple):
    """One array of the state. register: its name; "" for anything else."""

    array: np.ndarray
    register: str = ""


class LivelockDetector:
    """The livelock detector of one launch."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.rounds, self.kept_for = 0, 1
        self.kept: list[Part] | None = None
        self.executed = np.zeros(0)  # executions of each basic block when `kept` was saved
        self.deciding: dict[bytes, frozenset[str] | None] = {}  # by the basic blocks executed since

    def check(self, chunks: Sequence[Chunk], unstarted: int) -> None:
        """Call after each round of turns. Raises LivelockError if the state equals a saved one.

        unstarted: number of blocks that have not started for lack of room.
        """
        machines = [chunk.machine for chunk in chunks]
        if any(m.ready for m in machines):
            return
        self.rounds += 1
        executed = machines[0].tally.warps
        if self.kept is not None:
            registers = self._deciding(executed > self.executed)
            if registers is not None and _agree(
                self.kept, _state(self.launch, machines), registers
            ):
                self._report(chunks, self.rounds - self.kept_for // 2, unstarted)
        if self.rounds == self.kept_for:
            state = _state(self.launch, machines)
            self.kept = [part._replace(array=part.array.copy()) for part in state]
            self.executed = executed.copy()
            self.kept_for *= 2

    def _deciding(self, some: np.ndarray) -> frozenset[str] | None:
        """`deciding_registers` of some basic blocks."""
        key = some.tobytes()
        if key not in self.deciding:
            program = self.launch.program
            blocks = [b for b, here in zip(program.blocks, some.tolist(), strict=True) if here]
            code = program.function.instructions
            executed = [i for b in blocks for i in code[b.first : b.last]]
            self.deciding[key] = deciding_registers(executed)
        return self.deciding[key]

    def _report(self, chunks: Sequence[Chunk], rounds: int, unstarted: int) -> NoReturn:
        """Run each chunk for `rounds` more rounds and report the addresses its warps poll, or the
        warps that only sleep."""
        sleepers = [s for chunk in chunks for s in _sleepers(chunk.machine)]
        polls = {p.key: p for chunk in chunks for p in _polls(chunk, rounds)}.values()
        found: list[Poll | Sleeper] = [*polls] or [*sleepers]
        lines = [str(x) for x in found[:MAX_ENTRIES]]
        if len(found) > MAX_ENTRIES:
            lines.append(f"and {len(found) - MAX_ENTRIES} more")
        if unstarted:
            lines.append(f"{unstarted} blocks have not started, because no GPU has room for them")
        message = f"livelock: no warp makes progress any more; {'; '.join(lines)}"
        first = found[0]
        raise LivelockError(message, first.site, first.block, first.thread, first.address)


class Sleeper(NamedTuple):
    """Lanes of a warp that repeat a loop without access to memory."""

    site: Site
    block: tuple[int, int, int]
    warp: int
    thread: int  # the first one
    address: None = None

    def __str__(self) -> str:
        return f"warp {self.warp} of block {self.block} repeats a loop, {place(self.site)}"


class Poll(NamedTuple):
    """Lanes of a warp that poll the same address."""

    site: Site
    block: tuple[int, int, int]
    warp: int
    thread: int  # the first one
    address: int
    place: str
    value: int | float

    @property
    def key(self) -> tuple[object, ...]:
        return self.site, self.block, self.warp, self.address

    def __str__(self) -> str:
        return (
            f"warp {self.warp} of block {self.block} spins on {self.place}, which holds "
            f"{self.value}, {place(self.site)}"
        )


def _state(launch: Launch, machines: Sequence[Machine]) -> Iterator[Part]:
    """All state that determines future execution, the largest part last."""
    for m in machines:
        yield Part(np.array([id(m), len(m.bulk.transfers), *(target for target, _ in m.asleep)]))
        yield Part(m.live)
        for array in (
            *(m.active(mask) for _, mask in m.asleep),
            *(mask.array for _, mask in sorted(m.warps.waiting.items())),
            *(w.lanes for w in m.barriers.waiting),
            *(p.lanes for p in m.mbarriers.parked),
        ):
            yield Part(array)
        waits = [w.block for w in m.barriers.waiting] + [p.block for p in m.mbarriers.parked]
        yield Part(np.array([block.last for block in waits]))
        for name, value in zip(launch.program.initial, m.registers, strict=True):
            yield Part(np.asarray(value), name)
        yield Part(m.space_shared.data)
        yield Part(m.space_local.data)
    yield Part(launch.memory.data)


def _agree(kept: list[Part], now: Iterator[Part], registers: frozenset[str]) -> bool:
    """Whether two states are equal, except for registers that decide nothing."""
    others = iter(kept)
    for part in now:
        other = next(others, None)
        if other is None or part.register != other.register:
            return False
        if part.register and part.register not in registers:
            continue
        if part.array.tobytes() != other.array.tobytes():
            return False
    return next(others, None) is None


def _sleepers(m: Machine) -> Iterator[Sleeper]:
    program = m.launch.program
    for target, mask in m.asleep:
        lanes = m.active(mask)
        site = program.function.instructions[program.blocks[target].first].site
        for block, warp in np.argwhere(lanes.any(axis=2)).tolist():
            thread = warp * WARP + int(lanes[block, warp].argmax())
            yield Sleeper(site, m.block_index(block), warp, thread)


def _polls(chunk: Chunk, rounds: int) -> list[Poll]:
    """The addresses that the warps of a chunk poll during the given number of rounds."""
    m, found = chunk.machine, list[Poll]()
    m.space_global.observers.append(Polls(m, found, m.launch.memory.name_of))
    for space in (m.space_shared, m.space_cluster):
        space.observers.append(Polls(m, found, m.chunk.name_of_shared))
    for _ in range(rounds):
        next(chunk.steps)
    return found


class Polls(Observer):
    """Adds the polls in one state space to `found`. where: the name of an address, given
    the bytes of an element."""

    def __init__(
        self, machine: Machine, found: list[Poll], where: Callable[[int, int], str]
    ) -> None:
        self.machine, self.found, self.where = machine, found, where

    def accessed(self, request: Request, result: Any) -> None:
        m, access = self.machine, request.access
        instruction = m.launch.program.function.instructions[access.instruction]
        if not is_poll(instruction):
            return
        on = m.active(request.mask)
        addresses = offsets_of(access, request.address)
        places, values = np.broadcast_arrays(addresses, result[0], on)[:2]
        for block, warp in np.argwhere(on.any(axis=2)).tolist():
            lane = int(on[block, warp].argmax())
            at, held = int(places[block, warp, lane]), values[block, warp, lane].item()
            index, thread = m.block_index(block), warp * WARP + lane
            poll = Poll(
                instruction.site,
                index,
                warp,
                thread,
                at,
                self.where(at, access.dtype.itemsize),
                held,
            )
            self.found.append(poll)
