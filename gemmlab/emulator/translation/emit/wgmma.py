"""Python for wgmma instructions."""

from __future__ import annotations

import re

import numpy as np

from gemmlab.emulator.tensor_cores.matrices import BITS
from gemmlab.emulator.tensor_cores.wgmma import ROW_BYTES, Product
from gemmlab.emulator.translation.emit.instructions import Emitters, enabled, group_count
from gemmlab.emulator.translation.translator import BOOL, U32, U64, Translator
from gemmlab.ptx.ir import Imm, Instruction, Vector

A_REGISTERS = 4  # for a warp's 16 rows of 32 bytes
SHAPE = re.compile(r"m64n(\d+)k(\d+)")
REGISTERS: dict[str, np.dtype] = {"f32": np.dtype("f4"), "s32": np.dtype("i4"), "f16": U32}
FP8 = {"e4m3", "e5m2"}
# (a, b) -> accumulators
RESULTS = {("f16", "f16"): {"f32", "f16"}, ("bf16", "bf16"): {"f32"}, ("tf32", "tf32"): {"f32"}}
RESULTS |= {(a, b): {"s32"} for a in ("s8", "u8") for b in ("s8", "u8")}
RESULTS |= {(a, b): {"f32", "f16"} for a in sorted(FP8) for b in sorted(FP8)}


def emit_wgmma(t: Translator, i: Instruction) -> None:
    """wgmma.mma_async.sync.aligned.m64nNkK.result.a.b {d, …}, a, b, scale-d{, scale-a, scale-b {,
    trans-a}{, trans-b}}, and its commit and wait instructions. wgmma.fence has no effect here."""
    verb, *words = i.modifiers
    if "sync" not in words or "aligned" not in words:
        t.unsupported()
    match verb:
        case "fence":
            return
        case "commit_group":
            _call(t, i, "commit(")
            return
        case "wait_group":
            _call(t, i, f"wait({group_count(t, i.operands[0])}, ")
            return
    if words[:1] == ["sp"]:
        t.unsupported("sparse matrices are not emulated")
    product = _product(i, words)
    accumulators = i.operands[0] if i.operands else None
    if product is None or not isinstance(accumulators, Vector):
        t.unsupported()
    if len(accumulators.items) != product.num_registers:
        t.unsupported(f"{len(accumulators.items)} registers, expected {product.num_registers}")
    dtype = REGISTERS[product.result]
    before = ", ".join(t.value(o, dtype) for o in accumulators.items)
    a, b, scale = i.operands[1:4]
    if isinstance(a, Vector):
        if len(a.items) != A_REGISTERS:
            t.unsupported(f"{len(a.items)} registers, expected {A_REGISTERS}")
        left = f"({', '.join(t.value(o, U32) for o in a.items)})"
    else:
        left = t.value(a, U64)
    right, keeps = t.value(b, U64), t.value(scale, BOOL)
    name = t.constant_object(product, f"w{t.index}")
    mask, indent = enabled(t, i)
    call = f"m.wgmma.multiply({t.index}, {name}, ({before}), {left}, {right}, {keeps}, {mask})"
    t.line(f"{indent}d = {call}")
    if indent:
        t.line(f"else: d = np.zeros({product.num_registers}, {t.dtype(dtype)})")
    for k, item in enumerate(accumulators.items):
        t.assign(i, item, f"d[{k}]", dtype)


def _call(t: Translator, i: Instruction, call: str) -> None:
    mask, indent = enabled(t, i)
    t.line(f"{indent}m.wgmma.{call}{mask})")


def _product(i: Instruction, words: list[str]) -> Product | None:
    """Return the product that the modifiers and immediate operands specify, or None if PTX has
    none."""
    saturates = words[3:4] == ["satfinite"]
    if words[:2] != ["sync", "aligned"] or len(words) != 6 + saturates or len(i.operands) < 4:
        return None
    shape, (result, a, b) = SHAPE.fullmatch(words[2]), words[-3:]
    if shape is None or result not in RESULTS.get((a, b), ()) or (saturates and result != "s32"):
        return None
    n, k = int(shape[1]), int(shape[2])
    if n % 8 or not 8 <= n <= 256 or k * BITS[a] != 8 * ROW_BYTES:
        return None
    flags = [o.value for o in i.operands[4:] if isinstance(o, Imm)]
    in_registers = isinstance(i.operands[1], Vector)
    num_scales = 0 if result == "s32" else 2
    # Only 16-bit elements may be MN-major in shared memory; registers always hold rows.
    num_transposes = 0 if BITS[a] != 16 else 2 - in_registers
    if len(flags) != len(i.operands) - 4 or len(flags) != num_scales + num_transposes:
        return None
    scales, transposes = flags[:num_scales], flags[num_scales:]
    if not {*scales} <= {1, -1} or not {*transposes} <= {0, 1}:
        return None
    scale_a, scale_b = scales or (1, 1)
    of_a, of_b = [0] * (2 - num_transposes) + transposes
    return Product(n, result, a, b, scale_a, scale_b, bool(of_a), bool(of_b), saturates)


EMITTERS: Emitters = {
    "wgmma.fence": (emit_wgmma, {0}),
    "wgmma.commit_group": (emit_wgmma, {0}),
    "wgmma.wait_group": (emit_wgmma, {1}),
    "wgmma.mma_async": (emit_wgmma, set(range(4, 10))),
}
