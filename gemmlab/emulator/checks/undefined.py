"""Values that nobody has defined: where they come from, where they go, and where they matter.

Memory that nobody has written and registers that nobody has set may be read, copied and computed
with: compilers load ahead of a condition, and a kernel may read more than it uses. It matters where
such a value decides a branch or whether something executes, is an address, goes to global memory or
into an instruction that leaves the thread. (So does memcheck: Seward and Nethercote, Using Valgrind
to detect undefined value errors with bit-precision, 2005; but registers are one piece here.)

Each register and granule has its origin: the load that found nothing there, or the shuffle that
read a lane which gave nothing, as its index plus one; 0 where it is defined. As long as all is
defined nothing is followed: most basic blocks of most kernels cost one look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP, Mask, three_axes
from gemmlab.emulator.ptx.ir import Instruction, Memory, Reg, Vector, registers
from gemmlab.emulator.synchronization import collectives
from gemmlab.emulator.translation.liveness import live_after, live_at_starts, results, sources
from gemmlab.emulator.translation.translate import Block

if TYPE_CHECKING:
    from gemmlab.emulator.checks.monitor import Monitor

KIND = "uninitialized read"
NEVER_SET = np.iinfo(np.int32).max  # the origin of registers that nobody has set
# What computes: its result is undefined where an operand is.
COMPUTE = {
    *("add", "sub", "mul", "mad", "fma", "div", "rem", "abs", "neg", "min", "max", "sad", "rcp"),
    *("sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh", "copysign", "and", "or", "xor", "not"),
    *("cnot", "lop3", "shl", "shr", "shf", "bfe", "bfi", "mul24", "mad24", "bmsk", "szext", "fns"),
    *("popc", "clz", "brev", "bfind", "prmt", "selp", "testp", "setp", "set", "mov", "cvt", "cvta"),
    *("slct", "addc", "subc", "madc", "dp4a", "dp2a", "isspacep", "mapa", "getctarank"),
}
OF_WARP = {"vote", "match", "redux"}
BRANCHES = {"bra", "ret", "exit", "brx"}


class Moved(NamedTuple):
    """One access to memory in the basic block under way."""

    space: str
    name: str  # "load" or "store"
    mask: Mask | None
    cells: np.ndarray  # (active lanes, granules of each)
    origins: np.ndarray | None  # as cells; of what a load found undefined


class Undefined:
    """Of the threads of one chunk."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor, self.machine = monitor, monitor.machine
        program = self.machine.launch.program
        self.program, self.code, self.blocks = program, monitor.code, program.blocks
        self.live = live_at_starts(self.code, self.blocks)
        self.shape = self.machine.extent.shape
        never = np.broadcast_to(np.int32(NEVER_SET), self.shape)
        self.registers = {name: never for name in self.live[0]}
        self.memory: dict[str, np.ndarray] = {}  # by space: origins of granules
        self.moved: dict[int, list[Moved]] = {}
        self.has_found = False
        self.unknown: np.ndarray | None = None
        self.places: dict[int, str] = {}  # by origin

    # While a basic block runs

    def load(
        self,
        site: int,
        space: str,
        mask: Mask | None,
        cells: np.ndarray,
        unwritten: np.ndarray | None,
    ) -> None:
        """unwritten: of each cell, whether nobody has written there; None where all are."""
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

    def shuffle(self, unknown: np.ndarray) -> None:
        """The shuffle that begins the basic block gives those lanes undefined values."""
        self.unknown, self.has_found = unknown, True

    # When it has run

    def after(self, number: int, block: Block, mask: Mask | None) -> None:
        """Follow what is undefined through the basic block that has just run."""
        if self.has_found or self.registers or self.memory:
            on = self.machine.active(mask)
            for k in range(block.first, block.last):
                i = self.program.joined.get(k, self.code[k])
                if i is not None:
                    self._execute(k, i, on)
            live = live_after(self.live, block)
            for name in [name for name in self.registers if name not in live]:
                del self.registers[name]
        self.moved.clear()
        self.has_found, self.unknown = False, None

    def _execute(self, k: int, i: Instruction, on: np.ndarray) -> None:
        noted = self.machine.noted.get(k, (None,))
        is_pure = i.root in COMPUTE
        decided = None
        if i.guard is not None:
            decided = self._of([i.guard.reg.name])
            if decided is not None and not is_pure:
                what = "decides a branch" if i.root in BRANCHES else "decides whether this executes"
                self._report(k, decided, on, what, [i.guard.reg.name])
                decided = None
            on = on & np.broadcast_to(three_axes(noted[0]), self.shape)
        if i.root in ("ld", "ldu"):
            self._load(k, i, on)
        elif i.root == "st" and "async" not in i.modifiers:
            self._store(k, i, on)
        elif is_pure:
            origin = self._computed(i, noted[1:])
            for name in results(i):
                self._set(name, _either(origin, decided), on)
        elif i.name == "shfl":
            self._shuffle(k, i, noted[1:], on)
        elif i.root in OF_WARP:
            origin = self._of(sources(i))
            if origin is not None:
                found = np.where(on, origin, 0).max(axis=2, keepdims=True)
                origin = np.broadcast_to(found, self.shape)
            for name in results(i):
                self._set(name, origin, on)
        else:
            names = [*sources(i)]
            self._report(k, self._of(names), on, "is used", names)
            origin = self._of_warp(k) if i.name.startswith("wmma.load") else None
            for name in results(i):
                self._set(name, origin, on)

    def _computed(self, i: Instruction, values: tuple[object, ...]) -> np.ndarray | None:
        """The origin of a result; `values` are those that the operands' bits depend on."""
        if i.root == "selp":
            yes, no, condition = (self._of(registers([o])) for o in i.operands[1:])
            if yes is not None or no is not None:
                none = np.zeros((1, 1, 1), np.int32)
                chosen = three_axes(values[0])
                yes = np.where(chosen, none if yes is None else yes, none if no is None else no)
            return _either(yes, condition)
        origin = self._of(sources(i))
        if origin is None:
            return None
        decides = 0 if i.root == "and" or "and" in i.modifiers else None
        decides = -1 if i.root == "or" or "or" in i.modifiers else decides
        if decides is not None and values:
            for o, value in zip(i.operands[-len(values) :], values, strict=True):
                array = three_axes(value)
                full = array.dtype.type(True) if array.dtype == bool else ~array.dtype.type(0)
                settles = array == (full if decides else array.dtype.type(0))
                own = self._of(registers([o]))
                if own is not None:
                    settles = settles & (own == 0)
                origin = np.where(settles, np.int32(0), origin)
        return origin

    def _load(self, k: int, i: Instruction, on: np.ndarray) -> None:
        self._address(k, i, on, i.operands[1])
        targets = _items(i.operands[0])
        count = max(len(targets), 1)
        origins = np.zeros((*self.shape, count), np.int32)
        for moved in self.moved.get(k, ()):
            found = self._origins(moved)
            if found is not None and found.any():
                origins[self.machine.active(moved.mask)] = _spread(found, count)
        for j, target in enumerate(targets):
            self._set(target, origins[..., j], on)

    def _of_warp(self, k: int) -> np.ndarray | None:
        """The origin of a matrix that warps have loaded, each element by a lane of its own."""
        worst = None
        for moved in self.moved.get(k, ()):
            found = self._origins(moved)
            if found is not None and found.any():
                origins = np.zeros(self.shape, np.int32)
                origins[self.machine.active(moved.mask)] = found.max(axis=1)
                worst = _either(worst, origins)
        if worst is None:
            return None
        return np.broadcast_to(worst.max(axis=2, keepdims=True), self.shape)

    def _origins(self, moved: Moved) -> np.ndarray | None:
        """Of the granules that a load has read."""
        found = moved.origins
        if moved.space in self.memory:
            now = self.memory[moved.space].take(moved.cells)
            found = now if found is None else np.maximum(found, now)
        if found is not None and found.any():
            self._remember(moved, found)
        return found

    def _store(self, k: int, i: Instruction, on: np.ndarray) -> None:
        self._address(k, i, on, i.operands[0])
        items = i.operands[1].items if isinstance(i.operands[1], Vector) else (i.operands[1],)
        origins = [self._of(registers([o])) for o in items]
        if all(origin is None for origin in origins):
            if self.memory:
                for moved in self.moved.get(k, ()):
                    if moved.space in self.memory:
                        self.memory[moved.space][moved.cells] = 0
            return
        none = np.zeros(self.shape, np.int32)
        values = np.stack([none if o is None else o for o in origins], axis=3)
        for moved in self.moved.get(k, ()):
            lanes = self.machine.active(moved.mask)
            if moved.space == "global":
                worst = np.where(lanes, values.max(axis=3), 0)
                names = [*registers(items)]
                self._report(k, worst, on, "is stored to global memory", names)
                continue
            if moved.space not in self.memory:
                self.memory[moved.space] = np.zeros(self.monitor.granules[moved.space], np.int32)
            self.memory[moved.space][moved.cells] = _merge(values[lanes], moved.cells.shape[1])

    def _shuffle(self, k: int, i: Instruction, values: tuple[object, ...], on: np.ndarray) -> None:
        mode = next(m for m in i.modifiers if m in ("up", "down", "bfly", "idx"))
        origin = self._of(registers(i.operands[1:2]))
        if origin is not None:
            origin, _ = collectives.shuffle(mode, origin, *values)
        origin = _either(origin, self._of(registers(i.operands[2:4])))
        if self.unknown is not None:
            origin = _either(origin, np.where(self.unknown, np.int32(k + 1), np.int32(0)))
        for j, name in enumerate(results(i)):
            self._set(name, None if j else origin, on)

    def _address(self, k: int, i: Instruction, on: np.ndarray, operand: object) -> None:
        if isinstance(operand, Memory) and isinstance(operand.base, Reg):
            name = operand.base.name
            self._report(k, self._of([name]), on, "is an address", [name])

    # Registers

    def _of(self, names: object) -> np.ndarray | None:
        found = None
        for name in names:  # type: ignore[attr-defined]
            found = _either(found, self.registers.get(name))
        return found

    def _set(self, name: str, origin: np.ndarray | None, on: np.ndarray) -> None:
        """Where `on`, a register has that origin from now on."""
        old = self.registers.get(name)
        if origin is None and old is None:
            return
        zero = np.int32(0)
        now = np.where(on, zero if origin is None else origin, zero if old is None else old)
        if now.any():
            self.registers[name] = now
        else:
            self.registers.pop(name, None)

    # Findings

    def _remember(self, moved: Moved, origins: np.ndarray) -> None:
        """Where in memory what is undefined was, for the first of each load."""
        for origin in np.unique(origins[origins > 0]).tolist():
            if origin not in self.places:
                cell = int(moved.cells[origins == origin][0])
                self.places[origin] = self.monitor.place_of(moved.space, cell)

    def _report(
        self, k: int, origins: np.ndarray | None, on: np.ndarray, what: str, names: list[str]
    ) -> None:
        """Undefined values of those registers matter; from now on they are as good as others."""
        if origins is None:
            return
        bad = np.where(on, origins, 0)
        if not bad.any():
            return
        for name in names:
            self._set(name, None, on)
        findings, machine = self.monitor.findings, self.machine
        for origin in np.unique(bad[bad > 0]).tolist():
            is_register = origin == NEVER_SET
            if not is_register and self.code[origin - 1].name == "shfl":
                self.monitor.participation.use(origin - 1, k, what)
                continue
            other = None if is_register else origin - 1
            if not findings.wants(KIND, k, other):
                continue
            where = self.places.get(origin)
            who = "a register that nobody has set" if is_register else "what nobody has written"
            message = f"{who} {what}" + (f": read from {where}" if where else "")
            lanes = np.argwhere(bad == origin)
            block = machine.block_index(int(lanes[0, 0]))
            here = lanes[lanes[:, 0] == lanes[0, 0]]
            threads = (here[:, 1] * WARP + here[:, 2]).tolist()
            findings.add(KIND, message, k, other, block, threads)


def _either(a: np.ndarray | None, b: np.ndarray | None) -> np.ndarray | None:
    if a is None or b is None:
        return b if a is None else a
    found: np.ndarray = np.maximum(a, b)
    return found


def _items(target: object) -> list[str]:
    """The registers of a load, "" for those of no interest."""
    items = target.items if isinstance(target, Vector) else (target,)
    return [x.name if isinstance(x, Reg) else "" for x in items]


def _spread(origins: np.ndarray, count: int) -> np.ndarray:
    """Of granules, (n, granules), to those of elements, (n, count)."""
    granules = origins.shape[1]
    if granules >= count:
        found: np.ndarray = origins.reshape(len(origins), count, -1).max(axis=2)
        return found
    return np.repeat(origins, count // granules, axis=1)


def _merge(origins: np.ndarray, granules: int) -> np.ndarray:
    """Of elements, (n, count), to those of granules."""
    count = origins.shape[1]
    if count >= granules:
        found: np.ndarray = origins.reshape(len(origins), granules, -1).max(axis=2)
        return found
    return np.repeat(origins, granules // count, axis=1)
