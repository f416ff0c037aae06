"""mbarrier objects, which count arrivals and the bytes of asynchronous copies.

A phase completes when no arrival is pending and all expected bytes have arrived; then the next
phase begins (PTX ISA, "mbarrier"). The object is a 64-bit word in shared memory. Hardware does not
document its layout, so the emulator defines one. An arrival returns the word before the arrival.

try_wait suspends its lanes until the phase completes, up to a time limit that hardware chooses. In
the emulator the limit expires, and the wait returns false, when no other lane can run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Mask, Value, spread, three_axes
from gemmlab.emulator.launch.threads import Threads
from gemmlab.emulator.memory.clusters import ClusterSpace
from gemmlab.emulator.memory.names import shared_place
from gemmlab.emulator.program import Access, Block
from gemmlab.emulator.synchronization.deadlock import Blocked
from gemmlab.errors import EmulationError

OBJECT_BYTES = 8
COUNT_BITS, TX_BITS = 20, 22
PHASE_BIT, VALID_BIT = 62, 63  # positions
MAX_COUNT = MAX_TX = (1 << COUNT_BITS) - 1  # arrivals; bytes, of either sign
COUNT_MASK, TX_MASK, TX_ZERO = MAX_COUNT, (1 << TX_BITS) - 1, 1 << (TX_BITS - 1)
# After this many rounds in which waits timed out and no phase completed, none ever will.
MAX_TIMEOUTS = 1000


# Rules of both tiers, on int64. The native tier calls them with values of its IR.


def fields(word: Value) -> tuple[Value, Value, Value, Value]:
    """The fields of an object: pending and expected arrivals, pending bytes, phase."""
    return (
        word & np.int64(COUNT_MASK),
        word >> np.int64(COUNT_BITS) & np.int64(COUNT_MASK),
        (word >> np.int64(2 * COUNT_BITS) & np.int64(TX_MASK)) - np.int64(TX_ZERO),
        phase_of(word),
    )


def word_of(pending: Value, expected: Value, tx: Value, phase: Value, valid: Value) -> Value:
    """The inverse of `fields`."""
    counts = pending | expected << np.int64(COUNT_BITS)
    flags = phase << np.int64(PHASE_BIT) | valid << np.int64(VALID_BIT)
    return counts | tx + np.int64(TX_ZERO) << np.int64(2 * COUNT_BITS) | flags


def is_complete(pending: Value, tx: Value) -> Value:
    """Whether a phase is complete."""
    return (pending == 0) & (tx == 0)


def advance(pending: Value, expected: Value, tx: Value, phase: Value) -> tuple[Value, Value, Value]:
    """Start the next phase if this one is complete. Returns whether it is, and the new pending
    arrivals and phase."""
    done = is_complete(pending, tx)
    return done, np.where(done, expected, pending), np.where(done, phase ^ np.int64(1), phase)


def is_bad_count(count: Value, most: Value) -> Value:
    """Whether an object cannot expect `count` arrivals, of at most `most`."""
    return (count < np.int64(1)) | (count > most)


def is_bad_tx(tx: Value) -> Value:
    """Whether an object cannot hold this many pending bytes."""
    return np.abs(tx) > np.int64(MAX_TX)


def is_over(parity: Value, phase: Value) -> Value:
    """Whether the phase of this parity is complete, given the object's current phase."""
    return (parity & np.int64(1)) != phase


def phase_of(word: Value) -> Value:
    """The parity of the phase to which an arrival belonged that returned `word`."""
    kind = word.dtype.type
    return word >> kind(PHASE_BIT) & kind(1)


@dataclass
class State:
    """The unpacked fields of mbarrier objects: int64 arrays of equal shape."""

    pending: np.ndarray  # arrivals
    expected: np.ndarray  # arrivals in each following phase
    tx: np.ndarray  # expected bytes that have not arrived yet
    phase: np.ndarray  # 0 or 1
    valid: np.ndarray  # 1 between init and inval

    @classmethod
    def of(cls, words: np.ndarray) -> State:
        bits = words.view(np.int64)
        return cls(*fields(bits), bits >> VALID_BIT & 1)

    def words(self) -> np.ndarray:
        bits = word_of(self.pending, self.expected, self.tx, self.phase, self.valid)
        words: np.ndarray = bits.view(np.uint64)
        return words


def pending_of(state: Value) -> Value:
    """mbarrier.pending_count: the pending arrivals before the arrival that returned `state`."""
    return (state & np.uint64(COUNT_MASK)).astype(np.uint32)


@dataclass
class Parked:
    """Lanes that wait until their object's current phase differs from `phase`."""

    block: Block
    lanes: np.ndarray  # (blocks, warps, 32) bool
    cells: np.ndarray  # per lane: flat index of its object among the chunk's shared memory words
    phase: np.ndarray  # per lane: parity


class Mbarriers:
    """The mbarrier objects in the shared memory of a chunk of blocks."""

    def __init__(self, threads: Threads, shared: np.ndarray, space: ClusterSpace) -> None:
        """shared: the shared memory of all blocks, (blocks, bytes). space: finds objects in it."""
        self.threads, self.space = threads, space
        self.all_words = shared.reshape(-1).view(np.uint64)
        self.parked: list[Parked] = []
        self.has_changed = False  # a phase has completed since the last `wake`
        self.timeouts = 0  # rounds in which all waits timed out, since a phase completed

    # Called by generated code, with addresses and operands per lane

    def init(self, access: Access, address: Value, count: Value, mask: Mask | None) -> None:
        cells, (count,) = self._lanes(access, address, mask, count)
        bad = is_bad_count(count, MAX_COUNT)
        if bad.any():
            self._fail(access, mask, bad, f"an mbarrier's count is 1 to {MAX_COUNT}", count)
        zero, one = np.zeros_like(count), np.ones_like(count)
        self.all_words[cells] = State(count, count, zero, zero, one).words()
        self.has_changed = True
        for observer in self.threads.observers:
            observer.mbarrier_initialized(access.instruction, cells, mask)

    def invalidate(self, access: Access, address: Value, mask: Mask | None) -> None:
        cells, _ = self._lanes(access, address, mask)
        self._valid(access, mask, cells)
        self.all_words[cells] = 0

    def arrive(
        self,
        access: Access,
        address: Value,
        count: Value,
        tx: Value,
        mask: Mask | None,
        drops: bool = False,
    ) -> np.ndarray:
        """Expect `tx` more bytes, then arrive `count` times. Returns the states before.

        drops: arrive_drop, which also lowers the expected arrivals of the following phases.
        """
        cells, (count, tx) = self._lanes(access, address, mask, count, tx)
        for observer in self.threads.observers:
            observer.mbarrier_arrived(access.instruction, cells, mask)
        before = np.zeros(cells.shape, np.uint64)
        left = np.arange(len(cells))
        while left.size:
            # Arrivals that fit in the object's current phase are processed together; the others
            # belong to its next phase, in a later iteration.
            objects, object_of = np.unique(cells[left], return_inverse=True)
            state = self._valid(access, mask, objects)
            so_far = _running_sum(count[left], object_of)
            now = so_far <= state.pending[object_of]
            if is_bad_count(count[left], state.pending[object_of]).any():
                message = "more arrivals than the mbarrier's phase has pending"
                self._fail(access, mask, np.ones(len(cells), bool), message, cells * 8)
            chosen, which = left[now], object_of[now]
            seen = State.of(self.all_words[objects][which])
            seen.pending = seen.pending - so_far[now] + count[chosen]
            before[chosen] = seen.words()
            state.pending -= np.bincount(which, count[chosen], len(objects)).astype(np.int64)
            state.tx += np.bincount(which, tx[chosen], len(objects)).astype(np.int64)
            if drops:
                state.expected -= np.bincount(which, count[chosen], len(objects)).astype(np.int64)
            self._store(access, objects, state)
            left = left[~now]
        result = np.zeros(self.threads.extent.shape, np.uint64)
        result[self.threads.active(mask)] = before
        return result

    def expect(self, access: Access, address: Value, tx: Value, mask: Mask | None) -> None:
        """Expect `tx` more bytes. A negative `tx` completes bytes."""
        cells, (tx,) = self._lanes(access, address, mask, tx)
        self.add_tx(access, cells, tx)

    def add_tx(self, access: Access, cells: np.ndarray, tx: np.ndarray) -> None:
        """`expect`, with the objects given as cells."""
        objects, object_of = np.unique(cells, return_inverse=True)
        state = self._valid(access, None, objects)
        state.tx += np.bincount(object_of, tx, len(objects)).astype(np.int64)
        self._store(access, objects, state)

    def wait(self, block: Block, operands: tuple[Any, ...], mask: Mask | None) -> None:
        """test_wait and try_wait. operands: the access, the address, and the parity of the awaited
        phase."""
        access, address, phase = operands
        threads, on = self.threads, self.threads.active(mask)
        cells = np.zeros(on.shape, np.int64)
        cells[on], (parity,) = self._lanes(access, address, mask, phase)
        for observer in threads.observers:
            observer.mbarrier_awaited(access.instruction, cells[on], parity & 1, mask)
        wanted = np.zeros(on.shape, np.int64)
        wanted[on] = parity & 1
        self._valid(access, mask, cells[on])
        self.parked.append(Parked(block, on.copy(), cells, wanted))
        self.has_changed = True
        if mask is None and not self._incomplete(self.parked[-1]).any():
            self._passed(self.parked.pop(), on)
            self._set(block, np.True_, None)
            threads.go(block.targets[-1], None)

    # Called by the machine

    def wake(self) -> None:
        """Release the lanes whose phase is complete."""
        if not self.has_changed:
            return
        self.has_changed = False
        for p in self.parked:
            waiting = self._incomplete(p)
            self._release(p, p.lanes & ~waiting, np.True_)
            p.lanes = waiting
        self.parked = [p for p in self.parked if p.lanes.any()]

    def time_out(self) -> None:
        """Make all waits return false."""
        parked, self.parked = self.parked, []
        for p in parked:
            self._release(p, p.lanes, np.False_)

    def give_up(self) -> None:
        """Make all waits return false, at most MAX_TIMEOUTS times without progress."""
        self.timeouts += 1
        if self.timeouts <= MAX_TIMEOUTS:
            self.time_out()

    def blocked(self, number: int) -> Iterator[Blocked]:
        """The threads of one block that wait for mbarriers, by warp."""
        words = len(self.all_words) // self.threads.num_blocks
        for p in self.parked:
            for warp in np.flatnonzero(p.lanes[number].any(axis=1)).tolist():
                lanes = np.zeros_like(p.lanes[number])
                lanes[warp] = p.lanes[number, warp]
                lane = int(lanes[warp].argmax())
                cell, wanted = (int(x[number, warp, lane]) for x in (p.cells, p.phase))
                s = State.of(self.all_words[cell : cell + 1])
                state = (
                    f"phase {s.phase[0]}, {s.pending[0]} of {s.expected[0]} arrivals pending, "
                    f"{s.tx[0]} bytes expected"
                )
                where = f"mbarrier {self._name(cell % words * OBJECT_BYTES)} ({state})"
                what = f"warp {warp} waits for phase {wanted} of {where}"
                yield Blocked(p.block.last - 1, lanes, what)

    def _incomplete(self, p: Parked) -> np.ndarray:
        phase = State.of(self.all_words[p.cells]).phase
        incomplete: np.ndarray = p.lanes & ~is_over(p.phase, phase)
        return incomplete

    def _release(self, p: Parked, lanes: np.ndarray, answer: np.bool_) -> None:
        if lanes.any():
            if answer:
                self._passed(p, lanes)
            self._set(p.block, answer, lanes)
            self.threads.go(p.block.targets[-1], self.threads.make_mask(lanes))

    def _passed(self, p: Parked, lanes: np.ndarray) -> None:
        for observer in self.threads.observers:
            observer.mbarrier_passed(p.block.last - 1, p.cells, lanes)

    def _set(self, block: Block, answer: np.bool_, lanes: np.ndarray | None) -> None:
        assert block.result is not None
        registers = self.threads.registers
        old = registers[block.result]
        registers[block.result] = answer if lanes is None else np.where(lanes, answer, old)

    # Objects

    def cells(self, access: Access, address: Value, mask: Mask | None) -> np.ndarray:
        """For each active lane, the flat index of its object among the chunk's words."""
        block, index = self.space.locate(access, address, mask)
        row = len(self.all_words) // self.threads.num_blocks
        cells: np.ndarray = (block * row + index).reshape(-1)
        return cells

    def _lanes(
        self, access: Access, address: Value, mask: Mask | None, *operands: Value
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """The object cell and the operands of each active lane, as flat arrays."""
        on, shape = self.threads.active(mask), self.threads.extent.shape
        values = [spread(three_axes(x), shape)[on].astype(np.int64) for x in operands]
        return self.cells(access, address, mask), values

    def _valid(self, access: Access, mask: Mask | None, cells: np.ndarray) -> State:
        state = State.of(self.all_words[cells])
        if not state.valid.all():
            row = len(self.all_words) // self.threads.num_blocks
            address = int(cells[state.valid == 0][0]) % row * 8
            name = self._name(address)
            message = f"no mbarrier was initialized at shared address {address:#x}, {name}"
            self._fail(access, mask, np.ones(1, bool), message, np.array([address]))
        return state

    def _name(self, address: int) -> str:
        return shared_place(self.threads.launch.program, address, OBJECT_BYTES)

    def _store(self, access: Access, objects: np.ndarray, state: State) -> None:
        """Write objects back, starting the next phase of those whose phase is complete."""
        if is_bad_tx(state.tx).any():
            message = f"an mbarrier expects more than {MAX_TX} bytes"
            self._fail(access, None, np.ones(1, bool), message, objects[:1] * 8)
        done, pending, phase = advance(state.pending, state.expected, state.tx, state.phase)
        if done.any():
            state.pending, state.phase = pending, phase
            self.has_changed, self.timeouts = True, 0
            for observer in self.threads.observers:
                observer.mbarrier_completed(objects[done])
        self.all_words[objects] = state.words()

    def _fail(
        self, access: Access, mask: Mask | None, bad: np.ndarray, message: str, address: np.ndarray
    ) -> None:
        """Raise EmulationError for the faulting active lanes, or for the first active lane if `bad`
        has a single element."""
        on = self.threads.active(mask)
        lanes, addresses = np.zeros(on.shape, bool), np.zeros(on.shape, np.int64)
        if len(bad) == np.count_nonzero(on):
            lanes[on], addresses[on] = bad, address
        else:
            first = np.unravel_index(on.argmax(), on.shape)
            lanes[first], addresses[first] = True, address[0]
        self.threads.fault(EmulationError, message, access.instruction, lanes, addresses)


def _running_sum(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """For each element, the inclusive prefix sum over the elements of its group."""
    order = np.argsort(group, kind="stable")
    total = np.cumsum(values[order])
    first = np.concatenate([[True], group[order][1:] != group[order][:-1]])
    before = np.maximum.accumulate(np.where(first, total - values[order], 0))
    result = np.empty_like(total)
    result[order] = total - before
    return result
