"""Integer instructions, moves, narrow and guarded instructions against plain Python, bit for
bit."""

from __future__ import annotations

import numpy as np
import pytest
from machine import sample
from reference import (
    RNG,
    Reference,
    check,
    mul,
    values,
)

# Integers


def quotient(a: int, b: int) -> int | None:
    return None if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int) -> int | None:
    whole = quotient(a, b)
    return None if whole is None else a - b * whole


def leading(bits: int, shift: bool) -> Reference:
    def reference(a: int) -> int:
        size = (~a if a < 0 else a).bit_length()
        return -1 if size == 0 else bits - size if shift else size - 1

    return reference


def as_interpreted(number: int, bits: int) -> int:
    """Return a position or length as machine code and ptxas's constant folding interpret it."""
    return number & 255 if bits == 32 else min(number, 255)


def extract(bits: int, signed: bool) -> Reference:
    def reference(a: int, position: int, length: int) -> int:
        a, position, length = (
            a % (1 << bits),
            as_interpreted(position, bits),
            as_interpreted(length, bits),
        )
        if length == 0:
            return 0
        top = min(position + length - 1, bits - 1)
        field = (a >> position) & ((1 << length) - 1)
        if signed and a >> top & 1:
            field |= -1 << length
            field |= -1 << max(top - position + 1, 0)
        return field

    return reference


def insert(bits: int) -> Reference:
    def reference(a: int, b: int, position: int, length: int) -> int:
        position, length = as_interpreted(position, bits), as_interpreted(length, bits)
        mask = ((1 << length) - 1) << position
        return b & ~mask | a << position & mask

    return reference


def permute(a: int, b: int, selector: int) -> int:
    source = (b << 32 | a).to_bytes(8, "little")
    result = 0
    for k in range(4):
        nibble = selector >> 4 * k & 15
        byte = source[nibble & 7]
        result |= (255 * (byte >> 7) if nibble & 8 else byte) << 8 * k
    return result


def funnel(side: str, wrap: bool) -> Reference:
    def reference(low: int, high: int, count: int) -> int:
        count = count & 31 if wrap else min(count, 32)
        both = high << 32 | low
        return both << count >> 32 if side == "l" else both >> count

    return reference


def integer_rows() -> list[tuple[str, str, Reference]]:
    rows: list[tuple[str, str, Reference]] = []
    for t in ("u16", "s16", "u32", "s32", "u64", "s64"):
        bits = int(t[1:])
        two, three = f"{t} {t} {t}", f"{t} {t} {t} {t}"
        rows += [
            (f"add.{t}", two, lambda a, b: a + b),
            (f"sub.{t}", two, lambda a, b: a - b),
            (f"mul.lo.{t}", two, lambda a, b: a * b),
            (f"mul.hi.{t}", two, lambda a, b, n=bits: a * b >> n),
            (f"mad.lo.{t}", three, lambda a, b, c: a * b + c),
            (f"mad.hi.{t}", three, lambda a, b, c, n=bits: (a * b >> n) + c),
            (f"sad.{t}", three, lambda a, b, c: abs(a - b) + c),
            (f"div.{t}", two, quotient),
            (f"rem.{t}", two, remainder),
            (f"min.{t}", two, min),
            (f"max.{t}", two, max),
            (f"shr.{t}", f"{t} {t} u32", lambda a, n: a >> n),
            (
                f"setp.ne.s32 %p1, %c, 0; selp.{t}",
                f"{t} {t} {t} s32",
                lambda a, b, c: a if c else b,
            ),
        ]
        if bits < 64:
            wide = f"{t[0]}{2 * bits}"
            rows.append((f"mul.wide.{t}", f"{wide} {t} {t}", lambda a, b: a * b))
            rows.append((f"mad.wide.{t}", f"{wide} {t} {t} {wide}", lambda a, b, c: a * b + c))
        if t[0] == "s":
            rows.append((f"abs.{t}", f"{t} {t}", abs))
            rows.append((f"neg.{t}", f"{t} {t}", lambda a: -a))
    for t in ("b16", "b32", "b64"):
        rows += [
            (f"and.{t}", f"{t} {t} {t}", lambda a, b: a & b),
            (f"or.{t}", f"{t} {t} {t}", lambda a, b: a | b),
            (f"xor.{t}", f"{t} {t} {t}", lambda a, b: a ^ b),
            (f"not.{t}", f"{t} {t}", lambda a: ~a),
            (f"cnot.{t}", f"{t} {t}", lambda a: a == 0),
            (f"shl.{t}", f"{t} {t} u32", lambda a, n: a << min(n, 64)),
        ]
    for t in ("b32", "b64"):
        bits = int(t[1:])
        rows += [
            (f"popc.{t}", f"u32 {t}", int.bit_count),
            (f"clz.{t}", f"u32 {t}", lambda a, n=bits: n - a.bit_length()),
            (f"brev.{t}", f"{t} {t}", lambda a, n=bits: int(f"{a:0{n}b}"[::-1], 2)),
            (f"bfi.{t}", f"{t} {t} {t} u32 u32", insert(bits)),
        ]
    for t in ("u32", "s32", "u64", "s64"):
        bits = int(t[1:])
        rows += [
            (f"bfe.{t}", f"{t} {t} u32 u32", extract(bits, t[0] == "s")),
            (f"bfind.{t}", f"u32 {t}", leading(bits, False)),
            (f"bfind.shiftamt.{t}", f"u32 {t}", leading(bits, True)),
        ]
    rows += [
        (f"shf.{side}.{mode}.b32", "b32 b32 b32 u32", funnel(side, mode == "wrap"))
        for side in "lr"
        for mode in ("wrap", "clamp")
    ]
    rows.append(("prmt.b32", "b32 b32 b32 b32", permute))
    return rows


@pytest.mark.parametrize(("opcode", "signature", "reference"), sample(integer_rows()))
def test_integers(compute, opcode, signature, reference):
    check(compute, opcode, signature, reference)


@pytest.mark.parametrize("table", [0x00, 0x96, 0xE8, 0xCA, 0xFF, 0x1B])
def test_lop3(compute, table):
    def reference(a: int, b: int, c: int) -> int:
        pick = (
            table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1 for i in range(32)
        )
        return sum(bit << i for i, bit in enumerate(pick))

    check(compute, "lop3.b32", "b32 b32 b32 b32", reference, f"%a, %b, %c, {table}")


@pytest.mark.parametrize(
    ("opcode", "signature", "operands", "reference"),
    [
        ("add.u32", "u32 u32", "%a, -1", lambda a: a - 1),
        ("add.s64", "s64 s64", "%a, -4294967297", lambda a: a - 4294967297),
        ("mul.wide.u32", "u64 u32", "%a, -8", lambda a: a * (2**32 - 8)),
        ("mul.wide.s32", "s64 s32", "%a, -8", lambda a: a * -8),
        ("mad.wide.u16", "u32 u16", "%a, -1, -1", lambda a: a * 65535 - 1),
        ("max.u16", "u16 u16", "%a, -2", lambda a: max(a, 65534)),
        ("and.b64", "b64 b64", "%a, 0xFFFFFFFFFFFFFFF0", lambda a: a & ~15),
        ("and.b32", "b32 b32", "%a, 0x80000000U", lambda a: a & 1 << 31),
        ("shr.u64", "u64 u64", "%a, 0b101", lambda a: a >> 5),
        ("or.b32", "b32 b32", "%a, 010", lambda a: a | 8),
        ("and.pred", "pred pred", "%a, 1", lambda a: a),
        ("xor.pred", "pred pred", "%a, -1", lambda a: not a),
        ("not.pred", "pred pred", "%a", lambda a: not a),
        ("mul.f32", "f32 f32", "%a, 0f40000000", lambda a: mul("f32")(a, 2.0)),
        ("mul.f32", "f32 f32", "%a, 2.0", lambda a: mul("f32")(a, 2.0)),
        ("mul.f64", "f64 f64", "%a, 0d3FE0000000000000", lambda a: a / 2),
        ("mov.b32", "b32 b32", "0f3F800000", lambda a: 0x3F800000),
    ],
)
def test_immediates(compute, opcode, signature, operands, reference):
    if "pred" in signature:
        opcode = f"setp.ne.u32 %p1, %a, 0; {opcode}"
        operands, signature = operands.replace("%a", "%p1"), "pred u32"
        inner = reference

        def reference(a):
            return inner(a != 0)

    check(compute, opcode, signature, reference, operands)


# Moves, sub-word access, guards


@pytest.mark.parametrize(
    ("whole", "part", "count"), [("b32", "b16", 2), ("b64", "b32", 2), ("b64", "b16", 4)]
)
def test_mov_packs_and_unpacks(compute, whole, part, count):
    bits = int(part[1:])
    x = values(whole)
    names = [f"%s{i}" for i in range(count)]
    body = f".reg .{part} %s<{count}>; mov.{whole} {{{', '.join(names)}}}, %a;"
    body += f"mov.{whole} %x, {{{', '.join(reversed(names))}}};"
    [got] = compute(body, [(whole, x)], [whole])
    pieces = [[v >> bits * i & (1 << bits) - 1 for i in range(count)] for v in x.tolist()]
    wanted = [sum(p << bits * i for i, p in enumerate(reversed(row))) for row in pieces]
    assert got.tolist() == wanted


def test_mov_discards_into_the_sink(compute):
    x = values("b64")
    [got] = compute("mov.b64 {_, %x}, %a;", [("b64", x)], ["b32"])
    np.testing.assert_array_equal(got, (x >> np.uint64(32)).astype("u4"))


@pytest.mark.parametrize("register", ["b16", "b32", "b64"])
@pytest.mark.parametrize("type_", ["u8", "s8", "b8", "u16", "s16", "b16"])
def test_narrow_loads_extend_and_narrow_stores_truncate(launch, register, type_):
    width = int(type_[1:]) // 8
    kind = np.dtype(f"{'i' if type_[0] == 's' else 'u'}{width}")
    source = RNG.integers(0, 256, 32 * width, np.uint8).view(kind)
    wide, copied = np.zeros(32, f"u{int(register[1:]) // 8}"), np.zeros(32, kind)
    launch(
        f".reg .{register} %v; mad.wide.u32 %q3, %r0, {width}, %q0;"
        f"mad.wide.u32 %q4, %r0, {wide.itemsize}, %q1; mad.wide.u32 %q5, %r0, {width}, %q2;"
        f"ld.global.{type_} %v, [%q3]; st.global.{register} [%q4], %v;"
        f"st.global.{type_} [%q5], %v;",
        [source, wide, copied],
    )
    np.testing.assert_array_equal(wide, source.astype(wide.dtype))
    np.testing.assert_array_equal(copied, source)


@pytest.mark.parametrize(
    ("count", "type_"),
    [(2, "b8"), (4, "u8"), (2, "b16"), (4, "u16"), (2, "f32"), (4, "b32"), (2, "b64"), (2, "f64")],
)
@pytest.mark.parametrize("space", ["global", "shared", "local"])
@pytest.mark.parametrize("guard", ["", "@%p1 "])
def test_vector_access_round_trip(launch, count, type_, space, guard):
    width = int(type_[1:]) // 8
    bytes_ = count * width
    register = {1: "b16", 2: "b16", 4: "b32", 8: "b64"}[width] if type_[0] != "f" else type_
    source = RNG.integers(1, 100, 32 * bytes_, np.uint8)
    result = np.zeros_like(source)
    names = ", ".join(f"%v{i}" for i in range(count))
    there = {"global": "%q4", "shared": "%q5", "local": "mine"}[space]
    launch(
        f".reg .{register} %v<4>; .shared .align 16 .b8 all[512]; .local .align 16 .b8 mine[16];"
        f"mad.wide.u32 %q3, %r0, {bytes_}, %q0; mad.wide.u32 %q4, %r0, {bytes_}, %q1;"
        f"mov.u64 %q5, all; mad.wide.u32 %q5, %r0, {bytes_}, %q5; setp.lt.u32 %p1, %r0, 20;"
        f"{guard}ld.global.v{count}.{type_} {{{names}}}, [%q3];"
        f"{guard}st.{space}.v{count}.{type_} [{there}], {{{names}}};"
        f"{guard}ld.{space}.v{count}.{type_} {{{names}}}, [{there}];"
        f"st.global.v{count}.{type_} [%q4], {{{names}}};",
        [source, result],
    )
    if guard:
        source[20 * bytes_ :] = 0
    np.testing.assert_array_equal(result, source)


@pytest.mark.parametrize("guard", ["@%p1", "@!%p1"])
@pytest.mark.parametrize("uniform", [False, True])
def test_guards_keep_the_old_value(compute, guard, uniform):
    a = values("s32")
    [got] = compute(
        f"mov.u32 %x, 7; setp.gt.s32 %p1, %a, 1; {guard} add.s32 %x, %a, 3;",
        [("s32", a)],
        ["u32"],
        uniform,
    )
    taken = (a > 1) == (guard == "@%p1")
    wanted = np.where(taken, a.astype("u4") + np.uint32(3), np.uint32(7))
    np.testing.assert_array_equal(got, np.full(32, wanted[0]) if uniform else wanted)
