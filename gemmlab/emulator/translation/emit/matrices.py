"""Python for ldmatrix, stmatrix, movmatrix and mma.sync."""

from __future__ import annotations

import re

import numpy as np

from gemmlab.emulator.tensor_cores.matrices import BITS, DEPTHS, INTEGERS, Shape
from gemmlab.emulator.translation.emit.instructions import Emitters, enabled, memory_operand
from gemmlab.emulator.translation.translator import U32, Translator
from gemmlab.ptx.ir import Instruction, Operand, Vector

COUNTS = {"x1": 1, "x2": 2, "x4": 4}
REGISTERS: dict[str, np.dtype] = {
    "f64": np.dtype("f8"),
    "f32": np.dtype("f4"),
    "s32": np.dtype("i4"),
}  # otherwise u4


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def load_matrices(t: Translator, i: Instruction) -> None:
    """ldmatrix.sync.aligned.m8n8.xN[.trans].shared.b16 r, [p]"""
    access, where, count, transposed = _matrices(t, i, i.operands[1], i.operands[0])
    mask, indent = enabled(t, i)
    call = f"m.space_matrices.load_matrices({access}, {where}, {count}, {transposed}, {mask})"
    t.line(f"{indent}c = {call}")
    if indent:
        t.line(f"else: c = [{t.constant(np.uint32(0))}] * {count}")
    for k, item in enumerate(_items(i.operands[0])):
        t.assign(i, item, f"c[{k}]", U32, typed=False)


def store_matrices(t: Translator, i: Instruction) -> None:
    """stmatrix.sync.aligned.m8n8.xN[.trans].shared.b16 [p], r"""
    access, where, _, transposed = _matrices(t, i, i.operands[0], i.operands[1])
    values = ", ".join(t.value(r, U32, typed=False) for r in _items(i.operands[1]))
    mask, indent = enabled(t, i)
    call = f"store_matrices({access}, {where}, ({values},), {transposed}, {mask})"
    t.line(f"{indent}m.space_matrices.{call}")


def _matrices(
    t: Translator, i: Instruction, memory: Operand, registers: Operand
) -> tuple[str, str, int, bool]:
    """Return the access, address, number of matrices, and whether they are transposed."""
    words = [m for m in i.modifiers if m not in ("sync", "aligned", "m8n8", "trans", *COUNTS)]
    count = next((COUNTS[m] for m in i.modifiers if m in COUNTS), 0)
    if i.modifiers[:3] != ("sync", "aligned", "m8n8") or count != len(_items(registers)):
        t.unsupported()
    if words not in (["shared", "b16"], ["shared::cta", "b16"]):
        t.unsupported()
    _, where, _, _, offset = memory_operand(t, memory, words)
    access = t.access(np.dtype("u2"), 8, offset)
    return access, where, count, "trans" in i.modifiers


def move_matrix(t: Translator, i: Instruction) -> None:
    """movmatrix.sync.aligned.m8n8.trans.b16 d, a"""
    if i.modifiers != ("sync", "aligned", "m8n8", "trans", "b16"):
        t.unsupported()
    value = t.value(i.operands[1], U32)
    t.assign(i, i.operands[0], f"matrices.move({value}, m.extent)", U32)


def multiply(t: Translator, i: Instruction) -> None:
    """mma.sync.aligned.mMnNkK.row.col[.satfinite].dtype.atype.btype.ctype d, a, b, c"""
    if {"sp", "sp::ordered_metadata"} & {*i.modifiers}:
        t.unsupported("sparse matrices are not emulated")
    pattern = r"sync\.aligned\.m(\d+)n8k(\d+)\.row\.col(\.satfinite)?\.(\w+)\.(\w+)\.(\w+)\.(\w+)"
    found = re.fullmatch(pattern, ".".join(i.modifiers))
    if found is None or not {*found.groups()[3:]} <= BITS.keys():
        t.unsupported()
    m, k, saturate, *types = found.groups()
    shape = Shape(int(m), int(k), *types)
    lists = [_items(o) for o in i.operands]
    if not _exists(shape, saturate) or tuple(map(len, lists)) != shape.counts:
        t.unsupported()
    names = []
    for items, type_ in zip(lists[1:], (shape.a, shape.b, shape.c), strict=True):
        dtype = REGISTERS.get(type_, U32)
        names.append(f"({', '.join(t.value(x, dtype) for x in items)},)")
    operands = f"matrices.{shape!r}, m.extent, {', '.join(names)}, {bool(saturate)}"
    t.line(f"c = {names[2]}")
    t.line(f"if m.multiplies: c = matrices.mma({operands})")
    for j, item in enumerate(lists[0]):
        t.assign(i, item, f"c[{j}]", REGISTERS.get(shape.d, U32))


def _exists(shape: Shape, saturate: str | None) -> bool:
    if (shape.m, shape.k) not in DEPTHS.get(shape.a, set()):
        return False
    if shape.a in INTEGERS:
        same = BITS[shape.a] == BITS[shape.b] and shape.b in INTEGERS
        return same and shape.d == shape.c == "s32"
    sums = {"f16": ("f16", "f32"), "f64": ("f64",)}.get(shape.a, ("f32",))
    return shape.a == shape.b and shape.d == shape.c and shape.d in sums and not saturate


EMITTERS: Emitters = {
    "ldmatrix": (load_matrices, {2}),
    "stmatrix": (store_matrices, {2}),
    "movmatrix": (move_matrix, {2}),
    "mma": (multiply, {4, 6}),  # sparse products have two more
}
