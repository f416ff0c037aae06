"""What a compiler made of one kernel, and all that a device needs to launch it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from gemmlab.compile.variables import Variables


@dataclass(frozen=True)
class Resources:
    """What one kernel takes of a multiprocessor, as ptxas reports it."""

    registers: int  # per thread
    spill_bytes: int  # local memory per thread
    static_smem_bytes: int  # per block, without what the system reserves


@dataclass(frozen=True)
class ParameterType:
    """One kernel parameter as the PTX declares it.

    `ptx_type` is "u64", "s32", "f32", … or "b8" for a struct of `size` bytes. `name` is the one in
    the kernel's source, and `dtype` NumPy's name of its type, or of what it points to; both are ""
    where that is not known.
    """

    ptx_type: str
    size: int  # bytes
    alignment: int  # bytes
    is_pointer: bool  # by the source; else declared .ptr, or 64 bits that may hold an address
    name: str = ""
    dtype: str = ""


@dataclass(frozen=True)
class VariableType:
    """One variable. `name` is C++'s, "lab::x", and `symbol` the PTX's; `dtype` is NumPy's, and
    `shape` has the numbers of a vector type such as float4 as its last axis. A struct is bytes:
    its `dtype` is "uint8", its last axis its size."""

    name: str
    symbol: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Artifact:
    """One compiled kernel. `cubin` and `resources` are None for PTX that was not assembled."""

    entry: str
    ptx: str = field(repr=False)
    arch: str  # "sm_90a"
    parameters: tuple[ParameterType, ...]
    cubin: bytes | None = field(default=None, repr=False)
    resources: Resources | None = None
    block: tuple[int, int, int] | None = None  # .reqntid: the one block size it was compiled for
    dynamic_smem_bytes: int = 0
    origin: str = ""  # "naive", "kernel.cu"
    versions: dict[str, str] = field(default_factory=dict)  # compiler name -> version
    options: str = ""  # what the compiler was told
    left_out: tuple[str, ...] = ()  # functions and headers of the host, of a source that had them
    variable_types: tuple[VariableType, ...] = ()  # __device__ and __constant__, of its module

    @cached_property
    def variables(self) -> Variables:
        """Values of the module's variables, to be set and read; each Artifact has its own."""
        from gemmlab.compile import variables

        return variables.of(self)
