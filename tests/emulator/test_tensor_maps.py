"""Tensor maps and box copies, against copies of one element at a time."""

from __future__ import annotations

import math
from typing import Any

import hopper
import numpy as np
import pytest
from hopper import SPANS, STALE, Kernel, box_load, box_store
from hypothesis import given, settings
from hypothesis import strategies as st
from machine import DEVICES

import gemmlab
from gemmlab import TensorMap
from gemmlab.devices import Span, open_device
from gemmlab.emulator import run
from gemmlab.errors import (
    DTypeError,
    EmulationError,
    InputError,
    LaunchError,
    MisalignedAddressError,
    OutOfBoundsError,
    ShapeError,
    UnsupportedInstructionError,
)

RNG = np.random.default_rng(3)


def launch(kernel: Kernel, order: str | int = "in-order", tier: str = "auto") -> np.ndarray:
    given = kernel.grid, (kernel.threads, 1, 1), kernel.args, kernel.dynamic_smem
    run(kernel.text, "k", *given, order, tier=tier)
    return kernel.results[0]


def places(tensor_map: TensorMap, coordinates: tuple[int, ...], offset: int = 0):
    """Return, for each element of a box, its index in the array (None if outside) and its shared
    address."""
    counts = [-(-n // s) for n, s in zip(tensor_map.box, tensor_map.element_strides, strict=True)]
    pitch = SPANS[tensor_map.swizzle] or counts[-1] * tensor_map.itemsize
    mask = {"none": 0, "32B": 1, "64B": 3, "128B": 7}[tensor_map.swizzle]
    for row, outer in enumerate(np.ndindex(*counts[:-1])):
        for column in range(counts[-1]):
            steps = zip(
                coordinates[::-1], (*outer, column), tensor_map.element_strides, strict=True
            )
            index = tuple(start + k * stride for start, k, stride in steps)
            inside = all(0 <= i < n for i, n in zip(index, tensor_map.shape, strict=True))
            address = offset + row * pitch + column * tensor_map.itemsize
            yield index if inside else None, address ^ (address >> 7 & mask) << 4


def expected_image(tensor_map: TensorMap, coordinates: tuple[int, ...], offset: int) -> np.ndarray:
    array, size = tensor_map.array, tensor_map.itemsize
    image = np.full((offset + hopper.image_bytes(tensor_map)) // 4, STALE, np.uint32)
    cells = image.view(f"u{size}")
    fill = np.frombuffer((b"\xf7\x7f" if tensor_map.fill == "nan" else b"\0\0") * 4, f"u{size}")[0]
    for index, address in places(tensor_map, coordinates, offset):
        cells[address // size] = fill if index is None else array[index].view(f"u{size}")
    return image


@st.composite
def boxes(draw: st.DrawFn) -> tuple[TensorMap, tuple[int, ...]]:
    """Return a tensor map of 1 to 5 dimensions and coordinates, in and far outside of its
    bounds."""
    size = draw(st.sampled_from([1, 2, 4, 8]))
    swizzle: Any = draw(st.sampled_from(list(SPANS)))
    per_chunk = 16 // size
    chunks = draw(st.integers(1, (SPANS[swizzle] or 64) // 16))
    rank = draw(st.integers(1, 5))
    outer = draw(st.lists(st.integers(1, 4), min_size=rank - 1, max_size=rank - 1))
    shape = [draw(st.integers(1, 5)) for _ in outer] + [draw(st.integers(1, 6)) * per_chunk]
    strides = (*(draw(st.integers(1, 3)) for _ in outer), 1)
    bits = RNG.integers(0, 1 << 8 * size, shape, dtype=f"u{size}")
    tensor_map = TensorMap(
        bits, (*outer, chunks * per_chunk), swizzle=swizzle, element_strides=strides
    )
    first = draw(st.integers(-2, 7)) * per_chunk
    return tensor_map, (first, *(draw(st.integers(-3, 5)) for _ in outer))


@settings(max_examples=30, deadline=None)
@given(boxes(), st.sampled_from([0, 128, 640, 1024]), st.sampled_from(["in-order", "reversed", 5]))
def test_loads(box, offset, order):
    tensor_map, coordinates = box
    image = launch(box_load(tensor_map, coordinates, offset), order)
    np.testing.assert_array_equal(image, expected_image(tensor_map, coordinates, offset))


@settings(max_examples=20, deadline=None)
@given(boxes())
def test_stores(box):
    tensor_map, coordinates = box
    coordinates = tuple(max(c, 0) for c in coordinates)
    image = RNG.integers(0, 1 << 32, hopper.image_bytes(tensor_map) // 4, dtype=np.uint32)
    wanted = tensor_map.array.copy()
    for index, address in places(tensor_map, coordinates):
        if index is not None:
            wanted[index] = image.view(wanted.dtype)[address // tensor_map.itemsize]
    np.testing.assert_array_equal(launch(box_store(tensor_map, image, coordinates)), wanted)


@pytest.mark.parametrize("format", ["float16", "bfloat16", "float32", "float64"])
def test_nan_outside(format):
    dtype = "uint16" if format == "bfloat16" else format
    array = np.ones((4, 16), dtype)
    tensor_map = TensorMap(array, (6, 8), fill="nan", format=format)
    image = launch(box_load(tensor_map, (8, -1)))
    np.testing.assert_array_equal(image, expected_image(tensor_map, (8, -1), 0))
    assert image.view(np.uint16)[0] == 0x7FF7


def test_tfloat32_rounds_to_nearest_even():
    bits = [0x3F800FFF, 0x3F801000, 0x3F801001, 0x3F803000, 0x7F800000, 0x7FC00001, 0x7F7FFFFF, 1]
    array = np.array(bits, np.uint32).view(np.float32)
    image = launch(box_load(TensorMap(array, (8,), format="tfloat32"), (0,)))
    wanted = [0x3F800000, 0x3F800000, 0x3F802000, 0x3F804000, 0x7F800000, 0x7FFFE000, 0x7F800000, 0]
    assert image[:8].tolist() == wanted


def test_a_view_with_gaps():
    whole = RNG.integers(0, 1 << 16, (20, 64), dtype=np.uint16)
    tensor_map = TensorMap(whole[3:15, 8:48], (8, 16), swizzle="32B")
    image = launch(box_load(tensor_map, (32, 9)))
    np.testing.assert_array_equal(image, expected_image(tensor_map, (32, 9), 0))


def elsewhere(kernel: Kernel, parameter: str, code: str) -> str:
    """Return a box load whose map is not the parameter. `code` stores its address to %q0."""
    declared = kernel.text.replace(".param .align 64 .b8 p0[128]", f".param {parameter} p0")
    return declared.replace("mov.u64 %q0, p0; cvta.param.u64 %q0, %q0;", code)


POINTER = ".u64", "ld.param.u64 %q0, [p0];"
STRUCT = ".align 64 .b8", "mov.u64 %q0, p0; cvta.param.u64 %q0, %q0; add.u64 %q0, %q0, 64;"
SMALL = np.arange(64, dtype=np.float32).reshape(4, 16)


@pytest.mark.parametrize(
    ("where", "wrap"),
    [
        (POINTER, lambda m: m),
        (POINTER, lambda m: [m]),
        (
            (".u64", POINTER[1] + "add.u64 %q0, %q0, 128;"),
            lambda m: [TensorMap(SMALL, (1, 4)), m],
        ),
        (STRUCT, lambda m: (np.uint32(7), m, np.float32(1))),
    ],
    ids=["pointer", "list of one", "second of two", "in a struct"],
)
def test_maps_that_are_no_parameter(where, wrap):
    tensor_map = TensorMap(SMALL, (2, 8))
    kernel = box_load(tensor_map, (4, 1))
    parameter, code = where
    text = elsewhere(kernel, parameter, code)
    if parameter == STRUCT[0]:
        text = text.replace(" p0,", " p0[256],")
    args = [wrap(tensor_map), kernel.results[0]]
    run(text, "k", kernel.grid, (32, 1, 1), args, kernel.dynamic_smem)
    wanted = expected_image(tensor_map, (4, 1), 0)
    np.testing.assert_array_equal(kernel.results[0], wanted)


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        (POINTER[1] + "add.u64 %q0, %q0, 32;", MisalignedAddressError, "not a multiple of 64"),
        (POINTER[1] + "add.u64 %q0, %q0, 128;", OutOfBoundsError, "tensor map of argument 0"),
        (
            ".local .align 64 .b8 copy[128]; mov.u64 %q0, copy; cvta.local.u64 %q0, %q0;",
            EmulationError,
            "__grid_constant__",
        ),
    ],
)
def test_where_a_map_cannot_be(code, error, message):
    kernel = box_load(TensorMap(SMALL, (2, 8)), (4, 1))
    text = elsewhere(kernel, ".u64", code)
    with pytest.raises(error, match=message):
        run(text, "k", kernel.grid, (32, 1, 1), kernel.args, kernel.dynamic_smem)


@pytest.mark.parametrize(
    ("operation", "dtype", "function"),
    [
        ("add", np.uint32, np.add),
        ("min", np.int32, np.minimum),
        ("max", np.uint64, np.maximum),
        ("and", np.uint32, np.bitwise_and),
        ("or", np.uint32, np.bitwise_or),
        ("xor", np.uint64, np.bitwise_xor),
        ("inc", np.uint32, lambda old, new: np.where(old >= new, 0, old + 1)),
        ("dec", np.uint32, lambda old, new: np.where((old == 0) | (old > new), new, old - 1)),
        ("add", np.float32, np.add),
        ("add", np.float16, np.add),
        ("max", np.float16, np.maximum),
    ],
)
def test_reductions(operation, dtype, function):
    if np.dtype(dtype).kind == "f":
        array, image = (RNG.standard_normal(n).astype(dtype) for n in (16 * 16, 8 * 16))
    else:
        array, image = (RNG.integers(0, 99, n).astype(dtype) for n in (16 * 16, 8 * 16))
    array, image = array.reshape(16, 16), image.reshape(8, 16)
    wanted = array.copy()
    wanted[12:] = function(array[12:], image[:4])
    got = launch(box_store(TensorMap(array, (8, 16)), image.view(np.uint32), (0, 12), operation))
    np.testing.assert_array_equal(got, wanted)


def test_counters():
    array = np.zeros((64, 64), np.float16)
    kernel = box_load(TensorMap(array, (32, 64), swizzle="128B"), (0, 40))
    text, args, smem = kernel.text, kernel.args, kernel.dynamic_smem
    counters = run(text, "k", (1, 1, 1), (32, 1, 1), args, smem).counters
    assert counters["smsp__inst_executed_op_tma_ld.sum"] == 1
    assert counters["smsp__inst_executed_op_tma_st.sum"] == 0
    bytes_read = counters["l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"]
    assert bytes_read == 32 * 128  # includes rows out of bounds
    assert counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == 0


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            ("[%r3], [%q0, {%r10, %r11}]", "[%r3+64], [%q0, {%r10, %r11}]"),
            MisalignedAddressError,
            "of a box",
        ),
        (("mov.b32 %r10, 8", "mov.b32 %r10, 4"), MisalignedAddressError, "coordinate 4 of uint16"),
        (("add.u32 %r3, %r3, 0", "add.u32 %r3, %r3, 128"), OutOfBoundsError, "bulk copy of 256"),
        (("tensor.2d", "tensor.1d"), UnsupportedInstructionError, "unknown combination"),
        ((".tile.", ".im2col."), UnsupportedInstructionError, "im2col copies; only tiled"),
        (
            (
                "mov.u64 %q0, p0; cvta.param.u64 %q0, %q0;",
                "mov.u64 %q0, p1; cvta.param.u64 %q0, %q0;",
            ),
            EmulationError,
            "expected a tensor map of 2 axes",
        ),
    ],
)
def test_faults(change, error, message):
    kernel = box_load(TensorMap(np.zeros((16, 16), np.uint16), (16, 8)), (8, 0))
    assert change[0] in kernel.text
    kernel.text = kernel.text.replace(*change)
    with pytest.raises(error, match=message):
        launch(kernel)


FIELDS = (  # a map of float16 numbers, 64 per row, 24 rows, boxes of 8×32
    ("rank", "b32", "1"),
    *((f"{name}", "b32", f"{axis}, {value}") for name, values in (
        ("box_dim", (32, 8)), ("global_dim", (64, 24)), ("element_stride", (1, 1))
    ) for axis, value in enumerate(values)),
    ("global_stride", "b64", "0, 128"),
    ("elemtype", "b32", "6"),
    ("interleave_layout", "b32", "0"),
    ("swizzle_mode", "b32", "2"),
    ("fill_mode", "b32", "0"),
)  # fmt: skip


def replaced(fields):
    """Return box_load with a map that the kernel builds itself, starting from zeros."""
    array = RNG.standard_normal((24, 64)).astype(np.float16)
    tensor_map = TensorMap(array, (8, 32), swizzle="64B")
    kernel = box_load(tensor_map, (16, 20))
    clear = "".join(f"st.shared.u64 [map+{8 * k}], 0;" for k in range(16))
    make = "".join(
        f"tensormap.replace.tile.{name}.shared::cta.b1024.{type_} [map], {value};"
        for name, type_, value in (("global_address", "b64", "%q2"), *fields)
    )
    fence = "tensormap::generic.release.gpu.sync.aligned [%q0], [map], 128;"
    made = (
        f"ld.param.u64 %q2, [p2]; {clear} bar.sync 0; {make} bar.sync 0;"
        f"tensormap.cp_fenceproxy.global.shared::cta.{fence}"
        "fence.proxy.tensormap::generic.acquire.gpu [%q0], 128;"
    )
    text = kernel.text
    for old, new in (
        (".param .align 64 .b8 p0[128]", ".param .u64 p2, .param .u64 p0"),
        ("mov.u64 %q0, p0; cvta.param.u64 %q0, %q0;", f"ld.param.u64 %q0, [p0]; {made}"),
        (".shared .align 8 .b64 m;", ".shared .align 8 .b64 m; .shared .align 128 .b8 map[128];"),
    ):
        assert old in text
        text = text.replace(old, new)
    args = [array, np.zeros(128, np.uint8), kernel.results[0]]
    return Kernel(text, args, kernel.results, dynamic_smem=kernel.dynamic_smem), kernel


def test_a_kernel_may_make_its_maps_itself():
    made, given = replaced(FIELDS)
    assert np.array_equal(launch(made), launch(given)) and launch(given).any()


@pytest.mark.parametrize(
    ("name", "value"), [("rank", "5"), ("box_dim", "0, 257"), ("elemtype", "8"), ("fill_mode", "2")]
)
def test_fields_that_a_map_cannot_have(name, value):
    with pytest.raises(EmulationError, match=f"cannot have {value.split()[-1]} as {name}"):
        launch(replaced([*FIELDS, (name, "b32", value)])[0])


F2 = np.zeros((8, 32), np.float16)


@pytest.mark.parametrize(
    ("array", "box", "options", "error", "message"),
    [
        (np.zeros((2,) * 6, "f2"), (2,) * 6, {}, ShapeError, "1 to 5 axes"),
        (F2, (8,), {}, ShapeError, "box \\(8,\\) for an array of 2 axes"),
        (F2, (257, 8), {}, ShapeError, "1 to 256"),
        (F2, (8, 4), {}, ShapeError, "8 bytes, not a multiple of 16"),
        (F2, (8, 32), {"swizzle": "32B"}, ShapeError, "64 bytes, swizzle 32B allows 32"),
        (F2.T, (8, 8), {}, ShapeError, "transposed array"),
        (np.zeros((8, 9), "f2"), (8, 8), {}, ShapeError, "multiples of 16"),
        (F2, (8, 8), {"element_strides": (9, 1)}, ShapeError, "between 1 and 8"),
        (F2, (8, 8), {"element_strides": (1, 2)}, ShapeError, "last one must be 1"),
        (F2, (8, 8), {"swizzle": "16B"}, InputError, "no swizzle '16B'"),
        (F2.view("u2"), (8, 8), {"fill": "nan"}, InputError, "floating-point"),
        (F2.astype(complex), (8, 8), {}, DTypeError, "complex128"),
        (F2, (8, 8), {"format": "float32"}, DTypeError, "4 bytes per element, dtype float16 has 2"),
    ],
)
def test_rules(array, box, options, error, message):
    with pytest.raises(error, match=message):
        TensorMap(array, box, **options)


def test_a_stored_box_may_end_but_not_begin_outside():
    image = np.zeros(16 * 16 // 2, np.uint32)
    launch(box_store(TensorMap(np.zeros((16, 16), np.uint16), (16, 16)), image, (8, 8)))
    for at in ((-8, 0), (0, -1)):
        with pytest.raises(OutOfBoundsError, match=r"begins at .* before the tensor"):
            launch(box_store(TensorMap(np.zeros((16, 16), np.uint16), (16, 16)), image, at))


def test_a_map_must_be_of_an_array_and_fit_its_parameter():
    tensor_map = TensorMap(None, (8, 8), shape=(64, 64), format="float16")
    assert tensor_map.strides == (128, 2)
    kernel = box_load(TensorMap(F2, (8, 8)), (0, 0))
    with pytest.raises(LaunchError, match="argument 0: a tensor map of None"):
        run(kernel.text, "k", (1, 1, 1), (32, 1, 1), [tensor_map, kernel.args[1]], 1024)
    text = kernel.text.replace(".u64 p1", ".u32 p1").replace(".u64 %q1, [p1]", ".u32 %r1, [p1]")
    with pytest.raises(LaunchError, match=r"parameter .u32 of 4 bytes, but bytes has 128"):
        run(text, "k", (1, 1, 1), (32, 1, 1), [TensorMap(F2, (8, 8))] * 2, 1024)
    with pytest.raises(LaunchError, match=r"parameter .b8 of 128 bytes takes no list"):
        run(kernel.text, "k", (1, 1, 1), (32, 1, 1), [[TensorMap(F2, (8, 8))], kernel.args[1]])
    assert gemmlab.TensorMap is TensorMap and math.prod(tensor_map.box) == 64


@pytest.mark.parametrize("passed", ["by value", "by pointer", "in a list"])
@pytest.mark.parametrize("name", DEVICES)
def test_devices_take_maps_of_their_memory(name, passed, tmp_path):
    device = open_device(name)
    array = RNG.standard_normal((24, 64)).astype(np.float16)
    kernel = box_load(TensorMap(array, (8, 32), swizzle="64B"), (16, 20))
    path = tmp_path / "kernel.ptx"
    path.write_text(kernel.text if passed == "by value" else elsewhere(kernel, *POINTER))
    source, target = device.allocate(array.nbytes), device.allocate(kernel.results[0].nbytes)
    source.write(array)
    tensor_map = TensorMap(
        Span(source, 0, array.nbytes), (8, 32), swizzle="64B", format="float16", shape=array.shape
    )
    args = [[tensor_map] if passed == "in a list" else tensor_map, Span(target, 0, target.nbytes)]
    artifact, block = gemmlab.load(path), (kernel.threads, 1, 1)
    for cluster in (None, (1, 1, 1)):
        device.launch(artifact, (1, 1, 1), block, args, kernel.dynamic_smem, cluster)
        np.testing.assert_array_equal(
            target.read().view(np.uint32), expected_image(kernel.args[0], (16, 20), 0)
        )
