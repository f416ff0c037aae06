"""Variables of a kernel's module and the types of its parameters, as declared in C++."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from cuda.bindings import driver
from machine import DEVICES, TIERS

import gemmlab
from gemmlab.compile.declarations import parameter_names, plain_name
from gemmlab.compile.variables import Variables
from gemmlab.devices import open_device
from gemmlab.devices.cuda import CudaDevice
from gemmlab.devices.device import Span
from gemmlab.errors import DeviceError, DTypeError, ShapeError, UnknownNameError

SOURCE = """
#include <cuda_fp16.h>
typedef unsigned char byte;
struct Size { int m; float scale[3]; };
constexpr int TAPS = 4;
namespace lab { __constant__ float filter[2][TAPS * 2]; static __device__ byte seen[3]; }
__device__ int counter = 5;
__device__ unsigned long long total;
__device__ float4 corners[10];
__constant__ Size size;
__device__ half narrow[2];
__device__ const double table[3] = {1, 2, 3};
namespace { __device__ bool flag; }

extern "C" __global__ void k(float* __restrict__ y, const float4* v, int n /* of y */) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = lab::filter[1][i % 8] + size.scale[1] + corners[1].y + table[2] * flag;
  atomicAdd(&counter, 1);
  atomicAdd(&total, (unsigned long long)i);
  if (i == 0) {
    static __device__ int times;
    times++;
    lab::seen[2] = 7;
    narrow[1] = __float2half(1.5f);
  }
}
template <typename T, int N>
__global__ void of(T* x, size_t n, void* raw, T value) { x[n] = value; }
"""


@pytest.fixture
def kernel() -> gemmlab.Artifact:
    return gemmlab.load(SOURCE, entry="k")


def test_variables_have_the_types_of_the_source(kernel: gemmlab.Artifact) -> None:
    # Without TAPS and table: const, so part of the code.
    told = {v.name: (v.dtype, v.shape) for v in kernel.variable_types}
    assert told.pop("_ZZ1kE5times") == ("uint32", ())  # PTX's name: C++ cannot name this variable
    assert told == {
        "lab::filter": ("float32", (2, 8)),
        "lab::seen": ("uint8", (3,)),
        "counter": ("int32", ()),
        "total": ("uint64", ()),
        "corners": ("float32", (10, 4)),
        "size": ("uint8", (16,)),
        "narrow": ("float16", (2,)),
        "flag": ("bool", ()),
    }
    assert kernel.variables["counter"] == 5 and not kernel.variables["corners"].any()
    assert "counter: int32" in repr(kernel.variables)


@pytest.mark.slow
def test_variables_of_cudas_headers_are_left_out() -> None:
    text = """#include <cooperative_groups.h>
namespace lab { __constant__ int table[3]; }
extern "C" __global__ void k(float* x) { x[threadIdx.x] *= lab::table[1]; }"""
    kernel = gemmlab.load(text)
    assert kernel.ptx.count("_ZN4cuda3std") > 100
    (only,) = kernel.variable_types
    assert (only.name, only.dtype, only.shape) == ("lab::table", "int32", (3,))


@pytest.mark.parametrize("tier", TIERS)
def test_a_launch_finds_what_was_set_and_leaves_what_it_wrote(
    kernel: gemmlab.Artifact, tier: str
) -> None:
    kernel = gemmlab.load(SOURCE, entry="k")
    y, corner = np.zeros(64, np.float32), np.arange(40, dtype=np.float32).reshape(10, 4)
    kernel.variables["lab::filter"] = np.arange(16, dtype=np.float32).reshape(2, 8)
    kernel.variables["size"] = np.array([0, 0, 1000, 0], np.float32).view(np.uint8)
    kernel.variables.update(corners=corner, flag=True, total=1)
    for launches in (1, 2):
        gemmlab.emulate(kernel, grid=2, block=32, args=[y, corner, 64], tier=tier)
        np.testing.assert_array_equal(y, np.arange(64) % 8 + 8 + 1000 + 5 + 3)
        assert kernel.variables["counter"] == 5 + 64 * launches
        assert kernel.variables["total"] == 1 + launches * 64 * 63 // 2
        assert kernel.variables["_ZZ1kE5times"] == launches
    np.testing.assert_array_equal(kernel.variables["lab::seen"], [0, 0, 7])
    np.testing.assert_array_equal(kernel.variables["narrow"], [0, 1.5])
    assert gemmlab.load(SOURCE, entry="k").variables["counter"] == 5  # its own copy


@pytest.mark.parametrize("device", DEVICES)
def test_both_devices_have_them(kernel: gemmlab.Artifact, device: str) -> None:
    on = open_device(device)
    buffer = on.allocate(256)
    span = Span(buffer, 0, 256)
    kernel.variables["counter"] = 100
    kernel.variables["lab::filter"] = np.ones((2, 8), np.float32)
    on.launch(kernel, (2, 1, 1), (32, 1, 1), [span, span, 64])
    assert kernel.variables["counter"] == 164
    np.testing.assert_array_equal(buffer.read().view(np.float32), np.ones(64))
    other = gemmlab.load(SOURCE, entry="k")
    on.launch(other, (1, 1, 1), (32, 1, 1), [span, span, 64])
    assert (other.variables["counter"], kernel.variables["counter"]) == (37, 164)


def test_on_a_gpu_they_lie_where_the_driver_says(kernel: gemmlab.Artifact) -> None:
    def where(module: str, symbol: bytes) -> tuple[driver.CUresult, int, int]:
        assert module == "module of library of kernel"
        if symbol == b"counter":
            return driver.CUresult.CUDA_SUCCESS, driver.CUdeviceptr(4096), 4
        return driver.CUresult.CUDA_ERROR_NOT_FOUND, driver.CUdeviceptr(0), 0

    success = driver.CUresult.CUDA_SUCCESS
    device = CudaDevice.__new__(CudaDevice)
    device.name = "cuda:0"
    device._cu = SimpleNamespace(
        CUresult=driver.CUresult,
        cuKernelGetLibrary=lambda handle: (success, f"library of {handle}"),
        cuLibraryGetModule=lambda library: (success, f"module of {library}"),
        cuModuleGetGlobal=where,
    )
    ((address, image),) = device._variables(kernel, SimpleNamespace(handle="kernel"))
    assert address == 4096 and image is kernel.variables.images["counter"]
    with pytest.raises(DeviceError, match="variable total: the driver of cuda:0 does not find it"):
        kernel.variables["total"]
    kernel.variables["lab::seen"] = np.ones(3, np.uint8)
    with pytest.raises(DeviceError, match=r"variable lab::seen: .*; declare it outside .* static"):
        list(device._variables(kernel, SimpleNamespace(handle="kernel")))


@pytest.mark.parametrize(
    ("name", "value", "error", "told"),
    [
        ("cnt", 1, UnknownNameError, "no variable 'cnt'; it has: .*lab::filter"),
        ("counter", 1.5, DTypeError, "counter is int32; 1.5 does not fit"),
        ("counter", 2**31, DTypeError, "counter is int32; 2147483648 does not fit"),
        ("counter", np.float32(1), DTypeError, "counter is int32, not float32"),
        ("total", -1, DTypeError, "total is uint64; -1 does not fit"),
        ("lab::filter", np.zeros((2, 8)), DTypeError, r"float32\[2, 8\], not float64"),
        ("lab::filter", np.zeros((8, 2), "f4"), ShapeError, r"\[2, 8\], not of shape \(8, 2\)"),
        ("lab::filter", 0, ShapeError, r"not of shape \(\)"),
        ("size", b"12", ShapeError, "16 bytes; 2 bytes do not fit"),
    ],
)
def test_what_does_not_fit_is_refused(
    kernel: gemmlab.Artifact, name: str, value: object, error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        kernel.variables[name] = value


def test_a_value_that_was_read_is_no_way_to_write(kernel: gemmlab.Artifact) -> None:
    with pytest.raises(ValueError, match="read-only"):
        kernel.variables["corners"][0] = 9
    with pytest.raises(UnknownNameError, match="it has: none"):
        Variables({})["x"]


def test_variables_of_ptx_have_its_types(kernel: gemmlab.Artifact) -> None:
    variables = gemmlab.load(kernel.ptx).variables
    assert variables["counter"] == 5 and variables["table"].shape == (24,)


def test_parameters_have_the_types_and_names_of_the_source() -> None:
    artifact = gemmlab.load(SOURCE, entry="of<half, 3>")
    told = [(p.name, p.dtype, p.is_pointer) for p in artifact.parameters]
    types = [("x", "float16", True), ("n", "uint64", False), ("raw", "", True)]
    assert told == [*types, ("value", "float16", False)]
    of_k = [(p.name, p.dtype) for p in gemmlab.load(SOURCE, entry="k").parameters]
    assert of_k == [("y", "float32"), ("v", "float32"), ("n", "int32")]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["f8", "f4", 1], "argument 0, y: .* pointer to float32, not an array of float64"),
        ([">f4", "f4", 1], "argument 0 is an array of >f4; the byte order .* is little-endian"),
        (["f4", "i4", 1], "argument 1, v: .* pointer to float32, not an array of int32"),
        (["f4", "u1", 1], "argument 1, v: .* pointer to float32, not an array of uint8"),
        (["f4", "f4", np.float32(1)], "argument 2, n: the kernel takes int32, not float32"),
        (["f4", "f4", np.int64(1)], "argument 2, n: the kernel takes int32, not int64"),
    ],
)
def test_arrays_of_other_types_are_refused(
    kernel: gemmlab.Artifact, args: list[object], told: str
) -> None:
    given = [np.zeros(64, arg) if isinstance(arg, str) else arg for arg in args]
    with pytest.raises(DTypeError, match=told):
        gemmlab.emulate(kernel, grid=1, block=32, args=given)


@pytest.mark.parametrize("dtypes", [("f4", "c8"), ("f4", "f4")])
def test_what_c_takes_for_the_same_is_taken(kernel: gemmlab.Artifact, dtypes: list[str]) -> None:
    args = [*(np.zeros(64, dtype) for dtype in dtypes), np.uint32(1)]
    gemmlab.emulate(kernel, grid=1, block=32, args=args)
    text = "#include <cuda_fp16.h>\n__global__ void k(unsigned char* x, __half* h, uint* w) {}"
    raw = gemmlab.load(text)
    for dtype in ("f8", "u2"):
        bits = np.zeros(4, "u2"), np.zeros(4, "f2")
        gemmlab.emulate(raw, grid=1, block=1, args=[np.zeros(4, dtype), *bits])


def test_names_of_parameters_and_symbols() -> None:
    head = (
        "template <int N> __global__ __launch_bounds__(256, 2) void k(const float* __restrict__ a,"
    )
    text = f"{head} std::array<int, 3> b /* c, d */, const int n = 3) {{"
    assert parameter_names(text, "lab::k<3>", 3) == ("a", "b", "n")
    assert parameter_names(text, "k", 4) == ("",) * 4
    for symbol, name in {
        "counter": "counter",
        "_Z3addPKfPfi": "add",
        "_ZN3lab1wE": "lab::w",
        "_ZN29_INTERNAL_00000000_4_k_cu_big3lab6hiddenE": "lab::hidden",
        "_ZN3lab3fooIiE1xE": "_ZN3lab3fooIiE1xE",
        "_ZZ1kE2st": "_ZZ1kE2st",
    }.items():
        assert plain_name(symbol) == name
