"""Detects livelocks: warps that spin on memory that no running warp will change.

A warp that spins on a flag keeps executing, so the deadlock report does not find it. The state of a
launch is its registers, memory and clocks. If that state, after every chunk of blocks has had a
turn, equals the state after an earlier round, the launch repeats itself forever. Each round's state
is compared with one saved state, which is replaced after 1, 2, 4, … rounds (R. P. Brent, An
Improved Monte Carlo Factorization Algorithm, 1980, section 2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.execution.launch import Launch
from gemmlab.emulator.execution.machine import Machine
from gemmlab.emulator.memory.spaces import offsets_of
from gemmlab.emulator.observer import Observer, Request
from gemmlab.emulator.synchronization.deadlock import MAX_ENTRIES
from gemmlab.emulator.translation.spins import is_poll
from gemmlab.emulator.translation.translator import CLOCKS
from gemmlab.errors import DeadlockError, Site
from gemmlab.ptx.ir import Special


class Chunk(NamedTuple):
    """A machine and its running generator."""

    machine: Machine
    steps: Iterator[None]


class Standstill:
    """The livelock detector of one launch. Inactive if the kernel reads a clock."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        code = launch.program.function.instructions
        self.has_clock = any(
            isinstance(o, Special) and o.name in CLOCKS for i in code for o in i.operands
        )
        self.rounds, self.kept_for = 0, 1
        self.kept: list[np.ndarray] | None = None

    def check(self, chunks: Sequence[Chunk], unstarted: int) -> None:
        """Call after each round of turns. Raises DeadlockError if the state equals a saved one.

        unstarted: number of blocks that have not started for lack of room.
        """
        machines = [chunk.machine for chunk in chunks]
        if self.has_clock or any(m.ready for m in machines):
            return
        self.rounds += 1
        if self.kept is not None and _agree(self.kept, _state(self.launch, machines)):
            self._report(chunks, self.rounds - self.kept_for // 2, unstarted)
        if self.rounds == self.kept_for:
            self.kept = [x.copy() for x in _state(self.launch, machines)]
            self.kept_for *= 2

    def _report(self, chunks: Sequence[Chunk], rounds: int, unstarted: int) -> NoReturn:
        """Run each chunk for `rounds` more rounds and report the addresses its warps poll."""
        polls = {p.key: p for chunk in chunks for p in _polls(chunk, rounds)}.values()
        lines = [str(p) for p in polls][:MAX_ENTRIES]
        if len(polls) > MAX_ENTRIES:
            lines.append(f"and {len(polls) - MAX_ENTRIES} more")
        if unstarted:
            lines.append(f"{unstarted} blocks have not started, because no GPU has room for them")
        message = f"deadlock: memory no longer changes; {'; '.join(lines)}"
        for p in polls:
            raise DeadlockError(message, p.site, p.block, p.thread, p.address)
        raise DeadlockError(message)


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
            f"{self.value}, PTX line {self.site.ptx_line}"
        )


def _state(launch: Launch, machines: Sequence[Machine]) -> Iterator[np.ndarray]:
    """All state that determines future execution, the largest part last."""
    for m in machines:
        yield np.array([id(m), len(m.bulk.transfers), *(target for target, _ in m.asleep)])
        yield m.live
        yield from (m.active(mask) for _, mask in m.asleep)
        yield from (mask.array for _, mask in sorted(m.warps.waiting.items()))
        yield from map(np.asarray, m.registers)
        yield m.space_shared.data
        yield m.space_local.data
    yield launch.memory.data


def _agree(kept: list[np.ndarray], now: Iterator[np.ndarray]) -> bool:
    others = iter(kept)
    for x in now:
        other = next(others, None)
        if other is None or x.tobytes() != other.tobytes():
            return False
    return next(others, None) is None


def _polls(chunk: Chunk, rounds: int) -> list[Poll]:
    """The addresses that the warps of a chunk poll during the given number of rounds."""
    m, found = chunk.machine, list[Poll]()
    m.space_global.observers.append(Polls(m, found, m.launch.memory.name_of))
    for space in (m.space_shared, m.space_cluster):
        space.observers.append(Polls(m, found, lambda at: f"shared address {at:#x}"))
    for _ in range(rounds):
        next(chunk.steps)
    return found


class Polls(Observer):
    """Adds the polls in one state space to `found`. where: the name of an address."""

    def __init__(self, machine: Machine, found: list[Poll], where: Callable[[int], str]) -> None:
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
            poll = Poll(instruction.site, index, warp, thread, at, self.where(at), held)
            self.found.append(poll)
