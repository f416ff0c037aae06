"""Python for clusters, and for instructions that only tune performance on Hopper."""

from __future__ import annotations

import numpy as np

from gemmlab.emulator.translation.emit.instructions import Emitters, enabled
from gemmlab.emulator.translation.translator import U32, U64, Translator
from gemmlab.ptx.ir import Imm, Instruction

WIDTHS: dict[str, np.dtype] = {"32": U32, "64": U64}
REGISTER_COUNTS = range(24, 257, 8)


def is_wait(i: Instruction) -> bool:
    return i.name == "barrier.cluster.wait"


def emit_map(t: Translator, i: Instruction) -> None:
    """mapa[.shared::cluster].type d, a, rank; getctarank[.shared::cluster].type d, a. Generic
    addresses keep their state space in the upper bits."""
    type_ = WIDTHS[i.modifiers[-1][1:]]
    address = t.value(i.operands[1], type_)
    if i.root == "mapa":
        rank = t.value(i.operands[2], U32)
        t.assign(i, i.operands[0], f"clusters.map_address({address}, {rank})", type_)
    else:
        own = "m.special('%cluster_ctarank')"
        t.assign(i, i.operands[0], f"clusters.rank_of({address}, {own})", U32)


def emit_arrive(t: Translator, i: Instruction) -> None:
    """barrier.cluster.arrive. The matching wait ends a block."""
    mask, indent = enabled(t, i)
    t.line(f"{indent}m.clusters.arrive({t.index}, {mask})")


def emit_set_registers(t: Translator, i: Instruction) -> None:
    """setmaxnreg.{inc,dec}.sync.aligned.u32 n. It has no effect here; only its operand is
    checked."""
    count = i.operands[0]
    if i.modifiers[1:] != ("sync", "aligned", "u32"):
        t.unsupported()
    if not isinstance(count, Imm) or count.value not in REGISTER_COUNTS:
        t.unsupported("the number of registers must be a multiple of 8 from 24 to 256")


def emit_policy(t: Translator, i: Instruction) -> None:
    """createpolicy. The result only matters to caches."""
    t.assign(i, i.operands[0], t.constant(np.uint64(0)), U64)


EMITTERS: Emitters = {
    "mapa": (emit_map, {3}),
    "getctarank": (emit_map, {2}),
    "barrier.cluster.arrive": (emit_arrive, {0}),
    "setmaxnreg.inc": (emit_set_registers, {1}),
    "setmaxnreg.dec": (emit_set_registers, {1}),
    "createpolicy.fractional": (emit_policy, {1, 2}),
    "createpolicy.range": (emit_policy, {4}),
    "createpolicy.cvt": (emit_policy, {2}),
}
