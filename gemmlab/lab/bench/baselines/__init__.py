"""What kernels are compared with.

    gemm        cublas, torch, cupy, triton
    transpose   copy, torch, cupy
    sum         copy, cub, torch
    histogram   copy, cub, torch
    vector-add  copy, torch, cupy

Baselines work on the memory that the kernels get, in the same layout and leading dimensions.
`cublas` goes through the first of nvmath-python, CuPy and PyTorch that is installed, and its record
says through which, in which version, with which compute type: float32 with TF32 off, unless
another precision class is asked for.

Percentages are of the first of a problem's references that was measured in the same rounds: of
cuBLAS, or where that could not be, of torch.mm or cupy.matmul, which call it; elsewhere of a copy.
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
    """What percentages are of, the best first."""
    return _REFERENCES.get(problem, ("copy",))


def names(problem: str) -> tuple[str, ...]:
    """The baselines that there are for a problem, installed or not."""
    own = tuple(_BASELINES.get(problem, {}))
    return own if problem == "gemm" else ("copy", *own)


def make(
    device: CudaDevice,
    problem: Problem,
    layout: str,
    wanted: tuple[str, ...] | None,
    precision: str = IEEE,
) -> list[Contender]:
    """The baselines wanted, by default all whose package is installed; cuBLAS in that class.

    Raises MissingDependencyError for one that was asked for by name.
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
