"""The libraries that kernels are compared with.

    gemm        cublas, torch, cupy, triton
    transpose   copy, torch, cupy
    sum         copy, cub, torch
    histogram   copy, cub, torch
    vector-add  copy, torch, cupy

Baselines use the same memory as the kernels, with the same layout and leading dimensions. `cublas`
is called through the first of nvmath-python, CuPy and PyTorch that is installed. Its record names
that package, its version and the compute type: float32 with TF32 off, unless another precision
class is requested.

Percentages are relative to the first of a problem's references that was measured in the same
rounds. For gemm these are cuBLAS, torch.mm and cupy.matmul, which both call cuBLAS; for other
problems, a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemmlab.devices.cuda import CudaDevice
from gemmlab.errors import MissingDependencyError
from gemmlab.lab.bench.baselines import blas, memory, triton_gemm
from gemmlab.lab.bench.contenders import Contender, CopyContender
from gemmlab.lab.bench.record import IEEE
from gemmlab.problems.problem import Problem

_Make = Callable[[CudaDevice, Any], Contender]

_BASELINES: dict[str, dict[str, _Make]] = {
    "gemm": {
        "cublas": blas.cublas,
        "torch": blas.TorchMatmul,
        "cupy": blas.CupyMatmul,
        "triton": triton_gemm.TritonMatmul,
    },
    "transpose": {"torch": memory.TorchTranspose, "cupy": memory.CupyTranspose},
    "sum": {"cub": memory.CubSum, "torch": memory.TorchSum},
    "histogram": {"cub": memory.CubHistogram, "torch": memory.TorchHistogram},
    "vector-add": {"torch": memory.TorchAdd, "cupy": memory.CupyAdd},
}


_REFERENCES = {"gemm": ("cublas", "torch", "cupy")}


def references(problem: str) -> tuple[str, ...]:
    """Return the names of a problem's references for percentages, the preferred one first."""
    return _REFERENCES.get(problem, ("copy",))


def names(problem: str) -> tuple[str, ...]:
    """Return the names of a problem's baselines, installed or not."""
    own = tuple(_BASELINES.get(problem, {}))
    return own if problem == "gemm" else ("copy", *own)


def make(
    device: CudaDevice,
    problem: Problem,
    layout: str,
    wanted: tuple[str, ...] | None,
    precision: str = IEEE,
) -> list[Contender]:
    """Create the baselines `wanted`; None selects all that are installed.

    cuBLAS computes in the class `precision`. Raises MissingDependencyError if a baseline requested
    by name is not installed.
    """
    made: list[Contender] = []
    for name in names(problem.name) if wanted is None else wanted:
        try:
            if name == "copy":
                made.append(CopyContender(device))
            elif name == "cublas":
                made.append(blas.cublas(device, layout, precision))
            else:
                made.append(_BASELINES[problem.name][name](device, layout))
        except MissingDependencyError:
            if wanted is not None:
                raise
    return made
