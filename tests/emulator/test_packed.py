"""Packed integers, saturation, truncation and carries against plain Python."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from machine import TIERS
from reference import RNG, Reference, check
from snippets import ptx

from gemmlab.compile.nvrtc import compile_cuda
from gemmlab.emulator import run
from gemmlab.errors import UnsupportedInstructionError


def signed(bits: int, x: int) -> int:
    return (x & (1 << bits) - 1 ^ 1 << bits - 1) - (1 << bits - 1)


def parts(x: int, bits: int, is_signed: bool = False) -> list[int]:
    """Return the numbers packed in a 32-bit register, lowest first."""
    found = [x >> at & (1 << bits) - 1 for at in range(0, 32, bits)]
    return [signed(bits, part) for part in found] if is_signed else found


def packed(numbers: Iterable[int], bits: int) -> int:
    return sum((x & (1 << bits) - 1) << bits * k for k, x in enumerate(numbers))


def permute(mode: str) -> Reference:
    def reference(a: int, b: int, c: int) -> int:
        low = c & 3
        picked = {
            "f4e": [low + k for k in range(4)],
            "b4e": [low - k & 7 for k in range(4)],
            "rc8": [low] * 4,
            "ecl": [max(k, low) for k in range(4)],
            "ecr": [min(k, low) for k in range(4)],
            "rc16": [2 * (low & 1), 2 * (low & 1) + 1] * 2,
        }[mode]
        return packed([(a | b << 32) >> 8 * k & 255 for k in picked], 8)

    return reference


def dot(first: int, width: int, signs: tuple[bool, bool]) -> Reference:
    """Return dp4a, or dp2a from byte `first` of b on. width: bits of the parts of a."""

    def reference(a: int, b: int, c: int) -> int:
        pairs = zip(parts(a, width, signs[0]), parts(b, 8, signs[1])[first:], strict=False)
        return c + sum(x * y for x, y in pairs)

    return reference


def mul24(a: int, b: int, is_signed: bool) -> int:
    cut = (lambda x: signed(24, x)) if is_signed else (lambda x: x & 0xFFFFFF)
    return cut(a) * cut(b)


def mask_of(start: int, width: int, mode: str) -> int:
    start, width = (start & 31, width & 31) if mode == "wrap" else (start, width)
    return (1 << min(width, 32)) - 1 << min(start, 32) & 0xFFFFFFFF


def resize(a: int, width: int, mode: str, is_signed: bool) -> int:
    width = width & 31 if mode == "wrap" else min(width, 32)
    low = a & (1 << width) - 1
    return signed(width, low) if is_signed and width else low


def find_set(mask: int, base: int, offset: int) -> int:
    if offset == 0:
        return base if base < 32 and mask >> base & 1 else -1
    if base >= 32:
        return -1
    order = range(base, 32) if offset > 0 else range(base, -1, -1)
    found = [k for k in order if mask >> k & 1]
    return found[abs(offset) - 1] if len(found) >= abs(offset) else -1


def pack(kind: str, bits: int) -> Reference:
    def reference(a: int, b: int, c: int = 0) -> int:
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind == "s" else (0, (1 << bits) - 1)
        return packed([max(low, min(high, x)) for x in (b, a)], bits) | c << 2 * bits

    return reference


def rows_of_parts() -> list[tuple[str, str, Reference]]:
    """Return instructions on packed, saturated or truncated integers."""
    low, high = -(2**31), 2**31 - 1
    three, four = "u32 u32 u32", "u32 u32 u32 u32"
    rows: list[tuple[str, str, Reference]] = [
        (f"prmt.b32.{mode}", four, permute(mode))
        for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
    ]
    rows += [
        ("add.sat.s32", "s32 s32 s32", lambda a, b: max(low, min(high, a + b))),
        ("sub.sat.s32", "s32 s32 s32", lambda a, b: max(low, min(high, a - b))),
        (
            "mad.hi.sat.s32",
            "s32 s32 s32 s32",
            lambda a, b, c: max(low, min(high, (a * b >> 32) + c)),
        ),
        (
            "mad24.hi.sat.s32",
            "s32 s32 s32 s32",
            lambda a, b, c: max(low, min(high, (mul24(a, b, True) >> 16) + c)),
        ),
        ("min.s32.relu", "s32 s32 s32", lambda a, b: max(0, min(a, b))),
        ("max.relu.s32", "s32 s32 s32", lambda a, b: max(0, a, b)),
        ("fns.b32", "u32 u32 u32 s32", find_set),
        ("slct.u32.s32", "u32 u32 u32 s32", lambda a, b, c: a if c >= 0 else b),
    ]
    for a in "us":
        rows += [
            (f"mul24.lo.{a}32", f"{a}32 {a}32 {a}32", lambda x, y, s=a == "s": mul24(x, y, s)),
            (
                f"mul24.hi.{a}32",
                f"{a}32 {a}32 {a}32",
                lambda x, y, s=a == "s": mul24(x, y, s) >> 16,
            ),
            (
                f"mad24.lo.{a}32",
                f"{a}32 {a}32 {a}32 {a}32",
                lambda x, y, z, s=a == "s": mul24(x, y, s) + z,
            ),
        ]
        for b in "us":
            signs, types = (a == "s", b == "s"), f"{a}32.{b}32"
            rows.append((f"dp4a.{types}", four, dot(0, 8, signs)))
            rows.append((f"dp2a.lo.{types}", four, dot(0, 16, signs)))
            rows.append((f"dp2a.hi.{types}", four, dot(2, 16, signs)))
        for count in (2, 4):
            bits = 32 // count

            def sizes(x: int, y: int, n: int = bits, s: bool = a == "s") -> list[int]:
                pairs = zip(parts(x, n, s), parts(y, n, s), strict=True)
                return [abs(p - q) for p, q in pairs]

            name = f"vabsdiff{count}.u32.{a}32.{a}32"
            rows.append((name, four, lambda x, y, z, f=sizes, n=bits: packed(f(x, y), n)))
            rows.append((f"{name}.add", four, lambda x, y, z, f=sizes: sum(f(x, y)) + z))
        for op, f in (("add", int.__add__), ("min", min), ("max", max)):

            def on_halves(x: int, y: int, f: Reference = f, s: bool = a == "s") -> int:
                return packed(map(f, parts(x, 16, s), parts(y, 16, s)), 16)

            rows.append((f"{op}.{a}16x2", three, on_halves))
    rows.append(
        (
            "max.s16x2.relu",
            three,
            lambda x, y: packed(map(max, parts(x, 16, True), parts(y, 16, True), [0, 0]), 16),
        )
    )
    for mode in ("clamp", "wrap"):
        rows.append((f"bmsk.{mode}.b32", three, lambda a, b, m=mode: mask_of(a, b, m)))
        rows += [
            (
                f"szext.{mode}.{t}",
                f"{t} {t} u32",
                lambda a, b, m=mode, s=t == "s32": resize(a, b, m, s),
            )
            for t in ("u32", "s32")
        ]
    rows += [
        (f"cvt.pack.sat.{kind}{bits}.s32.b32", "u32 s32 s32 u32", pack(kind, bits))
        for kind in "us"
        for bits in (2, 4, 8)
    ]
    rows += [(f"cvt.pack.sat.{kind}16.s32", "u32 s32 s32", pack(kind, 16)) for kind in "us"]
    return rows


@pytest.mark.parametrize(("opcode", "signature", "reference"), rows_of_parts())
def test_parts_of_registers(compute, opcode, signature, reference):
    check(compute, opcode, signature, reference)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("type_", ["u32", "s64"])
@pytest.mark.parametrize(
    ("low", "high", "reference"),
    [
        ("add.cc.T %x, %a, %c", "addc.cc.T %y, %b, %d", lambda a, b: a + b),
        ("sub.cc.T %x, %a, %c", "subc.cc.T %y, %b, %d", lambda a, b: a - b),
        ("mad.lo.cc.uN %x, %a, %c, %b", "madc.hi.cc.uN %y, %a, %c, %d", None),
    ],
)
def test_carries(type_, low, high, reference, tier):
    """Double-width integers from two registers: a + b·2ⁿ and c + d·2ⁿ."""
    bits, lanes = int(type_[1:]), 96
    dtype = np.dtype(f"u{bits // 8}")
    inputs = RNG.integers(0, 2**bits - 1, (4, lanes), dtype, endpoint=True)
    inputs[:, :60] = RNG.choice(np.array([0, 1, 2**bits - 1], dtype), (4, 60))
    outputs = np.zeros((3, lanes), dtype)
    loads = "".join(
        f"ld.global.b{bits} %{name}, [%q2+{k * lanes * dtype.itemsize}];"
        for k, name in enumerate("abcd")
    )
    stores = "".join(
        f"st.global.b{bits} [%q3+{k * lanes * dtype.itemsize}], %{name};"
        for k, name in enumerate("xyz")
    )
    code = f"{low}; {high};".replace("T", type_).replace("N", str(bits))
    text = ptx(
        f".reg .b{bits} %a, %b, %c, %d, %x, %y, %z; mov.u32 %r0, %tid.x;"
        "ld.param.u64 %q0, [p0]; ld.param.u64 %q1, [p1];"
        f"mad.wide.u32 %q2, %r0, {dtype.itemsize}, %q0;"
        f"mad.wide.u32 %q3, %r0, {dtype.itemsize}, %q1;"
        f"{loads} {code} addc.{type_} %z, 0, 0; {stores} ret;",
        ["u64", "u64"],
    )
    run(text, "k", (1, 1, 1), (lanes, 1, 1), [inputs, outputs], tier=tier)
    for lane in range(lanes):
        a, b, c, d = inputs[:, lane].tolist()
        first, second = a | b << bits, c | d << bits
        exact = a * c + (b | d << bits) if reference is None else reference(first, second)
        wanted = exact % (1 << 2 * bits)
        carry = int((exact != wanted) != low.startswith("sub"))
        assert outputs[:, lane].tolist() == [wanted % (1 << bits), wanted >> bits, carry]


DIVISION = """
extern "C" __global__ void divide(const ulonglong2* x, ulonglong2* y) {
    auto number = [&](int k) { return (unsigned __int128)x[k].y << 64 | x[k].x; };
    unsigned __int128 a = number(2 * threadIdx.x), b = number(2 * threadIdx.x + 1);
    unsigned __int128 found[] = {a / b, a % b, (unsigned __int128)((__int128)a / (__int128)b)};
    for (int k = 0; k < 3; k++) {
        unsigned long long low = found[k], high = found[k] >> 64;
        y[3 * threadIdx.x + k] = {low, high};
    }
}
"""


@pytest.mark.parametrize("tier", ["numpy", "native"])
def test_divisions_of_128_bits(tier):
    """This code reads the carry of a subtraction. Verified on an H200."""
    x = RNG.integers(0, 1 << 64, (32, 2, 2), np.uint64)
    x[::2, 1, 1] = 0  # half of the divisors have at most 64 bits
    x[::4, 1, 0] >>= np.uint64(40)
    y = np.zeros((32, 3, 2), np.uint64)
    run(compile_cuda(DIVISION).ptx, "divide", (1, 1, 1), (32, 1, 1), [x, y], tier=tier)
    for pair, found in zip(x.tolist(), y.tolist(), strict=True):
        a, b = (low | high << 64 for low, high in pair)
        p, q = signed(128, a), signed(128, b)
        toward_zero = abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)
        wanted = [a // b, a % b, toward_zero % (1 << 128)]
        assert [low | high << 64 for low, high in found] == wanted


def test_forms_that_ptx_does_not_have():
    for line in ("dp4a.u32.f32", "dp2a.u32.u32", "slct.u32.u32", "vabsdiff4.u32.u32.u32.sat"):
        with pytest.raises(UnsupportedInstructionError, match=r"unknown|not implement"):
            run(ptx(f"{line} %r1, %r2, %r3, %r4; ret;"), "k", (1, 1, 1), (32, 1, 1), [])
