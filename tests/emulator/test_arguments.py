"""Arguments that a launch accepts and rejects."""

from __future__ import annotations

import numpy as np
import pytest
from snippets import HEADER, ptx

import gemmlab
from gemmlab.emulator import run
from gemmlab.errors import InputError, LaunchError, OutOfBoundsError

# In place: x[i] += s for each lane
ADD = ptx(
    "ld.param.u64 %q0, [p0]; ld.param.f32 %f1, [p1]; mov.u32 %r1, %tid.x;"
    "mad.wide.u32 %q1, %r1, 4, %q0; ld.global.f32 %f2, [%q1]; add.f32 %f3, %f2, %f1;"
    "st.global.f32 [%q1], %f3; ret;",
    ["u64", "f32"],
)


def start(text, *args, lanes=32):
    return run(text, "k", (1, 1, 1), (lanes, 1, 1), args)


def scalar(type_: str) -> str:
    """Return a kernel that copies its second parameter to the first."""
    return ptx(
        f".reg .{type_} %v; ld.param.u64 %q0, [p0]; ld.param.{type_} %v, [p1];"
        f"st.global.{type_} [%q0], %v; ret;",
        ["u64", type_],
    )


@pytest.mark.parametrize(
    ("type_", "value", "numpy_type"),
    [
        ("u32", 7, "u4"),
        ("u32", -1, "i4"),
        ("s32", 2**32 - 1, "u4"),
        ("u64", 2**64 - 1, "u8"),
        ("u16", 65535, "u2"),
        ("s64", np.int64(-5), "i8"),
        ("u32", np.float32(1.5), "f4"),
        ("f32", 1.5, "f4"),
        ("f32", 3, "f4"),
        ("f64", 0.1, "f8"),
        ("u32", True, "u4"),
        ("f32", np.array(2.5, np.float32), "f4"),
        ("b32", b"\1\2\3\4", "S4"),
    ],
)
def test_scalars_take_the_declared_type(type_, value, numpy_type):
    out = np.zeros(1, numpy_type)
    start(scalar(type_), out, value)
    assert out[0] == value


@pytest.mark.parametrize(
    ("type_", "value", "message"),
    [
        ("u32", 2**32, "cannot hold"),
        ("u32", -(2**31) - 1, "cannot hold"),
        ("u32", 1.0, "takes an integer"),
        ("u32", np.int64(1), "int64 has 8"),
        ("f32", np.float64(1), "float64 has 8"),
        ("f64", np.zeros(4), "takes no array"),
        ("u32", np.zeros(4), "bytes"),
        ("u32", "x", "takes no str"),
        ("u32", None, "takes no NoneType"),
        ("b32", b"\1", "has 1"),
        ("u64", (1, 2), "is unknown"),
        ("u64", (np.int32(1),), "has 4"),
    ],
)
def test_scalars_that_do_not_fit(type_, value, message):
    with pytest.raises(LaunchError, match=message):
        start(scalar(type_), np.zeros(1, np.uint64), value)


@pytest.mark.parametrize("args", [(), (np.zeros(32, np.float32),), (1, 2, 3)])
def test_the_number_of_arguments(args):
    with pytest.raises(LaunchError, match=f"takes 2 arguments, {len(args)} were given"):
        start(ADD, *args)


def test_fortran_order_is_a_buffer_and_gaps_are_not():
    x = np.zeros((4, 8), np.float32, order="F")
    start(ADD, x, 2.0)
    assert (x == 2).all()
    with pytest.raises(InputError, match="contiguous"):
        start(ADD, np.zeros((32, 2), np.float32)[:, 0], 2.0)
    with pytest.raises(InputError, match="Python objects"):
        start(ADD, np.array([None] * 32), 2.0)


def test_read_only_arrays_may_be_read_but_not_written():
    text = ptx(
        "ld.param.u64 %q0, [p0]; ld.param.u64 %q1, [p1]; ld.global.f32 %f1, [%q0];"
        "st.global.f32 [%q1], %f1; ret;",
        ["u64", "u64"],
    )
    source, result = np.ones(1, np.float32), np.zeros(1, np.float32)
    source.flags.writeable = False
    start(text, source, result)
    assert result[0] == 1
    other = np.zeros(1, np.float32)
    with pytest.raises(InputError, match="argument 0, a read-only array"):
        start(text.replace("[%q1], %f1", "[%q0], 0f40000000"), source, other)


def test_nothing_is_written_back_when_a_read_only_array_was_hit():
    text = ptx(
        "ld.param.u64 %q0, [p0]; ld.param.u64 %q1, [p1]; st.global.u32 [%q0], 1;"
        "st.global.u32 [%q1], 1; ret;",
        ["u64", "u64"],
    )
    x, y = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    y.flags.writeable = False
    with pytest.raises(InputError):
        start(text, x, y)
    assert x[0] == 0


def test_arrays_that_share_memory_share_it_on_the_device():
    text = ptx(
        "ld.param.u64 %q0, [p0]; ld.param.u64 %q1, [p1]; ld.param.u64 %q2, [p2];"
        "st.global.u32 [%q1], 5; ld.global.u32 %r1, [%q0+8]; st.global.u32 [%q2+4], %r1; ret;",
        ["u64", "u64", "u64"],
    )
    x = np.zeros(8, np.uint32)
    start(text, x, x[2:6], x)
    assert x.tolist() == [0, 5, 5, 0, 0, 0, 0, 0]
    halves = np.zeros(8, np.uint32)
    with pytest.raises(OutOfBoundsError):
        start(text, halves[:2], halves[2:], halves[2:])
    assert not halves.any()


def test_empty_arrays_and_null_pointers():
    text = ptx("ld.param.u64 %q0, [p0]; ld.global.u32 %r1, [%q0]; ret;", ["u64"])
    with pytest.raises(OutOfBoundsError, match="argument 0"):
        start(text, np.zeros(0, np.uint32))
    with pytest.raises(OutOfBoundsError, match="null pointer dereference"):
        start(text, 0)


def test_structs_are_laid_out_as_in_c():
    text = HEADER + (
        ".entry k(.param .align 8 .b8 s[24]) {.reg .b64 %q<3>; .reg .f64 %g<3>; .reg .b32 %r<3>;"
        "ld.param.u64 %q1, [s]; ld.param.u8 %r1, [s+8]; ld.param.f64 %g1, [s+16];"
        "st.global.f64 [%q1], %g1; st.global.u32 [%q1+8], %r1; ret;}"
    )
    x = np.zeros(16, np.uint8)
    start(text, (x, np.uint8(7), np.float64(2.5)))
    assert x[:8].view("f8")[0] == 2.5
    assert x[8:12].view("u4")[0] == 7
    with pytest.raises(LaunchError, match="is a struct and takes bytes"):
        start(text, 5)


@pytest.mark.parametrize(
    ("grid", "block", "smem"),
    [
        (1, 1025, 0),
        (1, (32, 32, 2), 0),
        (0, 32, 0),
        (1, (32, -1), 0),
        ((1, 65536), 32, 0),
        (1, (1, 1, 65), 0),
        (1, 32, 1 << 20),
        (1, 32, -1),
        ("8", 32, 0),
        ((1, 1, 1, 1), 32, 0),
        (1.0, 32, 0),
    ],
)
def test_launch_limits(grid, block, smem):
    artifact = gemmlab.load(ADD)
    x = np.zeros(32, np.float32)
    with pytest.raises(LaunchError):
        gemmlab.emulate(artifact, grid=grid, block=block, args=[x, 1.0], dynamic_smem=smem)
    assert not x.any()


def test_static_and_dynamic_shared_memory_count_together():
    text = ptx(".shared .b8 s[40000]; ret;").replace("sm_90a", "sm_80")
    artifact = gemmlab.load(text)
    gemmlab.emulate(artifact, grid=1, block=32, args=[])
    with pytest.raises(LaunchError):
        gemmlab.emulate(artifact, grid=1, block=32, args=[], dynamic_smem=130_000)


def test_a_block_larger_than_maxntid_is_refused():
    text = ADD.replace("\n{", "\n.maxntid 64, 1, 1\n{", 1)
    assert start(text, np.zeros(64, np.float32), 1.0, lanes=64)
    with pytest.raises(LaunchError, match=r"96 threads.*maxntid"):
        start(text, np.zeros(96, np.float32), 1.0, lanes=96)
