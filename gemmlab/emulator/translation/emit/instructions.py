"""Python for single instructions that a row of isa.py's table cannot describe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from gemmlab.emulator.memory import atomics
from gemmlab.emulator.memory.addresses import WINDOW_BITS, WINDOW_STARTS
from gemmlab.emulator.translation import isa
from gemmlab.emulator.translation.translator import BOOL, U32, U64, Translator, immediate
from gemmlab.ptx.ir import (
    WIDTHS,
    Imm,
    Instruction,
    Memory,
    Operand,
    Reg,
    Symbol,
    Vector,
    vector_length,
)
from gemmlab.ptx.modifiers import read_opcode
from gemmlab.ptx.opcodes import SCALAR_ACCESSES

# Modifiers of ld and st for caching or ordering, with no effect within one block.
CACHE_WORDS = {"volatile", "relaxed", "acquire", "release", "acq_rel", "weak", "mmio", "nc"}
CACHE_WORDS |= {"unified", "ca", "cg", "cs", "cv", "lu", "wb", "wt", "cta", "cluster", "gpu", "sys"}
# Where the window of each state space starts. Constants are in global memory here.
STARTS = WINDOW_STARTS | {"const": WINDOW_STARTS["global"]}
SPACES = tuple(STARTS)
INNER = {"shared::cluster": "cluster", "local::frame": "frame"}  # handled as separate spaces
MOVED = {"pred", "f32", "f64", *(f"{kind}{bits}" for kind in "bus" for bits in (16, 32, 64))}
WIDE = "types of 128 bits are not emulated"


# Operands


def group_count(t: Translator, operand: Operand) -> int:
    """Return how many copy groups may remain pending."""
    if not isinstance(operand, Imm) or operand.width or not 0 <= operand.value < 1 << 31:
        t.unsupported("the number of groups must be a non-negative constant")
    return operand.value


# Instructions


def instruction(t: Translator, i: Instruction, emitters: Emitters) -> None:
    """Emit one instruction that is not a terminator. `emitters`: the instructions without a row in
    isa.py, by name, by name and last modifier, or by "cc"."""
    if i.root in SCALAR_ACCESSES and "L2::cache_hint" in i.modifiers:
        i = replace(i, operands=i.operands[:-1])  # without the cache policy
    found = next((emitters[key] for key in _keys(i.opcode) if key in emitters), None)
    if found is not None:
        emitter, counts = found
        if len(i.operands) not in counts:
            t.unsupported()
        emitter(t, i)
    else:
        from_table(t, i)


@cache
def _keys(opcode: tuple[str, ...]) -> tuple[str, ...]:
    """The keys under which an opcode's emitter may be."""
    name = read_opcode(opcode).name
    return f"{name}.cc" if "cc" in opcode else "", f"{name}.{opcode[-1]}", name


def is_warp_barrier(i: Instruction) -> bool:
    return i.name == "bar.warp"


def is_barrier_reduction(i: Instruction) -> bool:
    """bar.red.op.type d, a[, b], [!]c"""
    if i.root not in ("bar", "barrier") or "red" not in i.modifiers or len(i.operands) < 3:
        return False
    return bool({"popc", "and", "or"} & {*i.modifiers}) and isinstance(i.operands[0], Reg)


def from_table(t: Translator, i: Instruction) -> None:
    found = isa.find_form(i.root, i.modifiers)
    if i.root == "call" and (named := [o.name for o in i.operands if isinstance(o, Symbol)]):
        t.unsupported(f"{named[0]} is not defined in this PTX")
    if found is None:
        t.unsupported("the emulator does not implement it")
    form, type_ = found
    if len(i.operands) != 1 + len(form.operands):
        t.unsupported(f"{len(i.operands)} operands, expected {1 + len(form.operands)}")
    destination, *sources = i.operands
    flush = "ftz" in i.modifiers
    values: list[str] = []
    for letter, operand in zip(form.operands, sources, strict=True):
        dtype = isa.dtype_of(letter, type_)
        if letter == "W" and len(values) < 2:  # factors of a wide product have half its width
            own = isa.DTYPES[type_]
            value = f"{t.value(operand, own)}.astype({t.dtype(dtype)})"
        else:
            value = t.value(operand, dtype)
        values.append(f"n.flush({value})" if flush else value)
    expression = form.expression.format(*values)
    if flush:
        expression = f"n.flush({expression})"
    if "sat" in i.modifiers and "sat" in form.optional:
        expression = f"n.saturate({expression})"
    t.assign(i, destination, expression, isa.dtype_of(form.result, type_))


def move(t: Translator, i: Instruction) -> None:
    """mov: copy, take an address, pack a vector into a register, or unpack one."""
    destination, source = i.operands
    if i.opcode[-1] == "b128":
        t.unsupported(WIDE)
    dtype = isa.DTYPES[i.opcode[-1]] if i.opcode[-1] in MOVED else None
    parts = max((len(o.items) for o in i.operands if isinstance(o, Vector)), default=1)
    if dtype is None or parts not in (1, 2, 4, 8) or parts > dtype.itemsize:
        t.unsupported()
    if isinstance(source, Vector):
        part = dtype.itemsize // len(source.items)
        narrow, shift = np.dtype(f"u{part}"), np.dtype(f"u{dtype.itemsize}")
        pieces = []
        for k, item in enumerate(source.items):
            piece = f"{t.value(item, narrow)}.astype({t.dtype(shift)})"
            pieces.append(f"({piece} << {t.constant(shift.type(8 * part * k))})" if k else piece)
        t.assign(i, destination, " | ".join(pieces), shift)
    elif isinstance(destination, Vector):
        part = dtype.itemsize // len(destination.items)
        narrow, whole = np.dtype(f"u{part}"), np.dtype(f"u{dtype.itemsize}")
        t.line(f"x = {t.value(source, whole)}")
        for k, item in enumerate(destination.items):
            shift_by = t.constant(whole.type(8 * part * k))
            t.assign(i, item, f"(x >> {shift_by}).astype({t.dtype(narrow)})", narrow)
    elif isinstance(source, Reg) and isinstance(destination, Reg):
        # Bits move unchanged, so the destination's type costs nothing if the source shares it.
        stored = t.storage_of(source)
        t.assign(i, destination, t.read(source), stored, typed=False)
    else:
        if not isinstance(destination, Reg):
            t.unsupported("the destination must be a register")
        if isinstance(source, Imm):
            stored = t.storage_of(destination)
            want = stored if stored.itemsize == dtype.itemsize else dtype
            value = t.literal(source, dtype, want)
            t.assign(i, destination, value, want, typed=False)
        else:
            t.assign(i, destination, t.value(source, dtype), dtype, typed=False)


def convert_address(t: Translator, i: Instruction) -> None:
    """cvta[.to].space.u64. Generic addresses hold their state space in the upper bits."""
    *_, space, type_ = ("", "", *i.modifiers)
    window = STARTS.get(space.split("::")[0])
    if window is None or type_ != "u64":
        t.unsupported()
    base = t.constant(np.uint64(window))
    sign = "-" if i.name == "cvta.to" else "+"
    t.assign(i, i.operands[0], f"{t.value(i.operands[1], U64)} {sign} {base}", U64)


def is_in_space(t: Translator, i: Instruction) -> None:
    """isspacep.space p, a"""
    (space,) = i.modifiers or ("",)
    window = STARTS.get(space.split("::")[0])
    if space == "const":
        t.unsupported("constants are in global memory here")
    if window is None:
        t.unsupported("unknown state space")
    shift = t.constant(np.uint64(WINDOW_BITS))
    number = t.constant(np.uint64(window >> WINDOW_BITS))
    t.assign(i, i.operands[0], f"({t.value(i.operands[1], U64)} >> {shift}) == {number}", BOOL)


def memory_operand(
    t: Translator, memory: Operand, words: list[str]
) -> tuple[str, str, np.dtype, int, int]:
    """Return the space, address expression, element type, element count and offset of a load or
    store."""
    *words, type_ = words
    dtype = isa.DTYPES.get(type_)
    count = vector_length(words)
    space = next((w.split("::")[0] for w in words if w.split("::")[0] in SPACES), "generic")
    space = INNER.get(next((w for w in words if w in INNER), ""), space)
    rest = {w for w in words if w.split("::")[0] not in SPACES} - CACHE_WORDS - {f"v{count}"}
    rest = {w for w in rest if not w.startswith(("L1::", "L2::"))}
    if type_ == "b128":
        t.unsupported(WIDE)
    if dtype is None or rest or not isinstance(memory, Memory) or memory.coordinates:
        t.unsupported("this form of memory operand")
    if dtype.itemsize * count > 16:
        t.unsupported("accesses wider than 16 bytes")
    base = memory.base
    if isinstance(base, Imm):
        return space, t.constant(immediate(base, U64)), dtype, count, memory.offset
    if isinstance(base, Symbol):
        variable = t.variables.get(base.name)
        if space == "generic" and variable is not None and variable.space in SPACES:
            space = variable.space
        if space == "param" and base.name in t.local:
            space = "frame"
        return space, t.address(base, U64), dtype, count, memory.offset
    wide = t.storage_of(base).itemsize == 8
    if not wide and space not in ("shared", "cluster", "local", "frame", "param"):
        t.unsupported("a 32-bit register cannot hold an address in this space")
    return space, t.value(base, U64 if wide else U32), dtype, count, memory.offset


def registers_moved(
    t: Translator, operand: Operand, count: int, width: int
) -> tuple[Sequence[Operand], np.dtype | None]:
    """Return the registers of a load or store, and their type if they are as wide as an element.

    Untyped bits take the type that the registers already have.
    """
    items = operand.items if isinstance(operand, Vector) else (operand,)
    first = next((x for x in items if isinstance(x, Reg)), None)
    if len(items) != count:
        t.unsupported(f"{len(items)} registers for {count} elements")
    own = None if first is None else t.storage_of(first)
    fits = own is not None and own.itemsize == width and own != BOOL
    return items, own if fits else None


def load(t: Translator, i: Instruction) -> None:
    """ld[.space][.vN].type d, [a]"""
    space, where, dtype, count, offset = memory_operand(t, i.operands[1], [*i.modifiers])
    items, own = registers_moved(t, i.operands[0], count, dtype.itemsize)
    dtype = dtype if own is None else own
    access = t.access(dtype, count, offset)
    names = [f"x{k}" for k in range(count)]
    mask, indent = enabled(t, i)
    t.line(f"{indent}{', '.join(names)}, = m.space_{space}.load({access}, {where}, {mask})")
    if indent:
        zeros = ", ".join([t.constant(dtype.type(0))] * count)
        t.line(f"else: {', '.join(names)}, = {zeros},")
    for item, name in zip(items, names, strict=True):
        t.assign(i, item, name, dtype, typed=False)


def store(t: Translator, i: Instruction) -> None:
    """st[.space][.vN].type [a], b"""
    space, where, dtype, count, offset = memory_operand(t, i.operands[0], [*i.modifiers])
    items, own = registers_moved(t, i.operands[1], count, dtype.itemsize)
    declared, dtype = dtype, dtype if own is None else own
    if own is None and dtype.kind == "f" and dtype.itemsize == 2:
        dtype = np.dtype("u2")
    access = t.access(dtype, count, offset)
    values = ", ".join(
        t.literal(item, declared, dtype)
        if isinstance(item, Imm)
        else t.value(item, dtype, typed=False)
        for item in items
    )
    mask, indent = enabled(t, i)
    t.line(f"{indent}m.space_{space}.store({access}, {where}, ({values},), {mask})")


def atomic(t: Translator, i: Instruction) -> None:
    """atom[.order][.scope][.space].op[.noftz][.vN].type d, [a], b[, c]; red is the same without
    d."""
    words = i.modifiers
    type_ = next((w for w in reversed(words) if w in WIDTHS), "")
    name = next((w for w in words if w in atomics.OPERATIONS), "")
    operands = list(i.operands)
    target = operands.pop(0) if i.root == "atom" else Symbol("_")
    rest = [w for w in words if w not in (name, type_, "noftz")]
    is_half = type_ in atomics.HALVES
    bits = f"b{8 * WIDTHS[type_]}" if is_half else type_
    space, where, dtype, count, offset = memory_operand(t, operands[0], [*rest, bits])
    operation = atomics.find_operation(name, type_, space)
    if operation is None or len(operands) != 2 + (name == "cas") or is_half != ("noftz" in words):
        t.unsupported()
    if space not in ("global", "shared", "cluster", "generic"):
        t.unsupported(f"atomic operations on {space} memory")
    if count > 1 and (name not in ("add", "min", "max") or space not in ("global", "generic")):
        t.unsupported("operation not available for vectors")
    items = [x for o in operands[1:] for x in (o.items if isinstance(o, Vector) else (o,))]
    targets = target.items if isinstance(target, Vector) else (target,) * count
    if len(items) != len(operands[1:]) * count or len(targets) != count:
        t.unsupported(f"a number of registers other than {count}")
    access = t.access(dtype, count, offset)
    function = t.constant_object(operation, f"f_{name}_{type_}_{space}")
    values = ", ".join(t.value(o, dtype) for o in items)
    found = ", ".join(f"x{k}" for k in range(count))
    mask, indent = enabled(t, i)
    t.line(
        f"{indent}{found}, = m.space_{space}.update("
        f"{access}, {where}, {function}, ({values},), {mask})"
    )
    if indent:
        t.line(f"else: {found}, = ({t.constant(dtype.type(0))},) * {count}")
    for k, register in enumerate(targets):
        t.assign(i, register, f"x{k}", dtype)


def enabled(t: Translator, i: Instruction) -> tuple[str, str]:
    """Return the mask of a memory access and its indentation. A guard opens an `if` that tests for
    active lanes."""
    guard = t.guard(i)
    if guard is None:
        return "mask", ""
    t.line(f"on, e = m.enabled({guard}, mask)")
    t.line("if on:")
    return "e", "    "


def do_nothing(t: Translator, i: Instruction) -> None:
    """Instructions that only order or tune memory accesses have no effect here."""


def terminator(t: Translator, i: Instruction) -> str:
    """Return a terminator's operand: a branch's predicate, a switch's index, or a barrier's id and
    count."""
    guard = t.guard(i) or "None"
    if i.root in ("bra", "ret", "exit", "trap"):
        return guard
    if i.root == "nanosleep" or "cluster" in i.modifiers:
        return f"({guard},)"
    if i.root == "brx":
        return f"{guard}, {t.value(i.operands[0], U32)}"
    operands, predicate = list(i.operands), "None"
    if is_barrier_reduction(i):
        predicate = t.value(operands.pop(), BOOL)
        operands.pop(0)
    known = is_barrier_reduction(i) or {"sync", "arrive"} & {*i.modifiers}
    if not known or not 1 + ("arrive" in i.modifiers) <= len(operands) <= 2:
        t.unsupported()
    return f"{guard}, ({', '.join(t.value(o, U32) for o in operands)},), {predicate}"


# By name, or name and last type ("add.f16"): the emitter and its possible numbers of operands.
Emitters = dict[str, tuple[Callable[["Translator", Instruction], None], set[int]]]
EMITTERS: Emitters = {
    "mov": (move, {2}),
    "cvta": (convert_address, {2}),
    "cvta.to": (convert_address, {2}),
    "isspacep": (is_in_space, {2}),
    "ld": (load, {2}),
    "ldu": (load, {2}),
    "st": (store, {2}),
    "atom": (atomic, {3, 4}),
    "red": (atomic, {2}),
}
NO_EFFECT = {"fence": 0, "membar": 0, "membar.proxy": 0, "griddepcontrol": 0, "pmevent": 1}
NO_EFFECT |= {"pmevent.mask": 1, "prefetch": 1, "prefetchu": 1, "discard": 2, "applypriority": 2}
EMITTERS |= {name: (do_nothing, {count}) for name, count in NO_EFFECT.items()}
