"""What is asked of cuBLAS in each precision class, through nvmath-python and through CuPy, neither
of which is there."""

import importlib.metadata
import sys
from enum import IntEnum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gemmlab.devices.device import Span
from gemmlab.lab.bench.baselines import arrays, blas

# cublasComputeType_t of cublas_api.h, without CUBLAS_
COMPUTE = {
    "COMPUTE_32F": 68,
    "COMPUTE_32F_FAST_16F": 74,
    "COMPUTE_32F_FAST_16BF": 75,
    "COMPUTE_32F_FAST_TF32": 77,
}
ASKED = {
    "ieee": "COMPUTE_32F",
    "x3": "COMPUTE_32F",
    "tf32": "COMPUTE_32F_FAST_TF32",
    "fp16": "COMPUTE_32F_FAST_16F",
    "bf16": "COMPUTE_32F_FAST_16BF",
}
M, N, K = 5, 4, 3


class Buffer:
    """Device memory by address alone."""

    def __init__(self, address):
        self.address = address


class Matmul:
    """nvmath-python's stateful product: what it was made with, and the last operands."""

    def __init__(self, a, b, *, c, beta, options, stream):
        self.operands, self.beta, self.options = [a, b, c], beta, options
        self.calls = []

    def plan(self, stream):
        self.calls.append("plan")

    def autotune(self, iterations, stream):
        self.calls.append("autotune")

    def reset_operands_unchecked(self, a, b, c):
        self.operands = [a, b, c]

    def execute(self, stream):
        self.calls.append("execute")


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(arrays, "CudaBuffer", Buffer)
    cupy = SimpleNamespace(
        asarray=lambda view: view.__cuda_array_interface__,
        __version__="14",
        cuda=SimpleNamespace(
            device=SimpleNamespace(get_cublas_handle=lambda: 7),
            runtime=SimpleNamespace(CUDA_R_32F=0),
        ),
    )
    monkeypatch.setattr(blas, "cupy_on", lambda device: cupy)
    return SimpleNamespace(stream=SimpleNamespace(handle=1))


@pytest.fixture
def nvmath(monkeypatch):
    enum: Any = IntEnum  # mypy wants its members to be constants
    linalg: Any = ModuleType("nvmath.linalg")
    made: list[Any] = []
    linalg.ComputeType = enum("ComputeType", COMPUTE)
    advanced: Any = ModuleType("nvmath.linalg.advanced")

    def multiply(*args, **words):
        made.append(Matmul(*args, **words))
        return made[-1]

    advanced.Matmul = multiply
    for module in (ModuleType("nvmath"), linalg, advanced):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(blas, "_cublas_version", lambda: "13.1.0")
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.0.0")
    return made


def arguments(layout):
    row = layout == "row"
    buffers: list[Any] = [Buffer(address) for address in (4096, 8192, 12288)]
    spans = [Span(buffer, 0, 4 * 64) for buffer in buffers]
    return [*spans, M, N, K, K, N if row else K, N if row else M]


@pytest.mark.parametrize("layout", ["row", "course"])
@pytest.mark.parametrize("precision", ASKED)
def test_nvmath_multiplies_float32_arrays_in_the_class_asked_for(nvmath, device, layout, precision):
    found = blas.cublas(device, layout, precision)
    found.bind(arguments(layout)).run()
    [product] = nvmath
    assert product.options["compute_type"].name == ASKED[precision]
    assert product.options["inplace"] and product.beta == 0
    assert product.calls == ["plan", "autotune", "execute"]
    assert {one["typestr"] for one in product.operands} == {"<f4"}
    assert [one["shape"] for one in product.operands] == [(M, K), (K, N), (M, N)]
    assert product.operands[2]["strides"] == ((4 * N, 4) if layout == "row" else (4, 4 * M))
    assert found.precision == ("ieee" if precision == "x3" else precision)
    assert found.details["compute_type"].startswith(f"CUBLAS_{ASKED[precision]}")
    assert ("TF32 off" in found.details["compute_type"]) == (found.precision == "ieee")


@pytest.mark.parametrize("precision", ASKED)
def test_cupy_multiplies_float32_arrays_in_the_class_asked_for(device, monkeypatch, precision):
    calls, names = [], {f"CUBLAS_{name}": value for name, value in COMPUTE.items()}
    library = SimpleNamespace(
        **names,
        **{"CUBLAS_DEFAULT_MATH": 0, "CUBLAS_GEMM_DEFAULT": -1, "CUBLAS_OP_N": 0, "CUBLAS_OP_T": 1},
        setMathMode=lambda handle, mode: None,
        getVersion=lambda handle: 130100,
        gemmEx=lambda *args: calls.append(args),
    )
    monkeypatch.setitem(sys.modules, "nvmath.linalg", None)
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs.cublas", library)
    found = blas.cublas(device, "row", precision)
    assert found.title == "cuBLAS through CuPy"
    found.bind(arguments("row")).run()
    [args] = calls
    handle, *operations, n, m, k = args[:6]
    assert (handle, operations, m, n, k) == (7, [0, 0], M, N, K)
    # Row-major C is column-major Cᵀ = Bᵀ·Aᵀ: B comes first. All three are CUDA_R_32F.
    assert args[7:13] == (8192, 0, N, 4096, 0, K) and args[14:17] == (12288, 0, N)
    assert args[17] == COMPUTE[ASKED[precision]]
