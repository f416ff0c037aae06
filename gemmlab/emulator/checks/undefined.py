"""Tracks undefined values through registers and memory, and reports where they matter.

Reading and copying uninitialized memory or registers is not an error by itself: compilers load
ahead of a condition, and a kernel may read more than it uses. An undefined value matters if it
decides a branch or a guard, is an address, is stored to global memory, or is an operand of an
instruction whose effects leave the thread. (Valgrind's memcheck does the same: Seward and
Nethercote, Using Valgrind to detect undefined value errors with bit-precision, 2005.) Instructions
that move, mask or extract bits are tracked bit by bit, because padding between the members of a
struct is often copied. For other arithmetic, an undefined operand bit makes the result undefined.

Each register and granule has an origin: the index plus one of the load that read uninitialized
memory, or of the shuffle that read an inactive lane; 0 if it is defined. While all values are
defined nothing is tracked, so most basic blocks cost one test.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP, Mask, three_axes
from gemmlab.emulator.checks import advice, bits
from gemmlab.emulator.checks.bits import ALL, DEFINED, NONE, Taint, Values, either, mask_of, whole
from gemmlab.emulator.checks.state import State
from gemmlab.emulator.checks.warps import Participation
from gemmlab.emulator.observer import Observer
from gemmlab.emulator.program import Block
from gemmlab.emulator.synchronization import collectives
from gemmlab.emulator.translation.liveness import live_after, live_at_starts, results, sources
from gemmlab.ptx.ir import WIDTHS, Instruction, Memory, Operand, Reg, Vector, registers
from gemmlab.ptx.opcodes import ENDS, EXCHANGES, SCALAR_LOADS, is_arithmetic

KIND = "uninitialized read"
NEVER_SET = np.iinfo(np.int32).max  # the origin of registers that were never set
BRANCHES = ENDS - {"trap"}


class Moved(NamedTuple):
    """A memory access in the current basic block."""

    space: str
    name: str  # "load" or "store"
    mask: Mask | None
    cells: np.ndarray  # (active lanes, granules per access)
    origins: np.ndarray | None  # origins of loaded granules, in the shape of `cells`


class Undefined(Observer):
    """The undefined values of the threads of one chunk."""

    def __init__(self, state: State, participation: Participation) -> None:
        self.state, self.machine, self.participation = state, state.machine, participation
        program = self.machine.launch.program
        self.program, self.code, self.blocks = program, state.code, program.blocks
        self.live = live_at_starts(self.code, self.blocks)
        self.shape = self.machine.extent.shape
        never = whole(np.broadcast_to(np.int32(NEVER_SET), self.shape))
        self.registers = dict.fromkeys(self.live[0], never)
        self.memory: dict[str, np.ndarray] = {}  # space -> origins of granules
        self.moved: dict[int, list[Moved]] = {}
        self.has_found = False
        self.places: dict[int, str] = {}  # origin -> location in memory

    # While a basic block runs

    def load(
        self,
        site: int,
        space: str,
        mask: Mask | None,
        cells: np.ndarray,
        unwritten: np.ndarray | None,
    ) -> None:
        """Record a load. unwritten: for each cell, whether it was never written; None if all cells
        were."""
        origins = None
        if space in self.memory:
            origins = self.memory[space].take(cells)
        if unwritten is not None:
            found = np.where(unwritten, np.int32(site + 1), np.int32(0))
            origins = found if origins is None else np.maximum(origins, found)
            self.has_found = True
        self.moved.setdefault(site, []).append(Moved(space, "load", mask, cells, origins))

    def store(self, site: int, space: str, mask: Mask | None, cells: np.ndarray) -> None:
        if space in self.memory:
            self.memory[space][cells] = 0
        self.moved.setdefault(site, []).append(Moved(space, "store", mask, cells, None))

    # After it has run

    def after(self, number: int, block: Block, mask: Mask | None) -> None:
        """Propagate undefined values through the basic block that has just run."""
        from_shuffle = self.participation.unread
        if self.has_found or from_shuffle is not None or self.registers or self.memory:
            on = self.machine.active(mask)
            for k in range(block.first, block.last):
                i = self.program.joined.get(k, self.code[k])
                if i is not None:
                    self._execute(k, i, on)
            live = live_after(self.live, block)
            for name in [name for name in self.registers if name not in live]:
                self._set(name, None, on)  # the register may be live in other warps
        self.moved.clear()
        self.has_found = False

    def _execute(self, k: int, i: Instruction, on: np.ndarray) -> None:
        recorded = self.machine.recorded.get(k, (None,))
        is_pure = is_arithmetic(i.root)
        decided = None
        if i.guard is not None:
            decided = self._of([i.guard.reg.name])
            if decided is not None and not is_pure:
                what = "decides a branch" if i.root in BRANCHES else "decides whether this executes"
                self._report(k, decided, on, what, [i.guard.reg.name])
                decided = None
            guard = np.False_ if recorded[0] is None else recorded[0]  # None: not executed
            on = on & np.broadcast_to(three_axes(guard), self.shape)
        if i.root in SCALAR_LOADS:
            self._load(k, i, on)
        elif i.root == "st" and "async" not in i.modifiers:
            self._store(k, i, on)
        elif is_pure:
            self._compute(i, recorded[1:], decided, on)
        elif i.name == "shfl":
            self._shuffle(k, i, recorded[1:], on)
        elif i.root in EXCHANGES:
            taint = self._of(sources(i))
            if taint is not None:
                found = np.where(on, taint.origin, 0).max(axis=2, keepdims=True)
                taint = whole(np.broadcast_to(found, self.shape))
            for name in results(i):
                self._set(name, taint, on)
        else:
            names = [*sources(i)]
            self._report(k, self._of(names), on, "is used", names)
            taint = self._of_warp(k) if i.name.startswith("wmma.load") else None
            for name in results(i):
                self._set(name, taint, on)

    def _compute(
        self, i: Instruction, values: Values, decided: Taint | None, on: np.ndarray
    ) -> None:
        taints = [self._exact(o) for o in i.operands[1:]]
        taint = bits.result(i, taints, values)
        unsure = None if decided is None else whole(decided.origin)
        targets = _items(i.operands[0])
        for j, name in enumerate(targets):
            part = taint
            if taint is not None and i.root == "mov" and len(targets) > 1:
                width = 8 * WIDTHS[i.opcode[-1]] // len(targets)
                part = Taint(taint.origin, taint.bits >> np.uint64(width * j) & mask_of(width))
            self._set(name, either(part, unsure), on)

    def _load(self, k: int, i: Instruction, on: np.ndarray) -> None:
        self._address(k, on, i.operands[1])
        targets = _items(i.operands[0])
        count = len(targets)
        origins = np.zeros((*self.shape, count), np.int32)
        undefined = np.zeros((*self.shape, count), np.uint64)
        for moved in self.moved.get(k, ()):
            found = self._origins(moved)
            if found is not None and found.any():
                lanes = self.machine.active(moved.mask)
                origins[lanes], undefined[lanes] = _spread(found, count, self.state.granule)
        for j, target in enumerate(targets):
            self._set(target, Taint(origins[..., j], undefined[..., j]), on)

    def _of_warp(self, k: int) -> Taint | None:
        """The taint of a fragment that warps have loaded: undefined if any element is."""
        worst = np.zeros(self.shape, np.int32)
        for moved in self.moved.get(k, ()):
            found = self._origins(moved)
            if found is not None and found.any():
                lanes = self.machine.active(moved.mask)
                worst[lanes] = np.maximum(worst[lanes], found.max(axis=1))
        if not worst.any():
            return None
        return whole(np.broadcast_to(worst.max(axis=2, keepdims=True), self.shape))

    def _origins(self, moved: Moved) -> np.ndarray | None:
        """The origins of the granules that a load has read."""
        found = moved.origins
        if moved.space in self.memory:
            now = self.memory[moved.space].take(moved.cells)
            found = now if found is None else np.maximum(found, now)
        if found is not None and found.any():
            self._remember(moved, found)
        return found

    def _store(self, k: int, i: Instruction, on: np.ndarray) -> None:
        self._address(k, on, i.operands[0])
        items = i.operands[1].items if isinstance(i.operands[1], Vector) else (i.operands[1],)
        width = 8 * self.program.accesses[k].dtype.itemsize
        none = Taint(np.zeros(self.shape, np.int32), np.zeros(self.shape, np.uint64))
        taints = [self._exact(o) or none for o in items]
        undefined = np.stack([taint.bits & mask_of(width) for taint in taints], axis=3)
        origins = np.stack([taint.origin for taint in taints], axis=3)
        origins = np.where(undefined != 0, origins, 0)
        for moved in self.moved.get(k, ()):
            lanes = self.machine.active(moved.mask)
            if moved.space == "global":
                worst = whole(np.where(lanes, origins.max(axis=3), 0))
                self._report(k, worst, on, "is stored to global memory", [*registers(items)])
                continue
            if moved.space not in self.memory:
                if not origins.any():
                    continue
                self.memory[moved.space] = np.zeros(self.state.granules[moved.space], np.int32)
            pieces = moved.cells.shape[1]
            found = _merge(origins[lanes], undefined[lanes], pieces, self.state.granule)
            self.memory[moved.space][moved.cells] = found

    def _shuffle(self, k: int, i: Instruction, values: Values, on: np.ndarray) -> None:
        mode = next(m for m in i.modifiers if m in collectives.SHUFFLES)
        taint = self._exact(i.operands[1])
        if taint is not None:
            taint = Taint(*(collectives.shuffle(mode, x, *values)[0] for x in taint))
        taint = either(taint, self._of(registers(i.operands[2:4])))
        unread = self.participation.unread
        if unread is not None:
            given = whole(np.where(unread, np.int32(k + 1), np.int32(0)))
            taint = either(taint, given)
        for j, name in enumerate(results(i)):
            self._set(name, None if j else taint, on)

    def _address(self, k: int, on: np.ndarray, operand: object) -> None:
        if isinstance(operand, Memory) and isinstance(operand.base, Reg):
            name = operand.base.name
            self._report(k, self._of([name]), on, "is an address", [name])

    # Registers

    def _of(self, names: Iterable[str]) -> Taint | None:
        """The union of the taints of registers."""
        found = None
        for name in names:
            found = either(found, self.registers.get(name))
        return found

    def _exact(self, operand: Operand) -> Taint | None:
        """The taint of an operand, bit by bit. A vector is packed, as by `mov`."""
        if isinstance(operand, Vector):
            taint, place = None, 0
            for item in operand.items:
                part = self._exact(item)
                if part is not None:
                    shifted = Taint(part.origin, part.bits << np.uint64(place % 64))
                    taint = either(taint, shifted)
                place += 8 * WIDTHS[item.type] if isinstance(item, Reg) else 32
            return taint
        taint = self._of(registers([operand]))
        if taint is not None and isinstance(operand, Reg):
            taint = Taint(taint.origin, taint.bits & mask_of(8 * WIDTHS[operand.type]))
        return taint

    def _set(self, name: str, taint: Taint | None, on: np.ndarray) -> None:
        """Set the taint of a register for the lanes `on`."""
        old = self.registers.get(name)
        if taint is None and old is None:
            return
        now, before = taint or DEFINED, old or DEFINED
        undefined = np.where(on, now.bits, before.bits)
        origin = np.where(undefined != 0, np.where(on, now.origin, before.origin), np.int32(0))
        if name and origin.any():
            self.registers[name] = Taint(origin, undefined)
        else:
            self.registers.pop(name, None)

    # Findings

    def _remember(self, moved: Moved, origins: np.ndarray) -> None:
        """Save the memory location of the first undefined value of each load, for messages."""
        for origin in np.unique(origins[origins > 0]).tolist():
            if origin not in self.places:
                cell = int(moved.cells[origins == origin][0])
                self.places[origin] = self.state.place_of(moved.space, cell, origin - 1)

    def _report(
        self, k: int, taint: Taint | None, on: np.ndarray, what: str, names: list[str]
    ) -> None:
        """Report that undefined values of registers matter, then treat the registers as defined, so
        that each value is reported once. what: the effect, for the message."""
        if taint is None:
            return
        bad = np.where(on, taint.origin, 0)
        if not bad.any():
            return
        for name in names:
            self._set(name, None, on)
        findings, machine = self.state.findings, self.machine
        for origin in np.unique(bad[bad > 0]).tolist():
            is_register = origin == NEVER_SET
            if not is_register and self.code[origin - 1].name == "shfl":
                self.participation.use(origin - 1, k, what)
                continue
            other = None if is_register else origin - 1
            if not findings.wants(KIND, k, other):
                continue
            where = self.places.get(origin)
            lanes = np.argwhere(bad == origin)
            block = machine.block_index(int(lanes[0, 0]))
            here = lanes[lanes[:, 0] == lanes[0, 0]]
            threads = (here[:, 1] * WARP + here[:, 2]).tolist()
            message = f"thread {threads[0]} uses a variable that was never set; its value {what}"
            if other is not None:
                read = f"reads {where} at {advice.line(self.code[other].site)}"
                message = f"thread {threads[0]} {read}, which was never written; the value {what}"
            message += f" at {advice.line(self.code[k].site)}: initialize it first"
            findings.add(KIND, message, k, other, block, threads)


def _items(target: object) -> list[str]:
    """The registers of a result; "" for other operands, such as `_`."""
    items = target.items if isinstance(target, Vector) else (target,)
    return [x.name if isinstance(x, Reg) else "" for x in items]


def _spread(origins: np.ndarray, count: int, granule: int) -> tuple[np.ndarray, np.ndarray]:
    """Convert origins of granules, (n, granules), to origins and bits of elements, (n, count)."""
    granules = origins.shape[1]
    if granules < count:
        found = np.repeat(origins, count // granules, axis=1)
        return found, np.where(found > 0, ALL, NONE)
    parts = origins.reshape(len(origins), count, -1)
    places = np.arange(parts.shape[2], dtype=np.uint64) * np.uint64(8 * granule % 64)
    undefined = np.where(parts > 0, mask_of(8 * granule) << places, NONE)
    return parts.max(axis=2), np.bitwise_or.reduce(undefined, axis=2)


def _merge(origins: np.ndarray, undefined: np.ndarray, pieces: int, granule: int) -> np.ndarray:
    """Convert origins and bits of elements, (n, count), to origins of granules, (n, pieces)."""
    n, count = origins.shape
    if count > pieces:
        found: np.ndarray = origins.reshape(n, pieces, -1).max(axis=2)
        return found
    places = np.arange(pieces // count, dtype=np.uint64) * np.uint64(8 * granule % 64)
    parts = undefined[:, :, None] >> places & mask_of(8 * granule)
    return np.where(parts != 0, origins[:, :, None], 0).reshape(n, pieces)
