"""Python for wmma.load, wmma.store and wmma.mma."""

from __future__ import annotations

import re

import numpy as np

from gemmlab.emulator.tensor_cores.fragments import Fragment
from gemmlab.emulator.tensor_cores.matrices import BITS, Shape
from gemmlab.emulator.translation.emit.instructions import Emitters, enabled, memory_operand
from gemmlab.emulator.translation.translator import U32, Translator
from gemmlab.ptx.ir import Instruction, Operand, Vector

TALL = {(16, 16), (32, 8), (8, 32)}  # m and n for 16-bit and 8-bit elements, with k = 16
SHAPES = {(m, n, 16): {"f16", "bf16", "s8", "u8"} for m, n in TALL}
SHAPES |= {(16, 16, 8): {"tf32"}, (8, 8, 4): {"f64"}}
SUMS = {"f16": ("f16", "f32"), "s8": ("s32",), "u8": ("s32",), "f64": ("f64",)}
SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
F16_REGISTERS = 8  # of A and B, for any number of elements


def emit_load(t: Translator, i: Instruction) -> None:
    """wmma.load.{a,b,c}.sync.aligned.layout.shape[.space].type r, [p]{, stride}"""
    f, items = _fragment(t, i, i.operands[0])
    space, access, where, stride = _memory(t, i, f, i.operands[1])
    mask, indent = enabled(t, i)
    name = t.constant_object(f, f"w{t.index}")
    t.line(f"{indent}c = fragments.load({name}, {space}, {access}, {where}, {stride}, {mask})")
    if indent:
        t.line(f"else: c = [{t.constant(f.register_dtype.type(0))}] * {len(items)}")
    for k, item in enumerate(items):
        t.assign(i, item, f"c[{k}]", f.register_dtype, typed=False)


def emit_store(t: Translator, i: Instruction) -> None:
    """wmma.store.d.sync.aligned.layout.shape[.space].type [p], r{, stride}"""
    f, items = _fragment(t, i, i.operands[1])
    space, access, where, stride = _memory(t, i, f, i.operands[0])
    values = ", ".join(t.value(r, f.register_dtype, typed=False) for r in items)
    mask, indent = enabled(t, i)
    name = t.constant_object(f, f"w{t.index}")
    call = f"{name}, {space}, {access}, {where}, ({values},), {stride}, {mask}, m.extent"
    t.line(f"{indent}fragments.store({call})")


def emit_multiply(t: Translator, i: Instruction) -> None:
    """wmma.mma.sync.aligned.alayout.blayout.shape{.dtype.atype.btype.ctype | .dtype.ctype}
    {.rn}{.satfinite} d, a, b, c"""
    words = [*i.modifiers[1:]]
    saturate = words[-1:] == ["satfinite"]
    words = [w for w in words if w not in ("rn", "satfinite")]
    if len(words) == 7:  # f16, which the opcode omits
        words[6:6] = ["f16", "f16"]
    found = SHAPE.fullmatch(words[4]) if len(words) == 9 else None
    if found is None or words[:2] != ["sync", "aligned"] or not {*words[2:4]} <= {"row", "col"}:
        t.unsupported()
    m, n, k = (int(x) for x in found.groups())
    d, a, b, c = words[5:]
    shape = Shape(m, k, d, a, b, c)
    if a not in SHAPES.get((m, n, k), set()) or a != b or not {d, c} <= {*SUMS.get(a, ("f32",))}:
        t.unsupported()
    fragments = (
        make(m, n, d, "d"),
        make(m, k, a, "a", words[2] == "row"),
        make(k, n, b, "b", words[3] == "row"),
        make(m, n, c, "c"),
    )
    lists = [_items(o) for o in i.operands]
    if [len(x) for x in lists] != [f.registers for f in fragments]:
        t.unsupported()
    names = []
    for f, items in zip(fragments[1:], lists[1:], strict=True):
        names.append(f"({', '.join(t.value(x, f.register_dtype) for x in items)},)")
    name = t.constant_object((shape, fragments), f"w{t.index}")
    t.line(f"c = {names[2]}" if d == c else f"c = [0] * {fragments[0].registers}")
    t.line(f"if m.multiplies: c = fragments.mma(*{name}, m.extent, {', '.join(names)}, {saturate})")
    for j, item in enumerate(lists[0]):
        t.assign(i, item, f"c[{j}]", fragments[0].register_dtype)


def make(rows: int, columns: int, type_: str, which: str, is_row_major: bool = True) -> Fragment:
    """Return the fragment of matrix "a", "b", "c" or "d"."""
    in_registers = rows * columns * BITS[type_] // (32 * max(BITS[type_], 32))
    registers = F16_REGISTERS if type_ == "f16" and which in "ab" else in_registers
    return Fragment(which, rows, columns, type_, registers, is_row_major)


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def _fragment(
    t: Translator, i: Instruction, registers: Operand
) -> tuple[Fragment, tuple[Operand, ...]]:
    """Return the fragment that is loaded or stored, and its registers."""
    _, which, *words = i.modifiers
    found = SHAPE.fullmatch(words[3]) if len(words) in (5, 6) else None
    if found is None or words[:2] != ["sync", "aligned"] or words[2] not in ("row", "col"):
        t.unsupported()
    m, n, k = (int(x) for x in found.groups())
    rows, columns = {"a": (m, k), "b": (k, n), "c": (m, n), "d": (m, n)}.get(which, (0, 0))
    types = SHAPES.get((m, n, k), set())
    if which in ("c", "d"):
        types = {sum_ for type_ in types for sum_ in SUMS.get(type_, ("f32",))}
    if words[-1] not in types:
        t.unsupported()
    f, items = make(rows, columns, words[-1], which, words[2] == "row"), _items(registers)
    if len(items) != f.registers:
        t.unsupported(f"{len(items)} registers, expected {f.registers}")
    return f, items


def _memory(
    t: Translator, i: Instruction, f: Fragment, memory: Operand
) -> tuple[str, str, str, str]:
    """Return the space, access, address and stride in elements."""
    words = [*i.modifiers[6:-1], f"b{8 * f.dtype.itemsize}"]
    space, where, _, _, offset = memory_operand(t, memory, words)
    access = t.access(f.dtype, f.together, offset)
    stride = t.constant(np.uint32(f.columns if f.is_row_major else f.rows))
    if len(i.operands) == 3:
        stride = t.value(i.operands[2], U32)
    return f"m.space_{space}", access, where, stride


EMITTERS: Emitters = {
    **{f"wmma.load.{x}": (emit_load, {2, 3}) for x in "abc"},
    "wmma.store.d": (emit_store, {2, 3}),
    "wmma.mma": (emit_multiply, {4}),
}
