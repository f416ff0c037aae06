"""gemmlab: write GPU kernels in Python and see on any machine why they are fast or slow.

    artifact = gemmlab.load("kernel.cu", entry="sgemm", arch="sm_90a")
    run = gemmlab.emulate(artifact, grid=(8, 8), block=(32, 32), args=[a, b, c, 256, 256, 256])
    run.counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"]

Importing the package requires only NumPy. Other dependencies are imported on first use.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing takes time in which Ctrl-C is not handled yet
if TYPE_CHECKING:
    from typing import Any

    from gemmlab.compile import Artifact, load
    from gemmlab.core.tensor_map import TensorMap
    from gemmlab.devices import open_device
    from gemmlab.devices.emulated import emulate
    from gemmlab.emulator import Run
    from gemmlab.errors import GemmlabError
    from gemmlab.linalg.api import free_workspaces, last_plan, matmul, pack
    from gemmlab.linalg.prepared import Matmul

__version__: str

__all__ = [
    "Artifact",
    "GemmlabError",
    "Matmul",
    "Run",
    "TensorMap",
    "emulate",
    "free_workspaces",
    "last_plan",
    "load",
    "matmul",
    "open_device",
    "pack",
]

_HOMES = {
    "Artifact": "gemmlab.compile",
    "GemmlabError": "gemmlab.errors",
    "Matmul": "gemmlab.linalg.prepared",
    "Run": "gemmlab.emulator",
    "TensorMap": "gemmlab.core.tensor_map",
    "emulate": "gemmlab.devices.emulated",
    "free_workspaces": "gemmlab.linalg.api",
    "last_plan": "gemmlab.linalg.api",
    "load": "gemmlab.compile",
    "matmul": "gemmlab.linalg.api",
    "open_device": "gemmlab.devices",
    "pack": "gemmlab.linalg.api",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from gemmlab.lab.environment import own_version

        return own_version()
    if name not in _HOMES:
        raise AttributeError(f"module 'gemmlab' has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found  # later accesses do not call __getattr__
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
