"""Accesses to each state space: their values, and faults."""

from __future__ import annotations

import numpy as np
import pytest
from snippets import HEADER

from gemmlab.emulator import run
from gemmlab.errors import (
    MisalignedAddressError,
    OutOfBoundsError,
)

STORE = "add.u64 %q20, %q0, %q31; st.global.u32 [%q20], %r1;"


def test_generic_addresses_reach_every_space(launch):
    x = np.zeros(32, np.uint32)
    launch(
        ".shared .align 4 .b8 s[128]; .local .align 4 .b8 m[4]; mov.u64 %q1, s; mov.u64 %q2, m;"
        "cvta.shared.u64 %q3, %q1; add.u64 %q3, %q3, %q31; cvta.local.u64 %q4, %q2;"
        "cvta.global.u64 %q5, %q0; add.u64 %q5, %q5, %q31; st.u32 [%q3], 1; st.u32 [%q4], 2;"
        "ld.shared.u32 %r1, [s]; ld.local.u32 %r2, [m]; isspacep.shared %p1, %q3;"
        "isspacep.global %p2, %q3; selp.u32 %r3, 10, 0, %p1; selp.u32 %r4, 100, 0, %p2;"
        "add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3; add.u32 %r1, %r1, %r4; st.u32 [%q5], %r1;"
        "cvta.to.shared.u64 %q6, %q3; st.shared.u32 [%q6], 0;",
        [x],
    )
    assert x.tolist() == [13] * 32


def test_local_memory_belongs_to_the_thread(launch):
    x = np.zeros(64, np.uint32)
    launch(
        ".local .align 8 .b8 m[32]; and.b32 %r2, %r0, 7; mul.wide.u32 %q2, %r2, 4; mov.u64 %q3, m;"
        f"add.u64 %q4, %q3, %q2; st.local.u32 [%q4], %r0; ld.local.u32 %r1, [%q4]; {STORE}",
        [x],
        block=64,
    )
    assert x.tolist() == list(range(64))


def test_static_and_dynamic_shared_memory(launch):
    x = np.zeros(64, np.uint32)
    body = (
        ".shared .align 4 .b8 s[20]; st.shared.u32 [s+16], 7; mov.u32 %r2, dyn;"
        "shl.b32 %r3, %r0, 2; add.u32 %r4, %r2, %r3; st.shared.u32 [%r4], %r0; bar.sync 0;"
        "sub.u32 %r5, 252, %r3; add.u32 %r5, %r5, %r2; ld.shared.u32 %r6, [%r5];"
        f"ld.shared.u32 %r7, [s+16]; add.u32 %r1, %r6, %r7; {STORE}"
    )
    module = ".extern .shared .align 16 .b8 dyn[];"
    launch(body, [x], block=64, module=module, dynamic_smem=256)
    assert x.tolist() == [63 - i + 7 for i in range(64)]
    with pytest.raises(OutOfBoundsError, match="bytes of shared memory"):
        launch(body, [x], block=64, module=module, dynamic_smem=252)


def test_a_32_bit_base_below_zero_wraps(launch):
    """Compilers keep an address minus a constant in a register and add the constant in the
    access."""
    x = np.zeros(32, np.uint32)
    launch(
        ".shared .align 4 .b8 s[8]; mov.u32 %r2, s; sub.u32 %r3, %r2, 16;"
        "st.shared.u32 [%r3+20], 9;"
        f"ld.shared.u32 %r1, [s+4]; {STORE}",
        [x],
    )
    assert x.tolist() == [9] * 32


def test_shared_patterns_of_equal_bytes_and_other_shape_are_told_apart(launch):
    """First by lane, then by warp: the same 32 offsets along another axis."""
    x = np.zeros(1024, np.uint32)
    launch(
        ".shared .align 4 .b8 s[128]; mov.u32 %r10, %tid.x; and.b32 %r2, %r10, 31;"
        "mov.u32 %r11, %warpid; shl.b32 %r3, %r2, 2; mov.u32 %r4, %laneid; shl.b32 %r4, %r4, 2;"
        "mov.u32 %r5, s; add.u32 %r4, %r4, %r5; mov.u32 %r7, %laneid; st.shared.u32 [%r4], %r7;"
        "bar.sync 0; mov.u32 %r8, 0; L: ld.shared.u32 %r1, [%r4]; shl.b32 %r4, %r11, 2;"
        "add.u32 %r4, %r4, %r5; add.u32 %r8, %r8, 1; setp.lt.u32 %p1, %r8, 2; @%p1 bra L;" + STORE,
        [x],
        block=1024,
    )
    assert x.tolist() == [i // 32 for i in range(1024)]


@pytest.mark.parametrize(
    "body",
    [
        # The second load's address register is overwritten by the third instruction.
        "ld.shared.u32 %r1, [%r10]; ld.shared.u32 %r3, [%r2]; ld.shared.u32 %r2, [%r10+4];",
        "ld.shared.u32 %r2, [%r10+4]; ld.shared.u32 %r1, [%r10]; mov.u32 %r3, 4;",
        "ld.shared.u32 %r2, [%r10+4]; mov.u32 %r3, 4; ld.shared.u32 %r10, [%r10];"
        "mov.u32 %r1, %r10;",
        "ld.shared.u32 %r4, [%r10]; st.u32 [%q9], 7; ld.shared.u32 %r2, [%r10+4]; st.u32 [%q9], 1;"
        "sub.u32 %r2, %r2, 6; mov.u32 %r1, %r4; mov.u32 %r3, 4;",
        "st.shared.u32 [s+4], -1; ld.shared.s32 %q1, [s]; ld.shared.s32 %q2, [s+4];"
        "shr.s64 %q2, %q2, 32; neg.s64 %q2, %q2; cvt.u32.u64 %r1, %q1; cvt.u32.u64 %r2, %q2;"
        "mov.u32 %r3, 4;",
        "mov.b64 %q8, {%r10, %r10}; mov.b64 {%r5, %r6}, %q8; ld.shared.u32 %r1, [%r6];"
        "ld.shared.u32 %r2, [%r6+4]; mov.u32 %r3, 4;",
    ],
)
def test_joined_shared_loads_give_what_single_ones_do(launch, body):
    x = np.zeros(4, np.uint32)
    launch(
        ".shared .align 16 .b8 s[64]; mov.u32 %r10, s; mov.u32 %r2, s; add.u32 %r2, %r2, 16;"
        "mov.u64 %q9, s; add.u64 %q9, %q9, 4; cvta.shared.u64 %q9, %q9; mov.u32 %r4, 0;"
        "st.shared.u32 [s], 10; st.shared.u32 [s+4], 1; st.shared.u32 [s+16], 4; bar.sync 0;"
        f"{body} st.global.u32 [%q0], %r1; st.global.u32 [%q0+4], %r2; st.global.u32 [%q0+8], %r3;",
        [x],
    )
    assert x.tolist() == [10, 1, 4, 0]


@pytest.mark.parametrize(
    "body",
    [
        "st.shared.u32 [%r10+4], 2; st.shared.u32 [%r10], 1;",
        "mov.u32 %r2, 1; st.shared.u32 [%r10], %r2; mov.u32 %r2, 2; st.shared.u32 [%r10+4], %r2;",
        "add.u32 %r2, %r10, 4; st.shared.u32 [%r2], 2; st.shared.u32 [%r2+-4], 1;",
        "st.shared.u32 [%r10], 1; add.u32 %r10, %r10, 4; st.shared.u32 [%r10], 2;",
        "st.shared.u32 [%r10], 1; add.u32 %r10, %r10, 8; st.shared.u32 [%r10+-4], 2;",
        "st.shared.u32 [%r10], 7; ld.shared.u32 %r2, [%r10]; sub.u32 %r2, %r2, 5;"
        "st.shared.u32 [%r10+4], %r2; st.shared.u32 [%r10], 1;",
        "st.shared.u32 [%r10], 7; st.u32 [%q9], 1; st.shared.u32 [%r10+4], 2;",
        "st.shared.u32 [%r10], 7; st.shared.u32 [s], 1; st.shared.u32 [s+4], 2;",
        "mov.b16 %h1, 1; mov.b16 %h2, 0; mov.b16 %h3, 2; st.shared.u16 [s], %h1;"
        "st.shared.u16 [s+6], %h2; st.shared.u16 [s+4], %h3; st.shared.u16 [s+2], %h2;",
        "mov.b32 %f1, 0f00000002; st.shared.u32 [s], 1; st.shared.f32 [s+4], %f1;",
        "st.shared.f32 [s], 0f00000001; st.shared.b32 [s+4], 2;",
        "mov.u64 %q1, 0x500000001; mov.u64 %q2, 0x700000002; st.shared.u32 [s], %q1;"
        "st.shared.u32 [s+4], %q2;",
        "mov.u64 %q1, 0x500000001; mov.b32 %f1, 0f00000002; st.shared.f32 [s+4], %f1;"
        "st.shared.u32 [s], %q1;",
        "setp.eq.u32 %p1, %r0, 5; st.shared.u32 [s], 7; @%p1 st.shared.u32 [s], 1;"
        "st.shared.u32 [s+4], 2;",
        "setp.ne.u32 %p1, %r0, 5; @%p1 bra L; st.shared.u32 [s], 1; st.shared.u32 [s+4], 2; L:",
        "mov.u32 %r2, s; sub.u32 %r2, %r2, 4; bra.uni L; L: st.shared.u32 [s], 7;"
        "st.shared.u32 [%r2+4], 1; st.shared.u32 [s+4], 2;",
        "mov.u32 %r2, %r10; setp.eq.u32 %p1, %r0, 99; @%p1 add.u32 %r2, %r10, 4;"
        "st.shared.u32 [%r10], 7; st.shared.u32 [%r2], 1; st.shared.u32 [%r10+4], 2;",
    ],
)
def test_joined_shared_stores_give_what_single_ones_do(launch, body):
    x = np.zeros(2, np.uint32)
    launch(
        ".shared .align 16 .b8 s[64]; .reg .b16 %h<4>; mov.u32 %r10, s; mov.u64 %q9, s;"
        f"cvta.shared.u64 %q9, %q9; {body} bar.sync 0;"
        "ld.shared.u32 %r1, [s]; st.global.u32 [%q0], %r1;"
        "ld.shared.u32 %r2, [s+4]; st.global.u32 [%q0+4], %r2;",
        [x],
    )
    assert x.tolist() == [1, 2]


def test_variables_have_initial_values(launch):
    x = np.zeros(4, np.uint32)
    launch(
        "and.b32 %r2, %r0, 3; mul.wide.u32 %q1, %r2, 4; mov.u64 %q2, table; add.u64 %q3, %q2, %q1;"
        "ld.const.u32 %r1, [%q3]; ld.global.u32 %r3, [one]; add.u32 %r1, %r1, %r3;"
        "add.u64 %q4, %q0, %q1; st.global.u32 [%q4], %r1;",
        [x],
        module=".const .align 4 .u32 table[4] = {5, 6, 7, 0xFFFFFFFF}; .global .u32 one = 1;",
    )
    assert x.tolist() == [6, 7, 8, 0]


FAULT = HEADER + (
    '.file 1 "kernel.cu"\n.visible .entry k(.param .u64 p)\n{\n.reg .b64 %q<4>; .reg .b32 %r<4>;'
    ".reg .pred %p<2>;\n.loc 1 12 3\nld.param.u64 %q0, [p]; mov.u32 %r0, %tid.x;"
    "mov.u32 %r1, %ctaid.y; st.global.u32 [%q0], 1;\nsetp.ne.u32 %p1, %r1, 1; @%p1 ret;\n"
    "setp.lt.u32 %p1, %r0, 40; @%p1 ret; mul.wide.u32 %q1, %r0, STEP; add.u64 %q2, %q0, %q1;\n"
    "ACCESS\nret; }\n"
)


@pytest.mark.parametrize("access", ["ld.global.u32 %r2, [%q2];", "st.global.u32 [%q2], %r0;"])
@pytest.mark.parametrize(
    ("step", "error", "message"),
    [
        (4, OutOfBoundsError, "4 bytes past the end of argument 0 \\(160 bytes\\)"),
        (1, MisalignedAddressError, "not a multiple of the access width, 4 bytes"),
    ],
)
def test_faults_say_where(access, step, error, message):
    text = FAULT.replace("STEP", str(step)).replace("ACCESS", access)
    x = np.zeros(40, np.uint32)
    with pytest.raises(error, match=message) as caught:
        run(text, "k", (2, 3, 1), (64, 1, 1), [x])
    fault = caught.value
    first = 40 if step == 4 else 41
    assert (fault.block, fault.thread, fault.lane) == ((0, 1, 0), first, first - 32)
    assert fault.address == 0x7F00_0000_0000 + step * first
    assert fault.site is not None
    assert (fault.site.ptx, fault.site.source) == (access, "kernel.cu:12")
    assert text.split("\n")[fault.site.ptx_line - 1] == access
    assert not x.any()  # the store before the fault is discarded


@pytest.mark.parametrize("pointer", [0, 400])
def test_a_null_pointer_is_called_one(launch, pointer):
    with pytest.raises(OutOfBoundsError, match="null pointer"):
        launch(f"mov.u64 %q1, {pointer}; ld.global.u32 %r1, [%q1];", [np.zeros(1, np.uint32)])


@pytest.mark.parametrize("space", ["shared", "local"])
@pytest.mark.parametrize(
    ("offset", "error"), [(64, OutOfBoundsError), (62, MisalignedAddressError)]
)
def test_faults_in_other_spaces(launch, space, offset, error):
    declared = f".{space} .align 4 .b8 m[64];"
    with pytest.raises((error, OutOfBoundsError)) as caught:
        launch(f"{declared} mov.u64 %q1, m; ld.{space}.u32 %r1, [%q1+{offset}];")
    assert caught.value.address == offset
    with pytest.raises(MisalignedAddressError):
        launch(f"{declared} mov.u64 %q1, m; ld.{space}.u32 %r1, [%q1+2];")


def test_lanes_that_are_off_may_hold_any_address(launch):
    x = np.zeros(32, np.uint32)
    launch(
        ".shared .align 4 .b8 s[16]; setp.lt.u32 %p1, %r0, 4; mad.wide.u32 %q1, %r0, 999999, %q0;"
        "mov.u64 %q2, s; selp.b64 %q1, %q0, %q1, %p1; selp.b64 %q2, %q2, %q1, %p1;"
        "@%p1 ld.global.u32 %r2, [%q1]; @%p1 st.shared.u32 [%q2], %r0; @!%p1 bra OUT;"
        "ld.shared.u32 %r1, [%q2]; selp.b64 %q3, 0, %q1, %p1; ld.param.u32 %r3, [p0]; OUT:",
        [x],
    )
