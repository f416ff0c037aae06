"""Atomic operations on the native tier against the NumPy tier: bits and counters."""

from __future__ import annotations

import numpy as np
import pytest
from both_tiers import both
from machine import needs_native
from snippets import ptx

from gemmlab.emulator.memory import atomics

RNG = np.random.default_rng(11)
pytestmark = needs_native

ATOMICS = [
    (name, type_)
    for name, rows in atomics.OPERATIONS.items()
    for types, _ in rows
    for type_ in types
    if type_ != "b16"
]


@pytest.mark.parametrize("space", ["global", "shared", ""])
@pytest.mark.parametrize("meeting", [1, 7, 64])
def test_atomics(space: str, meeting: int) -> None:
    """Lanes share `meeting` cells. Each instruction has its own cells, because the order of two
    consecutive ones is unspecified for other warps."""
    threads, nbytes = 96, 64 * 8
    memory = RNG.integers(0, 20, 2 * 64 * len(ATOMICS)).astype(np.uint64)
    where = RNG.integers(0, meeting, threads).astype(np.uint32)
    old = np.zeros(threads * len(ATOMICS), np.uint64)
    body = [
        f".shared .align 8 .b8 s[{memory.nbytes}]; mov.u32 %r0, %tid.x;",
        "ld.param.u64 %q0, [p0]; ld.param.u64 %q1, [p1]; ld.param.u64 %q2, [p2];",
        "mad.wide.u32 %q3, %r0, 4, %q1; ld.global.u32 %r1, [%q3]; mad.wide.u32 %q5, %r0, 8, %q2;",
        "mov.u64 %q0, s;" if space == "shared" else "",
        "mad.wide.u32 %q4, %r1, 8, %q0; add.u32 %r2, %r0, 3; cvt.u64.u32 %q6, %r2;",
        "cvt.rn.f32.u32 %f1, %r2; cvt.rn.f64.u32 %g1, %r2; setp.lt.u32 %p1, %r0, 50;",
    ]
    for k, (name, type_) in enumerate(ATOMICS):
        wide, real = type_.endswith("64"), type_[0] == "f"
        value = ("%g1" if wide else "%f1") if real else "%q6" if wide else "%r2"
        result = ("%g2" if wide else "%f2") if real else "%q7" if wide else "%r3"
        cells, last = 2 * k * nbytes, f"{'3, ' if name == 'cas' else ''}{value}"
        dot, guard = f".{space}" if space else "", "@%p1 " if k % 3 == 0 else ""
        body.append(f"{guard}atom{dot}.{name}.{type_} {result}, [%q4+{cells}], {last};")
        body.append(f"st.global.b{type_[1:]} [%q5+{k * threads * 8}], {result};")
        if name not in ("exch", "cas"):
            body.append(f"red{dot}.{name}.{type_} [%q4+{cells + nbytes}], {last};")
    both(ptx("\n".join([*body, "ret;"]), ["u64"] * 3), [memory, where, old], block=(96, 1, 1))


@pytest.mark.parametrize("meeting", [1, 5, 64])
@pytest.mark.parametrize("count", [2, 4])
def test_atomics_on_vectors(count: int, meeting: int) -> None:
    """Lanes share `meeting` vectors, and each gets the old value."""
    threads = 96
    cells = RNG.integers(0, 20, 64 * count).astype(np.float32)
    where = RNG.integers(0, meeting, threads).astype(np.uint32)
    old = np.zeros((threads, count), np.float32)
    found = ", ".join(f"%f{k}" for k in range(count))
    given = ", ".join(f"%v{k}" for k in range(count))
    values = "".join(
        f"add.u32 %r2, %r1, {k}; cvt.rn.f32.u32 %v{k}, %r2; mov.f32 %f{k}, 0f00000000;"
        for k in range(count)
    )
    body = f""".reg .f32 %v<4>; ld.param.u64 %q0, [p0]; ld.param.u64 %q1, [p1];
        ld.param.u64 %q2, [p2]; mov.u32 %r1, %tid.x; mad.wide.u32 %q3, %r1, 4, %q1;
        ld.global.u32 %r3, [%q3]; mad.wide.u32 %q4, %r3, {4 * count}, %q0; {values}
        mad.wide.u32 %q5, %r1, {4 * count}, %q2; setp.lt.u32 %p1, %r1, 50;
        @%p1 atom.global.add.v{count}.f32 {{{found}}}, [%q4], {{{given}}};
        st.global.v{count}.f32 [%q5], {{{found}}}; bar.sync 0;
        red.global.add.v{count}.f32 [%q4], {{{given}}}; ret;"""
    both(ptx(body, ["u64"] * 3), [cells, where, old], block=(threads, 1, 1))


@pytest.mark.parametrize("vector", ["", ".v2"])
@pytest.mark.parametrize("type_", atomics.HALVES)
def test_atomics_on_halves(type_: str, vector: str) -> None:
    """Arbitrary bits; each lane gets the old value."""
    threads, count = 64, 2 if vector else 1
    nbytes = 4 if type_.endswith("x2") else 2
    word = f"u{nbytes}"
    cells = RNG.integers(0, 1 << 8 * nbytes, 8 * count, word)
    values = RNG.integers(0, 1 << 8 * nbytes, (threads, count), word)
    old = np.zeros((threads, count), word)
    names = [", ".join(f"%{n}{k}" for k in range(count)) for n in "xy"]
    found, given = (f"{{{x}}}" if vector else x for x in names)
    kind, size = f"b{8 * nbytes}", nbytes * count
    body = f""".reg .{kind} %x<2>, %y<2>; ld.param.u64 %q0, [p0]; ld.param.u64 %q1, [p1];
        ld.param.u64 %q2, [p2]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 7;
        mad.wide.u32 %q3, %r2, {size}, %q0; mad.wide.u32 %q4, %r1, {size}, %q1;
        mad.wide.u32 %q5, %r1, {size}, %q2; ld.global{vector}.{kind} {given}, [%q4];
        atom.global.add.noftz{vector}.{type_} {found}, [%q3], {given};
        st.global{vector}.{kind} [%q5], {found}; ret;"""
    both(ptx(body, ["u64"] * 3), [cells, values, old], block=(threads, 1, 1))
