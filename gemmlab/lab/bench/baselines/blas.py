"""C = A·B by libraries: cuBLAS, and PyTorch and CuPy, which also call cuBLAS."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable
from typing import Any

import numpy as np

from gemmlab.core.packages import NVMATH
from gemmlab.devices.cuda import CudaDevice
from gemmlab.errors import MissingDependencyError
from gemmlab.lab.bench.baselines.arrays import cupy_on, matrix, torch_on
from gemmlab.lab.bench.contenders import Arguments, Bound, Contender
from gemmlab.lab.bench.record import IEEE

_TUNING = 5  # runs of each of cuBLASLt's candidate algorithms
# cuBLAS's compute type for float32 arrays, without the prefix CUBLAS_, by precision class. The FAST
# types round the operands for tensor cores; those of 16 bits also allow TF32 if it is faster.
COMPUTE_TYPES = {
    "ieee": "COMPUTE_32F",
    "x3": "COMPUTE_32F",
    "tf32": "COMPUTE_32F_FAST_TF32",
    "fp16": "COMPUTE_32F_FAST_16F",
    "bf16": "COMPUTE_32F_FAST_16BF",
}


class Product(Contender):
    """Base class of the baselines of gemm: its operands as arrays of a library."""

    def __init__(self, layout: str) -> None:
        self._row = layout == "row"

    def _operands(self, args: Arguments, array: Callable[[Any], Any]) -> tuple[Any, Any, Any]:
        a, b, c, m, n, k, lda, ldb, ldc = args
        return (
            array(matrix(a, m, k, lda, True)),
            array(matrix(b, k, n, ldb, self._row)),
            array(matrix(c, m, n, ldc, self._row)),
        )


class NvmathCublas(Product):
    """cuBLASLt through nvmath-python's stateful Matmul, planned and autotuned once; C in place.

    Autotuning selects the fastest of the candidates that cuBLASLt's heuristic proposes.
    """

    name, title = "cublas", "cuBLAS through nvmath-python"

    def __init__(self, device: CudaDevice, layout: str, precision: str = IEEE) -> None:
        super().__init__(layout)
        linalg: Any = NVMATH.load("nvmath.linalg")
        advanced: Any = NVMATH.load("nvmath.linalg.advanced")
        try:
            self._array = cupy_on(device).asarray
        except MissingDependencyError:
            torch = torch_on(device)
            self._array = lambda view: torch.as_tensor(view, device="cuda")
        self._advanced, self._stream = advanced, int(device.stream.handle)
        self.precision = _class_of(precision)
        compute_type = COMPUTE_TYPES[precision]
        self._options = {"compute_type": linalg.ComputeType[compute_type], "inplace": True}
        self._matmul: Any = None
        self.details = {
            "call": f"nvmath.linalg.advanced.Matmul, plan, autotune(iterations={_TUNING})",
            "compute_type": _described(compute_type),
            "cublas": _cublas_version(),
            "nvmath-python": importlib.metadata.version("nvmath-python"),
        }

    def bind(self, args: Arguments) -> Bound:
        a, b, c = self._operands(args, self._array)
        on = {"stream": self._stream}
        if self._matmul is None:
            self._matmul = self._advanced.Matmul(a, b, c=c, beta=0.0, options=self._options, **on)
            self._matmul.plan(**on)
            self._matmul.autotune(iterations=_TUNING, **on)
        matmul = self._matmul

        def run() -> None:
            matmul.reset_operands_unchecked(a=a, b=b, c=c)
            matmul.execute(**on)

        return Bound(run)


class CupyCublas(Product):
    """cublasGemmEx through CuPy's bindings."""

    name, title = "cublas", "cuBLAS through CuPy"

    def __init__(self, device: CudaDevice, layout: str, precision: str = IEEE) -> None:
        super().__init__(layout)
        self._cupy = cupy_on(device)
        self.precision = _class_of(precision)
        self._cublas = importlib.import_module("cupy_backends.cuda.libs.cublas")
        self._handle = self._cupy.cuda.device.get_cublas_handle()
        self._cublas.setMathMode(self._handle, self._cublas.CUBLAS_DEFAULT_MATH)
        self._compute_type = getattr(self._cublas, f"CUBLAS_{COMPUTE_TYPES[precision]}")
        self.details = {
            "call": "cublasGemmEx, CUBLAS_GEMM_DEFAULT, CUBLAS_DEFAULT_MATH",
            "compute_type": _described(COMPUTE_TYPES[precision]),
            "cublas": _dotted(self._cublas.getVersion(self._handle)),
            "cupy": self._cupy.__version__,
        }

    def bind(self, args: Arguments) -> Bound:
        """cuBLAS is column-major, so it computes a row-major C as Cᵀ = Bᵀ·Aᵀ."""
        a, b, c, m, n, k, lda, ldb, ldc = args
        a, b, c = (span.buffer.address + span.offset for span in (a, b, c))
        blas, float32 = self._cublas, self._cupy.cuda.runtime.CUDA_R_32F
        one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
        if self._row:
            operations, sizes = (blas.CUBLAS_OP_N, blas.CUBLAS_OP_N), (n, m, k)
            factors = (b, float32, ldb, a, float32, lda)
        else:
            operations, sizes = (blas.CUBLAS_OP_T, blas.CUBLAS_OP_N), (m, n, k)
            factors = (a, float32, lda, b, float32, ldb)
        product = (c, float32, ldc, self._compute_type, blas.CUBLAS_GEMM_DEFAULT)

        def run() -> None:
            scales = one.ctypes.data, zero.ctypes.data
            blas.gemmEx(self._handle, *operations, *sizes, scales[0], *factors, scales[1], *product)

        return Bound(run)


class TorchMatmul(Product):
    """torch.mm with TF32 off."""

    name, title = "torch", "torch.mm with TF32 off"

    def __init__(self, device: CudaDevice, layout: str) -> None:
        super().__init__(layout)
        self._torch = torch_on(device)
        self.details = {
            "call": "torch.mm(a, b, out=c), torch.backends.cuda.matmul.allow_tf32 = False",
            "compute_type": "float32, TF32 off",
            "torch": self._torch.__version__,
            "cuda": self._torch.version.cuda,
        }

    def bind(self, args: Arguments) -> Bound:
        torch = self._torch
        a, b, c = self._operands(args, lambda view: torch.as_tensor(view, device="cuda"))
        return Bound(lambda: torch.mm(a, b, out=c))


class TorchCublas(TorchMatmul):
    """cuBLAS through PyTorch, if neither nvmath-python nor CuPy is installed."""

    name, title = "cublas", "cuBLAS through torch.mm with TF32 off"


class CupyMatmul(Product):
    """cupy.matmul."""

    name, title = "cupy", "cupy.matmul"

    def __init__(self, device: CudaDevice, layout: str) -> None:
        super().__init__(layout)
        self._cupy = cupy_on(device)
        self.details = {
            "call": "cupy.matmul(a, b, out=c)",
            "compute_type": "float32, CuPy's default, TF32 off",
            "cupy": self._cupy.__version__,
        }

    def bind(self, args: Arguments) -> Bound:
        a, b, c = self._operands(args, self._cupy.asarray)
        return Bound(lambda: self._cupy.matmul(a, b, out=c))


def cublas(device: CudaDevice, layout: str, precision: str = IEEE) -> Contender:
    """Return cuBLAS in a precision class, through the best installed package.

    Raises MissingDependencyError if no installed package supports the class.
    """
    for way in (NvmathCublas, CupyCublas):
        try:
            return way(device, layout, precision)
        except MissingDependencyError:
            continue
    if _class_of(precision) != IEEE:
        raise MissingDependencyError(
            f"cuBLAS in class {precision} needs nvmath-python or CuPy; "
            "run: pip install 'gemmlab[bench]'"
        )
    return TorchCublas(device, layout)


def _class_of(precision: str) -> str:
    """Return the precision class that cuBLAS delivers for a requested one; it has no x3."""
    return IEEE if precision == "x3" else precision


def _described(compute_type: str) -> str:
    return f"CUBLAS_{compute_type}" + (", TF32 off" if compute_type == "COMPUTE_32F" else "")


def _cublas_version() -> str:
    from nvmath.bindings import cublasLt

    return _dotted(cublasLt.get_version())


def _dotted(version: int) -> str:
    """Format cuBLAS's version number, 11 and newer: 130100 is 13.1.0."""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"
