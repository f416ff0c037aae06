"""Determines which adjacent loads and stores the assembler joins into vector accesses.

ptxas emits LDS.64, LDS.128, STS.128 and so on for adjacent accesses in a basic block if it can
prove their alignment, and nvcc's PTX relies on that. Counting each PTX access separately would
report up to four times the hardware's instructions. The proof here is similar: the largest power of
two that divides a register, over all instructions that write it.

Accesses within an aligned chunk of four elements, at most 16 bytes, become one access if they cover
the chunk or one of its halves. Loads move up to the first of them, past anything that does not
write to their memory. Stores move down to the last; they are joined only if no other access to
their memory intervenes, not even a store to another chunk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gemmlab.emulator.translation.liveness import results
from gemmlab.ptx.ir import (
    WIDTHS,
    Function,
    Imm,
    Instruction,
    Memory,
    Operand,
    Reg,
    Symbol,
    Vector,
    registers,
)
from gemmlab.ptx.modifiers import read_opcode
from gemmlab.ptx.opcodes import ATOMICS, BOUNDARIES, LOADS, STORES

MAX_ALIGNMENT = 1 << 20  # alignment of zero
# Instructions that preserve some alignment, and their numbers of operands.
NUM_SOURCES = {"mov": 1, "cvt": 1, "cvta": 1, "neg": 1, "bfi": 4}
NUM_SOURCES |= dict.fromkeys(("add", "sub", "and", "or", "xor", "mul", "mul24", "shl", "rem"), 2)
NUM_SOURCES |= dict.fromkeys(("mad", "mad24", "selp", "slct"), 3)

WIDEST = 16  # bytes
SPACES = ("global", "shared", "local")
READ_ONLY = ("param", "const")
TOUCHING = BOUNDARIES | LOADS | STORES | ATOMICS


class Location(NamedTuple):
    """The location of a variable: an offset into a region of memory that variables may share."""

    memory: str
    offset: int  # bytes
    alignment: int = MAX_ALIGNMENT  # of the region


Locations = Mapping[str, Location]


def joined_accesses(
    function: Function, spans: Iterable[tuple[int, int]], locations: Locations
) -> dict[int, Instruction | None]:
    """Return, for the index of each joined access, the vector access to execute there, or None if
    another index of the group executes it.

    spans: first and past-the-end instruction of each basic block.
    """
    code = function.instructions
    written = [results(i) for i in code]
    alignment = alignments(code, written, locations)
    constants = _constants(code, written, locations)
    joined: dict[int, Instruction | None] = {}
    for first, last in spans:
        for group in _Block(code, written, alignment, locations, constants).groups(first, last):
            joined |= dict.fromkeys(x.index for x in group)
            where, instruction = _wide(code, group)
            joined[where] = instruction
    return joined


def alignments(
    code: Sequence[Instruction], written: Sequence[Sequence[str]], locations: Locations
) -> dict[str, int]:
    """Return, for each register, the largest power of two that divides all its possible values."""
    known: dict[str, int] = {}
    writers: dict[str, list[Instruction]] = {}
    for instruction, targets in zip(code, written, strict=True):
        for target in targets:
            writers.setdefault(target, []).append(instruction)
            known[target] = MAX_ALIGNMENT
    changed = True
    while changed:
        changed = False
        for name, instructions in writers.items():
            if known[name] == 1:
                continue
            value = min(_result(i, known, locations) for i in instructions)
            if value < known[name]:
                known[name], changed = value, True
    return known


def _divisor(value: int) -> int:
    return min(value & -value, MAX_ALIGNMENT) if value else MAX_ALIGNMENT


def _of(operand: Operand, known: Mapping[str, int], locations: Locations) -> int:
    if isinstance(operand, Reg):
        return known.get(operand.name, 1)
    if isinstance(operand, Imm) and operand.width == 0:
        return _divisor(operand.value)
    if isinstance(operand, Symbol) and operand.name in locations:
        location = locations[operand.name]
        return min(location.alignment, _divisor(location.offset + operand.offset))
    return 1


def _result(i: Instruction, known: Mapping[str, int], locations: Locations) -> int:
    """Return a known divisor of an integer instruction's result, or 1."""
    if isinstance(i.operands[0], Vector) or len(i.operands) - 1 != NUM_SOURCES.get(i.root):
        return 1
    if "sat" in i.modifiers or i.modifiers[-1][0] not in "bsu":
        return 1
    sources = [_of(o, known, locations) for o in i.operands[1:]]
    match i.root:
        case "mov" | "cvta":
            return sources[0]
        case "cvt" if i.modifiers[-2][0] in "bsu":
            return sources[0]
        case "neg" if i.modifiers[-1] == "s32":  # ptxas does not track wider types here
            return sources[0]
        case "add" | "sub" | "or" | "xor":
            return min(sources)
        case "and":
            return max(sources)
        case "mul" | "mul24" if {"lo", "wide"} & {*i.modifiers}:
            return min(sources[0] * sources[1], MAX_ALIGNMENT)
        case "mad" | "mad24" if {"lo", "wide"} & {*i.modifiers}:
            return min(sources[0] * sources[1], sources[2], MAX_ALIGNMENT)
        case "shl":
            return _shifted(sources[0], i.operands[2])
        case "bfi" if isinstance(i.operands[3], Imm):
            return min(_shifted(sources[0], i.operands[3]), sources[1])
        case "selp" | "slct":
            return min(sources[:2])
        case "rem" if i.modifiers[-1][0] == "u" and isinstance(i.operands[2], Imm):
            return min(sources)
    return 1


def _shifted(aligned: int, count: Operand) -> int:
    """Return a known divisor of a left shift's result, given one of its operand."""
    known = count.value % (1 << 32) if isinstance(count, Imm) else 0
    return min(aligned << min(known, 20), MAX_ALIGNMENT)


@dataclass(frozen=True)
class _Address:
    """An address: an offset from a register's value at one instruction, or into a region of
    memory."""

    # register and the index of the instruction that wrote it, or the name of a region and -1
    root: tuple[str, int]
    offset: int


@dataclass(frozen=True)
class _Access:
    """A load or store that may be joined with others, usually of one element."""

    index: int  # the instruction's
    memory: Memory
    place: _Address
    items: tuple[Operand, ...]  # registers of its elements
    type: str  # element type: untyped bits, or an integer type if the registers are wider

    @property
    def width(self) -> int:
        """Bytes per element."""
        return WIDTHS[self.type]

    @property
    def slots(self) -> range:
        """The positions of its elements, in elements."""
        first = self.place.offset // self.width
        return range(first, first + len(self.items))


# A chunk of memory for one kind of access: opcode, element type, root, chunk number.
Chunk = tuple[tuple[str, ...], str, tuple[str, int], int]


class _Block:
    """The accesses of one basic block, collected by chunk until an instruction prevents joining."""

    def __init__(
        self,
        code: Sequence[Instruction],
        written: Sequence[Sequence[str]],
        alignment: Mapping[str, int],
        locations: Locations,
        constants: Mapping[str, _Address],
    ) -> None:
        self.code, self.written = code, written
        self.alignment, self.locations = alignment, locations
        self.regions = {v.memory: v.alignment for v in locations.values()}
        self.values = {**constants}  # extended by what the block writes
        self.pending: dict[Chunk, list[_Access]] = {}

    def groups(self, first: int, last: int) -> Iterator[list[_Access]]:
        """Return groups of accesses to execute as one, each in order of address."""
        for index in range(first, last):
            i = self.code[index]
            if i.root in TOUCHING:
                chunk, access = self._chunk(index)
                yield from self._closed(i, chunk, access)
                if chunk and access:
                    self.pending.setdefault(chunk, []).append(access)
            self._record(index)
        yield from self._close(list(self.pending))

    def _closed(
        self, i: Instruction, chunk: Chunk | None, access: _Access | None
    ) -> Iterator[list[_Access]]:
        """Return the groups that must end before an instruction."""
        reads, writes = _touched(i)
        ended = []
        for other, gathered in self.pending.items():
            here = _spaces(other[0][1:])
            if other[0][0] == "ld":
                ends = bool(here & writes)
            elif other == chunk and access:
                ends = any({*access.slots} & {*x.slots} for x in gathered)
            else:
                ends = bool(here & (reads | writes))
            if ends:
                ended.append(other)
        yield from self._close(ended)

    def _close(self, chunks: Iterable[Chunk]) -> Iterator[list[_Access]]:
        for chunk in chunks:
            size = self._size(WIDTHS[chunk[1]], chunk[2])
            yield from _groups(self.code, self.pending.pop(chunk), size)

    def _chunk(self, index: int) -> tuple[Chunk | None, _Access | None]:
        """Return the chunk of an access that may be joined, and the access; (None, None) for
        others."""
        i = self.code[index]
        found = _scalar_operands(i)
        if found is None:
            return None, None
        memory, items, type_ = found
        place, width = self._place(memory.base, memory.offset), WIDTHS[type_]
        if place is None:
            return None, None
        size = self._size(width, place.root)
        if size < 2 * width or place.offset % width or len(items) * width >= size:
            return None, None
        words = (i.root, *(w for w in i.modifiers[:-1] if w not in ("v2", "v4")))
        chunk = words, type_, place.root, place.offset // size
        return chunk, _Access(index, memory, place, items, type_)

    def _size(self, width: int, root: tuple[str, int]) -> int:
        """Return the size of chunks relative to a root: the largest whose alignment is certain."""
        name, _ = root
        return min(WIDEST, 4 * width, self.regions.get(name) or self.alignment.get(name, 1))

    def _place(self, base: Operand, offset: int) -> _Address | None:
        if isinstance(base, Symbol) and base.name in self.locations:
            return _at(self.locations[base.name], base.offset + offset)
        if isinstance(base, Reg):
            value = self.values.get(base.name, _Address((base.name, -1), 0))
            return replace(value, offset=value.offset + offset)
        return None

    def _record(self, index: int) -> None:
        """Record the values that an instruction writes to registers: known addresses or new
        roots."""
        i = self.code[index]
        names = self.written[index]
        place = None
        if i.guard is None and len(names) == 1:
            match i.root, i.operands:
                case "mov", (_, source):
                    place = self._place(source, 0)
                case "add", (_, Reg() as source, Imm(value, 0)):
                    place = self._place(source, value)
        for name in names:
            self.values[name] = place or _Address((name, index), 0)


def _at(location: Location, offset: int) -> _Address:
    return _Address((location.memory, -1), location.offset + offset)


def _constants(
    code: Sequence[Instruction], written: Sequence[Sequence[str]], locations: Locations
) -> dict[str, _Address]:
    """Return the registers whose only value is the address of one variable."""
    found: dict[str, _Address] = {}
    times = Counter(name for names in written for name in names)
    for i in code:
        match i.opcode[0], i.operands:
            case "mov", (Reg(name), Symbol(variable, offset)) if variable in locations:
                if times[name] == 1 and i.guard is None:
                    found[name] = _at(locations[variable], offset)
    return found


def _scalar_operands(i: Instruction) -> tuple[Memory, tuple[Operand, ...], str] | None:
    """Return the address, registers and element type of an access that ptxas may join."""
    is_plain = i.root in ("ld", "st") and i.guard is None and len(i.operands) == 2
    if not is_plain or read_opcode(i.opcode).problem:
        return None
    *words, type_ = i.modifiers
    vector = next((w for w in words if w in ("v2", "v4")), None)
    rest = [w for w in words if w != vector]
    target, memory = i.operands if i.root == "ld" else reversed(i.operands)
    width = WIDTHS.get(type_, 0)
    if rest not in ([], ["global"], ["global", "nc"], ["shared"], ["shared::cta"], ["local"]):
        return None
    if not isinstance(memory, Memory) or memory.coordinates or width not in (2, 4, 8):
        return None
    items = target.items if isinstance(target, Vector) else (target,)
    literal = width if type_.startswith("f") else 0
    widths = {WIDTHS[x.type] for x in items if isinstance(x, Reg)} or {width}
    others = [x for x in items if not isinstance(x, Reg)]
    if any(i.root == "ld" or not isinstance(x, Imm) or x.width != literal for x in others):
        return None
    if len(items) != int(vector[1:] if vector else 1) or len(widths) > 1:
        return None
    if widths == {width}:
        return memory, items, f"b{8 * width}"
    if i.root == "ld" and width < 4:
        return None
    sign = "s" if i.root == "ld" and type_.startswith("s") else "u"
    return memory, items, f"{sign}{8 * width}"


def _spaces(words: Sequence[str]) -> set[str]:
    """Return the state spaces that an access with these modifiers may touch."""
    found = [w.partition("::")[0] for w in words]
    if any(w in READ_ONLY for w in found):
        return set()
    return {w for w in found if w in SPACES} or set(SPACES)


def _touched(i: Instruction) -> tuple[set[str], set[str]]:
    """Return the state spaces that an instruction may read and those that it may write."""
    nothing = set[str]()
    spaces = set(SPACES) if i.root in BOUNDARIES else _spaces(i.modifiers)
    reads = nothing if i.root in STORES else spaces
    return reads, nothing if i.root in LOADS else spaces


def _groups(
    code: Sequence[Instruction], gathered: list[_Access], size: int
) -> Iterator[list[_Access]]:
    """Return the groups of a chunk to join: all of it, or halves."""
    is_store = code[gathered[0].index].root == "st"
    if is_store and len(gathered[0].items) > min(len(x.items) for x in gathered):
        return  # ptxas starts with the first store and joins no narrower ones to it
    by_slot: dict[int, _Access] = {}
    for access in gathered:
        if not by_slot.keys() & {*access.slots}:
            by_slot |= dict.fromkeys(access.slots, access)
    width = gathered[0].width
    used: set[int] = set()
    for count in (4, 2):
        if count * width > size:
            continue
        for start in sorted(slot for slot in by_slot if slot % count == 0):
            slots = range(start, start + count)
            group = list(dict.fromkeys(by_slot[s] for s in slots if s in by_slot))
            whole = [s for x in group for s in x.slots] == list(slots)
            if whole and len(group) > 1 and not used & {*slots} and _movable(code, group):
                used |= {*slots}
                yield group


def _movable(code: Sequence[Instruction], group: Sequence[_Access]) -> bool:
    """Return whether all loads may move to the first of them, or all stores to the last: no
    instruction in between names a loaded register or writes a stored one."""
    first, last = min(x.index for x in group), max(x.index for x in group)
    for access in group:
        items = {*registers(access.items)}
        if code[access.index].root == "ld":
            between = code[first : access.index]
            others = (name for i in between for name in _named(i))
        else:
            between = code[access.index + 1 : last]
            others = (name for i in between for name in results(i))
        if not items.isdisjoint(others):
            return False
    return True


def _named(i: Instruction) -> Iterator[str]:
    yield from registers(i.operands)
    if i.guard is not None:
        yield i.guard.reg.name


def _wide(code: Sequence[Instruction], group: Sequence[_Access]) -> tuple[int, Instruction]:
    """Return the vector access of a group and the index at which it executes."""
    choose = min if code[group[0].index].root == "ld" else max
    at = choose(group, key=lambda access: access.index)
    items = tuple(item for access in group for item in access.items)
    memory = replace(at.memory, offset=at.memory.offset + group[0].place.offset - at.place.offset)
    operands = (Vector(items), memory)
    words = [w for w in code[at.index].modifiers[:-1] if w not in ("v2", "v4")]
    opcode = (code[at.index].root, *words, f"v{len(items)}", at.type)
    return at.index, replace(
        code[at.index],
        opcode=opcode,
        operands=operands if opcode[0] == "ld" else operands[::-1],
    )
