"""Python for bulk copies, their groups, and related tensor-map and fence instructions."""

from __future__ import annotations

import numpy as np

from gemmlab.emulator.copies import reductions
from gemmlab.emulator.translation.emit.instructions import (
    Emitters,
    enabled,
    group_count,
    memory_operand,
)
from gemmlab.emulator.translation.emit.mbarriers import shared_address
from gemmlab.emulator.translation.translator import U32, U64, Translator
from gemmlab.ptx.ir import Imm, Instruction, Memory, Operand, Vector

S32 = np.dtype("i4")
SIGNAL = "mbarrier::complete_tx::bytes"
SPACES = {"global": "global", "shared::cta": "shared", "shared::cluster": "shared"}
DIMENSIONS = {f"{k}d": k for k in range(1, 6)}


def emit_bulk(t: Translator, i: Instruction) -> None:
    """cp.async.bulk and its groups. Cache hints and prefetches have no effect here."""
    match i.name:
        case "cp.async.bulk.commit_group":
            _call(t, i, "commit(")
        case "cp.async.bulk.wait_group":
            only_reads = "read" in i.modifiers
            _call(t, i, f"wait({group_count(t, i.operands[0])}, {only_reads}, ")
        case "cp.async.bulk.prefetch" | "cp.async.bulk.prefetch.tensor":
            if not {"L2", "global"} <= {*i.modifiers}:
                t.unsupported()
        case "cp.async.bulk.tensor":
            _tensor(t, i, list(i.modifiers[3:]), None)
        case "cp.async.bulk":
            _linear(t, i, list(i.modifiers[2:]), None)
        case _:
            t.unsupported()


def emit_reduce(t: Translator, i: Instruction) -> None:
    """cp.reduce.async.bulk"""
    words = list(i.modifiers[3:])
    operation = next((w for w in words if w in reductions.OPERATIONS), "")
    if not operation:
        t.unsupported()
    words.remove(operation)
    if "noftz" in words:
        words.remove("noftz")
    if i.name == "cp.reduce.async.bulk.tensor":
        _tensor(t, i, words[1:], operation)
        return
    combine = reductions.find(operation, words.pop())
    if combine is None:
        t.unsupported()
    name = t.constant_object(combine, f"c{t.index}")
    _linear(t, i, words, name)


def emit_send(t: Translator, i: Instruction) -> None:
    """st.async[.weak][.shared::cluster].mbarrier::complete_tx::bytes[.vN].type [a], b, [mbarrier];
    red.async.relaxed.cluster… .op.type, the same"""
    words = [w for w in i.modifiers[1:] if w not in ("weak", "relaxed", "cluster")]
    *rest, type_ = words
    count = int(rest.pop()[1:]) if rest[-1:] in (["v2"], ["v4"]) else 1
    name = "None"
    if i.root == "red":
        combine = reductions.find(rest.pop(), type_) if rest else None
        if combine is None or type_ == "s64":
            t.unsupported()
        name = t.constant_object(combine, f"c{t.index}")
    if rest == [SIGNAL]:
        t.unsupported(f"generic addresses of {i.name}")
    if rest != ["shared::cluster", SIGNAL] or type_[1:] not in ("32", "64"):
        t.unsupported()
    items = i.operands[1].items if isinstance(i.operands[1], Vector) else (i.operands[1],)
    if len(items) != count:
        t.unsupported(f"{len(items)} registers for {count} elements")
    dtype = U32 if type_[1:] == "32" else U64
    values = ", ".join(t.value(x, dtype, typed=False) for x in items)
    where = _address(t, i.operands[0], "shared")
    signal = shared_address(t, i, i.operands[2], "shared")
    _call(t, i, f"send({t.index}, {where}, ({values},), ({signal}), {name}, ")


def emit_replace(t: Translator, i: Instruction) -> None:
    """tensormap.replace.tile.field.space.b1024.type [map], {axis, }value"""
    match i.modifiers[1:]:
        case "tile", field, ("global" | "shared::cta") as space, "b1024", ("b32" | "b64") as type_:
            pass
        case _:
            t.unsupported()
    *axis, value = i.operands[1:]
    number = axis[0].value if axis and isinstance(axis[0], Imm) else 0
    where = _address(t, i.operands[0], space.split("::")[0])
    new = t.value(value, U32 if type_ == "b32" else U64)
    place = f"{space.split('::')[0]!r}, {where}, {field!r}, {number}"
    _call(t, i, f"replace_field({t.index}, {place}, {new}, ")


def emit_copy_map(t: Translator, i: Instruction) -> None:
    """tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic… [target], [source], 128"""
    if i.modifiers[1:4] != ("global", "shared::cta", "tensormap::generic"):
        t.unsupported()
    target, source = (
        _address(t, o, space) for o, space in zip(i.operands, ("global", "shared"), strict=False)
    )
    _call(t, i, f"copy_map({t.index}, {target}, {source}, ")


def emit_proxy_fence(t: Translator, i: Instruction) -> None:
    """fence.proxy.async, for any state space. Fences of other proxies have no effect here."""
    match i.modifiers[1:]:
        case "async", *_:
            _call(t, i, "fence(")
        case (("alias" | "async::generic" | "tensormap::generic"), *_):
            pass
        case _:
            t.unsupported()


def emit_fence(t: Translator, i: Instruction) -> None:
    """fence.mbarrier_init.release.cluster. Other fences have no effect here."""
    if "mbarrier_init" in i.modifiers:
        _call(t, i, "fence_init(")


def _linear(t: Translator, i: Instruction, words: list[str], combine: str | None) -> None:
    """[target], [source], size, [mbarrier]{, ranks}{, policy}, or without an mbarrier"""
    operands, ranks = _without_hints(t, i, words)
    if len(words) != 3 or words[0] not in SPACES or words[1] not in SPACES:
        t.unsupported()
    spaces = tuple(SPACES[w] for w in words[:2])
    if words[2] not in (SIGNAL, "bulk_group") or len(operands) != 3 + (words[2] == SIGNAL):
        t.unsupported()
    signal = "None"
    if words[2] == SIGNAL:
        signal = f"({shared_address(t, i, operands[3], 'shared')})"
    ends = ", ".join(_address(t, o, s) for o, s in zip(operands, spaces, strict=False))
    size = t.value(operands[2], U32)
    _call(t, i, f"copy({t.index}, {spaces!r}, ({ends}), {size}, {signal}, {ranks}, {combine}, ")


def _tensor(t: Translator, i: Instruction, words: list[str], operation: str | None) -> None:
    """Nd.shared.global.tile.mbarrier [target], [map, {x, …}], [mbarrier]{, ranks}{, policy};
    Nd.global.shared.tile.bulk_group [map, {x, …}], [source]{, policy}"""
    operands, ranks = _without_hints(t, i, words)
    if "tile" in words:
        words.remove("tile")
    if len(operands) < 2:
        t.unsupported()
    match words:
        case [dim, "shared::cluster" | "shared::cta", "global", "mbarrier::complete_tx::bytes"]:
            inside, tensor, *rest = operands
        case [dim, "global", "shared::cta", "bulk_group"]:
            tensor, inside, *rest = operands
        case _:
            mode = next((w for w in words if "im2col" in w or "gather" in w), "")
            if mode:
                t.unsupported(f"{mode} copies; only tiled copies are implemented")
            t.unsupported()
    is_load = words[-1] == SIGNAL
    at = tensor.coordinates[0] if isinstance(tensor, Memory) and tensor.coordinates else None
    if not isinstance(at, Vector) or len(at.items) != DIMENSIONS.get(dim) or len(rest) != is_load:
        t.unsupported()
    assert isinstance(tensor, Memory)
    map_ = _address(t, Memory(tensor.base, tensor.offset), "generic")
    place = ", ".join([map_, *(t.value(x, S32) for x in at.items)])
    box = _address(t, inside, "shared")
    if is_load:
        signal = f"({shared_address(t, i, rest[0], 'shared')})"
        _call(t, i, f"load_box({t.index}, {box}, ({place}), {signal}, {ranks}, ")
    else:
        _call(t, i, f"store_box({t.index}, {box}, ({place}), {operation!r}, ")


def _without_hints(t: Translator, i: Instruction, words: list[str]) -> tuple[list[Operand], str]:
    """Return the operands without cache policy and ranks, and the ranks. Removes their
    modifiers."""
    operands, ranks = list(i.operands), "None"
    if "L2::cache_hint" in words:
        words.remove("L2::cache_hint")
        operands.pop()
    if "multicast::cluster" in words:
        words.remove("multicast::cluster")
        ranks = t.value(operands.pop(), np.dtype("u2"))
    return operands, ranks


def _address(t: Translator, operand: Operand, space: str) -> str:
    """Return an address with its offset; 32-bit registers yield a 32-bit address."""
    words = ["b8"] if space == "generic" else [space, "b8"]
    _, where, _, _, offset = memory_operand(t, operand, words)
    return f"bulk_copies.moved({where}, {offset})" if offset else where


def _call(t: Translator, i: Instruction, call: str) -> None:
    mask, indent = enabled(t, i)
    t.line(f"{indent}m.bulk.{call}{mask})")


EMITTERS: Emitters = {
    "cp.async.bulk": (emit_bulk, {3, 4, 5, 6}),
    "cp.async.bulk.tensor": (emit_bulk, {2, 3, 4, 5}),
    "cp.async.bulk.commit_group": (emit_bulk, {0}),
    "cp.async.bulk.wait_group": (emit_bulk, {1}),
    "cp.async.bulk.prefetch": (emit_bulk, {2, 3}),
    "cp.async.bulk.prefetch.tensor": (emit_bulk, {1, 2}),
    "cp.reduce.async.bulk": (emit_reduce, {3, 4, 5, 6}),
    "cp.reduce.async.bulk.tensor": (emit_reduce, {2, 3}),
    "st.async": (emit_send, {3}),
    "red.async": (emit_send, {3}),
    "tensormap.replace": (emit_replace, {2, 3}),
    "tensormap.cp_fenceproxy": (emit_copy_map, {3}),
    "fence": (emit_fence, {0}),
    "fence.proxy": (emit_proxy_fence, {0, 2}),
}
