"""Matrix instructions on the native tier yield the bits of the NumPy tier."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from machine import needs_native
from snippets import ptx

from gemmlab.emulator import run
from gemmlab.emulator.native.code import code_of
from gemmlab.emulator.native.products import Product
from gemmlab.emulator.tensor_cores.matrices import BITS, DEPTHS
from gemmlab.emulator.translation.emit.fragments import SHAPES, SUMS
from gemmlab.emulator.translation.translate import translate

pytestmark = needs_native

# Each warp has numbers of one kind. Products of full significands use all bits of a sum.
KINDS = ("small", "bits", "wide", "specials", "zeros", "large", "full", "negative")
WARPS = len(KINDS)


def both(text: str, args: list[Any], block: int, smem: int = 0) -> None:
    """Run on both tiers, natively without a fallback, and compare results and counters."""
    copies, counters = [[x.copy() for x in args] for _ in range(2)], []
    for tier, given in zip(("numpy", "native"), copies, strict=True):
        result = run(text, "k", (2, 1, 1), (block, 1, 1), given, smem, tier=tier)
        counters.append(result.counters)
    for x, y in zip(*copies, strict=True):
        np.testing.assert_array_equal(x, y)
    assert counters[0] == counters[1]
    assert not code_of(translate(text), block % 32 == 0).metadata.fallbacks


def numbers(rng: np.random.Generator, kind: str, type_: str, count: int) -> np.ndarray:
    """Return elements of a type as bits in 32-bit or 64-bit words."""
    bits = BITS[type_]
    word = np.dtype("u8" if bits == 64 else "u4")
    raw = rng.integers(0, 1 << word.itemsize * 8, count, word, endpoint=False)
    if type_[0] in "su" or kind == "bits":
        return raw
    wide = {"wide": 12, "specials": 3, "large": 3}.get(kind, 1)
    values = rng.standard_normal((count, 2)) * 2.0 ** rng.integers(-wide, wide + 1, (count, 2))
    if kind == "zeros":
        values *= rng.random(values.shape) < 0.5
    if kind == "specials":
        odd = rng.choice([np.inf, -np.inf, np.nan, 0.0, -0.0], values.shape)
        values = np.where(rng.random(values.shape) < 0.03, odd, values)
    if kind in ("full", "negative"):
        digits = {"f16": 11, "bf16": 8, "tf32": 11}.get(type_, 24)
        values = np.full(values.shape, 2 - 2.0 ** (1 - digits))
        values *= -1 if kind == "negative" and type_ != "f32" and rng.random() < 0.5 else 1
    if kind == "large":
        values *= 2.0**14 if type_ == "f16" else 2.0**120 if type_ != "f32" else 2.0**126
    with np.errstate(over="ignore"):
        if bits == 64:
            return values[:, 0].copy().view("u8")
        if bits == 32:
            return values[:, 0].astype("f4").view("u4")
        if type_ == "f16":
            return values.astype("f2").view("u4")[:, 0]
        return (values.astype("f4").view("u4") >> 16).astype("u2").reshape(-1, 2).view("u4")[:, 0]


def kernel(opcode: str, types: tuple[str, str, str, str], counts: list[int]) -> str:
    """Each thread loads contiguous registers of A, B and C, and stores those of D."""
    kinds = {"f32": "f32", "f64": "f64"}
    kind = [kinds.get(t, "b32") for t in types]
    nbytes = 8 if kind[0] == "f64" else 4
    body = [".reg .b32 %tid, %x; .reg .b64 %in, %out; mov.u32 %tid, %tid.x; mov.u32 %x, %ctaid.x;"]
    body.append(f"mad.lo.u32 %tid, %x, {32 * WARPS // 2}, %tid;")
    body += [f".reg .{k} %{n}<{c}>;" for n, k, c in zip("dabc", kind, counts, strict=True)]
    per_thread = nbytes * sum(counts[1:])
    body.append(f"ld.param.u64 %in, [p0]; mad.wide.u32 %in, %tid, {per_thread}, %in;")
    body.append(f"ld.param.u64 %out, [p1]; mad.wide.u32 %out, %tid, {nbytes * counts[0]}, %out;")
    at = 0
    for name, type_, count in zip("abc", kind[1:], counts[1:], strict=True):
        for k in range(count):
            body.append(f"ld.global.{type_} %{name}{k}, [%in+{at}];")
            at += nbytes
    lists = [
        "{" + ", ".join(f"%{n}{k}" for k in range(c)) + "}"
        for n, c in zip("dabc", counts, strict=True)
    ]
    body.append(f"{opcode} {', '.join(lists)};")
    body += [f"st.global.{kind[0]} [%out+{nbytes * k}], %d{k};" for k in range(counts[0])]
    return ptx("\n".join([*body, "ret;"]), ["u64"] * 2)


def compare(opcode: str, types: tuple[str, str, str, str], counts: list[int]) -> None:
    rng = np.random.default_rng(len(opcode))
    word = "u8" if types[0] == "f64" else "u4"
    given = []
    for kind in KINDS:
        parts = [
            numbers(rng, kind, t, 32 * n).reshape(32, n).astype(word)
            for t, n in zip(types[1:], counts[1:], strict=True)
        ]
        given.append(np.concatenate(parts, axis=1))
    out = np.zeros((32 * WARPS, counts[0]), word)
    both(kernel(opcode, types, counts), [np.stack(given), out], 32 * WARPS // 2)


MMA = [
    (m, k, (d, a, a, d), saturate)
    for a, depths in DEPTHS.items()
    for m, k in sorted(depths)
    for d in {"f16": ("f16", "f32"), "f64": ("f64",)}.get(a, ("s32",) if a[0] in "su" else ("f32",))
    for saturate in ((False, True) if a[0] in "su" else (False,))
]


@pytest.mark.parametrize(("m", "k", "types", "saturate"), MMA)
@pytest.mark.slow
def test_mma(m: int, k: int, types: tuple[str, str, str, str], saturate: bool) -> None:
    product = Product(m, 8, k, *types, saturates=saturate)
    counts = [product.registers(x) for x in "dabc"]
    word = ".satfinite" if saturate else ""
    opcode = f"mma.sync.aligned.m{m}n8k{k}.row.col{word}.{'.'.join(types)}"
    compare(opcode, types, counts)


WMMA = [
    (shape, (d, a, a, c))
    for shape, kinds in SHAPES.items()
    for a in sorted(kinds)
    for d in SUMS.get(a, ("f32",))
    for c in SUMS.get(a, ("f32",))
    # LLVM takes a second for each. The types of sums may differ, and bf16 has the places of f16:
    # one shape shows both.
    if shape == (16, 16, 16) or (a != "bf16" and c == d)
]


@pytest.mark.parametrize(("shape", "types"), WMMA)
@pytest.mark.slow
def test_wmma(shape: tuple[int, int, int], types: tuple[str, str, str, str]) -> None:
    (m, n, k), (d, a, _, c) = shape, types
    product = Product(m, n, k, *types, wmma="row.col")
    counts = [product.registers(x) for x in "dabc"]
    if a == "f16":
        counts[1:3] = 8, 8
        name = f"{d}.{c}"
    else:
        name = ".".join(types)
    rounding = ".rn" if a == "f64" else ""
    opcode = f"wmma.mma.sync.aligned.row.col.m{m}n{n}k{k}{rounding}.{name}"
    compare(opcode, types, counts)


def test_movmatrix() -> None:
    body = """ld.param.u64 %q0, [p0]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;
        mad.lo.u32 %r1, %r2, 64, %r1; mad.wide.u32 %q1, %r1, 4, %q0; ld.global.u32 %r2, [%q1];
        movmatrix.sync.aligned.m8n8.trans.b16 %r3, %r2; st.global.u32 [%q1], %r3; ret;"""
    both(ptx(body, ["u64"]), [np.random.default_rng(1).integers(0, 1 << 32, 128, np.uint32)], 64)


ROWS: dict[str, Any] = {
    "in order": lambda lane: lane,
    "padded": lambda lane: lane * 9 // 8,
    "swizzled": lambda lane: lane ^ lane >> 3,
    "one": lambda lane: lane * 0 + 3,
    "apart": lambda lane: lane * 8 % 64,
}


@pytest.mark.parametrize("guard", ["", "@%p1 "])
@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("rows", ROWS)
def test_matrices_in_shared_memory(rows: str, count: int, trans: str, guard: str) -> None:
    """Load matrices, store them elsewhere, and compare all of shared memory; guarded per warp."""
    names = "{" + ", ".join(f"%r{10 + k}" for k in range(count)) + "}"
    body = f""".shared .align 128 .b8 s[4096]; ld.param.u64 %q0, [p0]; ld.param.u64 %q1, [p1];
        mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; setp.lt.u32 %p1, %r1, 32;
        mad.wide.u32 %q2, %r1, 4, %q0; ld.global.u32 %r3, [%q2]; mov.u32 %r4, s;
        mov.u32 %r5, %r1; FILL: mad.lo.u32 %r6, %r5, 4, %r4; mul.lo.u32 %r7, %r5, 40503;
        st.shared.u32 [%r6], %r7; add.u32 %r5, %r5, 64; setp.lt.u32 %p2, %r5, 1024; @%p2 bra FILL;
        mov.u32 %r10, 0; mov.u32 %r11, 1; mov.u32 %r12, 2; mov.u32 %r13, 3; bar.sync 0;
        mad.lo.u32 %r8, %r3, 16, %r4; mov.u32 %r9, 0;
        AGAIN: {guard}ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {names}, [%r8+16];
        bar.sync 0;
        {guard}stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%r8+2048], {names};
        add.u32 %r8, %r8, 32; add.u32 %r9, %r9, 1; setp.lt.u32 %p2, %r9, 3; @%p2 bra AGAIN;
        bar.sync 0; mad.wide.u32 %q1, %r2, 4096, %q1; mov.u32 %r5, %r1;
        SHOW: mad.lo.u32 %r6, %r5, 4, %r4; ld.shared.u32 %r7, [%r6]; mad.wide.u32 %q2, %r5, 4, %q1;
        st.global.u32 [%q2], %r7; add.u32 %r5, %r5, 64; setp.lt.u32 %p2, %r5, 1024; @%p2 bra SHOW;
        ret;"""
    where, out = ROWS[rows](np.arange(64) % 32).astype(np.uint32), np.zeros(2048, np.uint32)
    if rows != "one":
        where[32:] += 48 - 8 * (rows == "apart")
    both(ptx(body, ["u64"] * 2), [where % 96, out], 64)
