"""Loads, stores and copies on the native tier against the NumPy tier: bits and counters."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from both_tiers import both
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machine import needs_native
from random_programs import Addresses
from snippets import ptx

RNG = np.random.default_rng(11)
pytestmark = needs_native

PATTERNS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "row": lambda lane: lane,
    "reversed": lambda lane: 127 - lane,
    "stride 2": lambda lane: 2 * lane,
    "stride 33": lambda lane: 33 * lane % 128,
    "one": lambda lane: lane * 0 + 5,
    "halves": lambda lane: lane // 16,
    "quads": lambda lane: lane // 4,
    "swizzled": lambda lane: lane ^ (lane >> 3 & 7),
    "random": lambda lane: RNG.integers(0, 128, lane.size),
}
MASKS = ["all", "none", "half", "random", "one"]
WIDTHS = {
    1: "u8",
    2: "u16",
    4: "u32",
    8: "u64",
    16: "v4.u32",
    12: "v2.u64",
    6: "v2.u32",
    3: "v4.u8",
}
UNIFORM = [12, -8, 1 << 63, (1 << 64) - 4096]


@settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(st.randoms(), st.sampled_from(["uniform", "parted"]), st.sampled_from([32, 40]))
@pytest.mark.slow
def test_addresses(random: Random, way: str, threads: int) -> None:
    """Signed and unsigned 64-bit address arithmetic; no sum may be rounded."""
    x, lane = np.arange(1000, 2000).astype(np.uint32), np.arange(threads)
    out = np.zeros((6, threads), np.uint32)
    addresses, wanted = Addresses(random, threads, x.nbytes, UNIFORM), []
    body = [".reg .u32 %tid; .reg .b64 %base, %to, %u<4>; mov.u32 %tid, %tid.x;"]
    body.append("ld.param.u64 %base, [p0]; ld.param.u64 %to, [p1];")
    body.append("mad.wide.u32 %to, %tid, 4, %to; setp.lt.u32 %p1, %tid, 20;")
    body += [f"ld.param.u64 %u{k}, [p{2 + k}];" for k in range(len(UNIFORM))]
    if way == "parted":
        body.append("@%p1 bra NEXT; add.u64 %to, %to, 0; NEXT:")
    for k in range(len(out)):
        where, first, slope = addresses.address()
        wanted.append(x[(first + slope * lane) // 4])
        body.append(f"{addresses.text()} ld.global.u32 %r1, [{where}];")
        body.append(f"st.global.u32 [%to+{4 * threads * k}], %r1;")
    text = ptx("\n".join([*body, "ret;"]), ["u64"] * (2 + len(UNIFORM)))
    both(text, [x, out, *UNIFORM], block=(threads, 1, 1))
    np.testing.assert_array_equal(out, wanted)


@settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(
    st.sampled_from(["global", "shared", "local", ""]),
    st.sampled_from(sorted(WIDTHS)),
    st.sampled_from(sorted(PATTERNS)),
    st.sampled_from(sorted(PATTERNS)),
    st.sampled_from(MASKS),
    st.sampled_from([32, 64, 70]),
)
@pytest.mark.slow
def test_memory_patterns(
    space: str, width: int, source: str, target: str, mask: str, threads: int
) -> None:
    """Lanes read one address pattern and write another, three times at increasing offsets."""
    type_ = WIDTHS[width]
    nbytes = {"v4.u32": 16, "v2.u64": 16, "v2.u32": 8, "v4.u8": 4}.get(type_, width)
    count = int(type_[1]) if type_[0] == "v" else 1
    lane = np.arange(threads) % 32
    places = [PATTERNS[name](lane) % 128 for name in (source, target)]
    on = {"all": lane >= 0, "none": lane < 0, "half": lane < 16, "one": lane == 9}
    on["random"] = RNG.random(threads) < 0.5
    index = np.stack([*places, on[mask]]).astype(np.uint32)
    data = RNG.integers(0, 256, (128 + 3) * nbytes, np.uint8)
    if target == "random" or threads > 32:  # each location has one writer
        index[1] = np.arange(threads) % 128
    values = [f"%v{k}" for k in range(count)]
    names = values[0] if count == 1 else "{" + ", ".join(values) + "}"
    kind = "b64" if "64" in type_ else "b32" if "32" in type_ else "b16"
    dot, base = (f".{space}", "%q4") if space else ("", "%q4")
    start = {"global": "mov.u64 %q4, %q1;", "": "cvta.shared.u64 %q4, s;"}
    start |= {"shared": "mov.u64 %q4, s;", "local": "mov.u64 %q4, m;"}
    fill = f"""
        mov.u32 %r9, 0; FILL: cvt.u64.u32 %q8, %r9; add.u64 %q9, %q1, %q8;
        ld.global.u8 %h1, [%q9]; add.u64 %q10, {base}, %q8; st{dot}.u8 [%q10], %h1;
        add.u32 %r9, %r9, 1; setp.lt.u32 %p3, %r9, {data.size}; @%p3 bra FILL; bar.sync 0;"""
    body = f"""
        .shared .align 16 .b8 s[{data.size}]; .local .align 16 .b8 m[{data.size}];
        .reg .{kind} %v<4>; ld.param.u64 %q0, [p0]; ld.param.u64 %q1, [p1]; ld.param.u64 %q2, [p2];
        mov.u32 %r0, %tid.x; mad.wide.u32 %q3, %r0, 4, %q0; ld.global.u32 %r1, [%q3];
        ld.global.u32 %r2, [%q3+{4 * threads}]; ld.global.u32 %r3, [%q3+{8 * threads}];
        setp.ne.u32 %p1, %r3, 0; {start[space]} {fill if space != "global" else ""}
        mad.wide.u32 %q5, %r1, {nbytes}, {base}; mad.wide.u32 %q6, %r2, {nbytes}, {base};
        {" ".join(f"mov.{kind} {v}, 0;" for v in values)}
        mov.u32 %r8, 0; mul.wide.u32 %q11, %r0, {3 * nbytes}; add.u64 %q11, %q11, %q2;
        LOOP: @%p1 ld{dot}.{type_} {names}, [%q5]; st.global.{type_} [%q11], {names};
        bar.sync 0; @%p1 st{dot}.{type_} [%q6+{nbytes}], {names}; bar.sync 0;
        add.u64 %q5, %q5, {nbytes}; add.u64 %q6, %q6, {nbytes}; add.u64 %q11, %q11, {nbytes};
        add.u32 %r8, %r8, 1; setp.lt.u32 %p2, %r8, 2; @%p2 bra LOOP; ret;"""
    out = np.zeros(3 * nbytes * threads, np.uint8)
    both(ptx(body, ["u64"] * 3), [index, data, out], block=(threads, 1, 1))


@settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(
    st.sampled_from(["ca 4", "ca 8", "ca 16", "cg 16"]),
    st.sampled_from(sorted(PATTERNS)),
    st.sampled_from(sorted(PATTERNS)),
    st.sampled_from(MASKS),
    st.sampled_from(["all", "some", "partial"]),
    st.sampled_from([32, 64, 70]),
)
@pytest.mark.slow
def test_copies(form: str, source: str, target: str, mask: str, sizes: str, threads: int) -> None:
    """Copy three times at increasing offsets. The second wait leaves the last group pending."""
    level, nbytes = form.split()[0], int(form.split()[1])
    lane = np.arange(threads) % 32
    places = [PATTERNS[name](lane) % 128 for name in (source, target)]
    if threads > 32 or target == "random":  # each location has one writer
        places[1] = np.arange(threads) % 128
    on = {"all": lane >= 0, "none": lane < 0, "half": lane < 16, "one": lane == 9}
    on["random"] = RNG.random(threads) < 0.5
    size = {
        "all": lane * 0 + nbytes,
        "some": lane % 3 // 2 * nbytes,
        "partial": lane % (nbytes + 1),
    }
    index = np.stack([*places, on[mask], size[sizes]]).astype(np.uint32)
    data = RNG.integers(0, 256, (128 + 100) * nbytes, np.uint8)
    step = 33 * nbytes
    body = f"""
        .shared .align 128 .b8 s[{131 * nbytes}]; ld.param.u64 %q0, [p0]; ld.param.u64 %q1, [p1];
        ld.param.u64 %q2, [p2]; mov.u32 %r0, %tid.x; mad.wide.u32 %q3, %r0, 4, %q0;
        ld.global.u32 %r1, [%q3]; ld.global.u32 %r2, [%q3+{4 * threads}];
        ld.global.u32 %r3, [%q3+{8 * threads}]; ld.global.u32 %r4, [%q3+{12 * threads}];
        setp.ne.u32 %p1, %r3, 0; mad.wide.u32 %q5, %r1, {nbytes}, %q1; mov.u32 %r5, s;
        mad.lo.u32 %r6, %r2, {nbytes}, %r5; mov.u32 %r8, 0; mov.u32 %r9, %r0;
        mov.u32 %r7, %r0; ZERO: add.u32 %r10, %r5, %r7; st.shared.u8 [%r10], 7;
        add.u32 %r7, %r7, {threads}; setp.lt.u32 %p2, %r7, {131 * nbytes}; @%p2 bra ZERO;
        bar.sync 0;
        LOOP: @%p1 cp.async.{level}.shared.global [%r6], [%q5], {nbytes}, %r4;
        cp.async.commit_group; cp.async.wait_group 1; bar.sync 0; mov.u32 %r7, %r0;
        SHOW: add.u32 %r10, %r5, %r7; ld.shared.u8 %h1, [%r10]; cvt.u64.u32 %q6, %r7;
        add.u64 %q6, %q6, %q2; st.global.u8 [%q6], %h1; add.u32 %r7, %r7, {threads};
        setp.lt.u32 %p2, %r7, {131 * nbytes}; @%p2 bra SHOW; bar.sync 0;
        add.u64 %q2, %q2, {131 * nbytes}; add.u64 %q5, %q5, {step}; add.u32 %r6, %r6, {nbytes};
        add.u32 %r8, %r8, 1; setp.lt.u32 %p2, %r8, 3; @%p2 bra LOOP; ret;"""
    out = np.zeros(3 * 131 * nbytes, np.uint8)
    both(ptx(body, ["u64"] * 3), [index, data, out], block=(threads, 1, 1))


@pytest.mark.parametrize("count", [7, 8, 9, 40])
def test_many_copies_under_way(count: int) -> None:
    """Also copies of diverged lanes. Half of the copies complete early, so the ring wraps
    around."""
    copies = "".join(
        f"cp.async.ca.shared.global [%r1+{128 * k}], [%q1+{128 * k}], 4, {4 if k < 7 else 2};"
        "cp.async.commit_group;" + ("cp.async.wait_group 5;" if k == 6 else "")
        for k in range(count)
    )
    body = f"""ld.param.u64 %q0, [p0]; .shared .align 16 .b8 s[{128 * count}];
        mov.u32 %r0, %tid.x; mov.u32 %r1, s; mad.lo.u32 %r1, %r0, 4, %r1;
        mad.wide.u32 %q1, %r0, 4, %q0; setp.lt.u32 %p1, %r0, 20; @%p1 bra NEXT; {copies}
        NEXT: @%p1 cp.async.ca.shared.global [%r1], [%q1+4], 4; cp.async.wait_all;
        ld.shared.u32 %r2, [%r1]; mov.u32 %r4, {count}; ALL: sub.u32 %r4, %r4, 1;
        mad.lo.u32 %r5, %r4, 128, %r1; ld.shared.u32 %r3, [%r5]; mad.lo.u32 %r2, %r2, 3, %r3;
        setp.ne.u32 %p2, %r4, 0; @%p2 bra ALL; st.global.u32 [%q1], %r2; ret;"""
    both(ptx(body, ["u64"]), [RNG.integers(0, 1 << 30, 32 * count).astype(np.uint32)])


def test_copies_past_l1_whose_pattern_changes() -> None:
    """Lanes read at strides of 0, 16, 32, … bytes and write to destinations that are permuted."""
    body = """ld.param.u64 %q0, [p0]; .shared .align 128 .b8 s[1024]; mov.u32 %r0, %tid.x;
        mov.u32 %r1, 0; mov.u32 %r5, s; LOOP: mul.lo.u32 %r2, %r0, %r1; shr.u32 %r3, %r1, 1;
        mad.wide.u32 %q1, %r2, 16, %q0; xor.b32 %r4, %r0, %r3; and.b32 %r4, %r4, 31;
        mad.lo.u32 %r4, %r4, 16, %r5; setp.lt.u32 %p1, %r0, 33;
        cp.async.cg.shared.global [%r4], [%q1], 16;
        @%p1 cp.async.cg.shared.global [%r4+512], [%q1], 16;
        add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 9; @%p2 bra LOOP; ret;"""
    x = np.zeros(16 * 9 * 64, np.uint8)
    both(ptx(body, ["u64"]), [x], block=(64, 1, 1))
