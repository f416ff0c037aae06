"""Undefined values are reported where they affect results, and only there."""

import numpy as np
import pytest
from snippets import ptx

from gemmlab.emulator import run

MODULE = ".shared .align 16 .b8 s[512];\n.global .align 16 .b8 unused[16];"
START = (
    "ld.param.u64 %q0, [p0]; mov.u32 %r0, %tid.x; mul.lo.u32 %r1, %r0, 4; cvt.u64.u32 %q1, %r1;"
    "add.u64 %q2, %q0, %q1; mov.u32 %r2, s; add.u32 %r3, %r2, %r1;"
)
LOAD = "ld.shared.u32 %r4, [%r3+128];"  # memory that was never written
WRITTEN = "st.shared.u32 [%r3], %r0;"

# name: body with the undefined value, and the expected report
BODIES = {
    "not used": (LOAD + "st.global.u32 [%q2], %r0;", None),
    "computed with, not used": (LOAD + "add.u32 %r5, %r4, 1; st.global.u32 [%q2], %r0;", None),
    "not chosen": (
        LOAD + "setp.lt.u32 %p1, %r0, 99; selp.u32 %r5, %r0, %r4, %p1; st.global.u32 [%q2], %r5;",
        None,
    ),
    "chosen": (
        LOAD + "setp.lt.u32 %p1, %r0, 9; selp.u32 %r5, %r0, %r4, %p1; st.global.u32 [%q2], %r5;",
        "is stored to global memory",
    ),
    "and false": (
        LOAD + "setp.gt.u32 %p1, %r4, 5; setp.gt.u32 %p2, %r0, 99; and.pred %p3, %p1, %p2;"
        "@%p3 st.global.u32 [%q2], %r0;",
        None,
    ),
    "or true": (
        LOAD + "setp.gt.u32 %p2, %r0, 99; setp.gt.or.u32 %p1, %r4, 5, !%p2;"
        "@%p1 st.global.u32 [%q2], %r0;",
        None,
    ),
    "and true": (
        LOAD + "setp.gt.u32 %p2, %r0, 99; setp.gt.and.u32 %p1, %r4, 5, !%p2;"
        "@%p1 st.global.u32 [%q2], %r0;",
        "decides whether this executes",
    ),
    "branch": (LOAD + "setp.gt.u32 %p1, %r4, 5; @%p1 bra E; E:", "decides a branch"),
    "address": (LOAD + "add.u32 %r5, %r4, %r2; ld.shared.u32 %r6, [%r5];", "is an address"),
    "sum": (LOAD + "add.u32 %r5, %r4, 1; st.global.u32 [%q2], %r5;", "is stored to global memory"),
    "atomic": (LOAD + "red.global.add.u32 [%q2], %r4;", "is used"),
    "copied": (
        LOAD + "st.shared.u32 [%r3], %r4; bar.sync 0; ld.shared.u32 %r5, [%r3];"
        "st.global.u32 [%q2], %r5;",
        "thread 0 reads s[32] at PTX line 9, which was never written; the value is stored",
    ),
    "copied, then overwritten": (
        LOAD + "st.shared.u32 [%r3], %r4; bar.sync 0; st.shared.u32 [%r3], %r0;"
        "ld.shared.u32 %r5, [%r3]; st.global.u32 [%q2], %r5;",
        None,
    ),
    "of another lane": (
        WRITTEN + "setp.eq.u32 %p1, %r0, 31; @%p1 ld.shared.u32 %r0, [%r3+128];"
        "shfl.sync.down.b32 %r5, %r0, 1, 31, -1; st.global.u32 [%q2], %r5;",
        "is stored to global memory",
    ),
    "of a lane whose value is not used": (
        "setp.eq.u32 %p1, %r0, 0; mov.u32 %r5, 7; @%p1 ld.shared.u32 %r5, [%r3+128];"
        "shfl.sync.idx.b32 %r5, %r5, 3, 31, -1; st.global.u32 [%q2], %r5;",
        None,
    ),
    "vote": (
        LOAD + "setp.gt.u32 %p1, %r4, 5; vote.sync.ballot.b32 %r5, %p1, -1;"
        "st.global.u32 [%q2], %r5;",
        "is stored to global memory",
    ),
    "half of a vector": (
        "st.shared.u32 [s], %r0; bar.sync 0; ld.shared.v2.u32 {%r5, %r6}, [s];"
        "st.global.u32 [%q2], %r5;",
        None,
    ),
    "the other half": (
        "st.shared.u32 [s], %r0; bar.sync 0; ld.shared.v2.u32 {%r5, %r6}, [s];"
        "st.global.u32 [%q2], %r6;",
        "thread 0 reads s[1] at PTX line 9, which was never written; the value is stored",
    ),
    "loads that are joined": (
        "st.shared.u32 [s], 1; bar.sync 0; ld.shared.u32 %r5, [s]; ld.shared.u32 %r6, [s+4];"
        "ld.shared.u32 %r7, [s+8]; ld.shared.u32 %r8, [s+12]; st.global.u32 [%q2], %r7;",
        "thread 0 reads s[1] at PTX line 9, which was never written; the value is stored",
    ),
    "a byte of a word, masked": (
        "st.shared.u8 [%r3], %r0; ld.shared.u32 %r4, [%r3]; and.b32 %r5, %r4, 255;"
        "st.global.u32 [%q2], %r5;",
        None,
    ),
    "a byte of a word, the wrong mask": (
        "st.shared.u8 [%r3], %r0; ld.shared.u32 %r4, [%r3]; and.b32 %r5, %r4, 511;"
        "st.global.u32 [%q2], %r5;",
        "is stored to global memory",
    ),
    "padding, copied": (
        "st.shared.u8 [%r3], %r0; ld.shared.u32 %r4, [%r3]; st.shared.u32 [%r3+256], %r4;"
        "ld.shared.u8 %r5, [%r3+256]; st.global.u32 [%q2], %r5;",
        None,
    ),
    "padding, copied and used": (
        "st.shared.u8 [%r3], %r0; ld.shared.u32 %r4, [%r3]; st.shared.u32 [%r3+256], %r4;"
        "ld.shared.u8 %r5, [%r3+257]; st.global.u32 [%q2], %r5;",
        "thread 0 reads s+1 at PTX line 9, which was never written; the value is stored",
    ),
    **{
        f"{kind}, {part}": (
            f"st.shared.u8 [%r3+1], %r0; ld.shared.u32 %r4, [%r3]; {body}st.global.u32 [%q2], %r5;",
            None if part == "the byte that is set" else "is stored to global memory",
        )
        for kind, part, body in (
            ("bfe", "the byte that is set", "bfe.u32 %r5, %r4, 8, 8;"),
            ("bfe", "one bit more", "bfe.u32 %r5, %r4, 8, 9;"),
            ("prmt", "the byte that is set", "prmt.b32 %r5, %r4, 0, 0x4141;"),
            ("prmt", "another", "prmt.b32 %r5, %r4, 0, 0x4142;"),
            ("shr and cvt", "the byte that is set", "shr.u32 %r5, %r4, 8; cvt.u32.u8 %r5, %r5;"),
            ("shl and shr", "the byte that is set", "shl.b32 %r5, %r4, 16; shr.u32 %r5, %r5, 24;"),
            ("shl and shr", "signed, of a bit less", "shl.b32 %r5, %r4, 17; shr.s32 %r5, %r5, 24;"),
            ("shr", "and what is above", "shr.u32 %r5, %r4, 8;"),
            ("bfi", "of a bit that is not set", "bfi.b32 %r5, %r4, %r0, 31, 1;"),
            (
                "mov",
                "the byte that is set",
                "mov.b32 {%h1, %h2}, %r4; shr.u16 %h1, %h1, 8;cvt.u32.u16 %r5, %h1;",
            ),
            ("mov", "the other half", "mov.b32 {%h1, %h2}, %r4; cvt.u32.u16 %r5, %h2;"),
            ("or", "a mask of ones", "or.b32 %r5, %r4, 0xff;"),
            ("add", "of nothing", "add.u32 %r5, %r4, 0;"),
        )
    },
    "one of two halves": (
        "st.shared.u16 [%r3], %r0; ld.shared.u32 %r4, [%r3]; add.f16x2 %r5, %r4, %r4;"
        "and.b32 %r5, %r5, 0xffff; st.global.u32 [%q2], %r5;",
        None,
    ),
    "register": (
        "add.u32 %r5, %r6, 1; st.global.u32 [%q2], %r5;",
        "uses a variable that was never set",
    ),
    "register, not used": ("add.u32 %r5, %r6, 1; st.global.u32 [%q2], %r0;", None),
    "register, set on one path": (
        "setp.lt.u32 %p1, %r0, 16; @%p1 bra E; mov.u32 %r6, 1; E: st.global.u32 [%q2], %r6;",
        "uses a variable that was never set",
    ),
    "register, used where it is set": (
        "setp.lt.u32 %p1, %r0, 16; @%p1 bra E; mov.u32 %r6, 1; E:@!%p1 st.global.u32 [%q2], %r6;",
        None,
    ),
    "round a loop": (
        LOAD + "mov.u32 %r7, 0; L: add.u32 %r4, %r4, 1; add.u32 %r7, %r7, 1;"
        "setp.lt.u32 %p1, %r7, 3; @%p1 bra L; st.global.u32 [%q2], %r4;",
        "is stored to global memory",
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_undefined_values_are_told_of_where_they_matter(name):
    body, words = BODIES[name]
    code = ptx(f"{START} {body} ret;", ["u64"], MODULE)
    kinds = ["uninitialized", "global-races"]
    every = run(code, "k", (2, 1, 1), (32, 1, 1), [np.zeros(64, np.uint32)], check=kinds).findings
    found = [f for f in every if f.kind == "uninitialized read"]
    assert len(found) == (words is not None)
    if words:
        assert words in found[0].message
        is_register = "never set" in words
        assert (found[0].other is None) == is_register
