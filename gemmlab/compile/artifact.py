"""A compiled kernel, with everything that a device needs to launch it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from gemmlab.core.symbols import demangled

if TYPE_CHECKING:
    from gemmlab.compile.variables import Variables


@dataclass(frozen=True)
class Resources:
    """The resources that a kernel uses on a multiprocessor, as reported by ptxas."""

    registers: int  # per thread
    spill_bytes: int  # of local memory, per thread
    static_smem_bytes: int  # per block, without the system's reserved shared memory


@dataclass(frozen=True)
class ParameterType:
    """One kernel parameter as declared in the PTX.

    `ptx_type` is "u64", "s32", "f32", … or "b8" for a struct of `size` bytes. `name` is its name in
    the kernel's source. `dtype` is the NumPy name of its type, or of the type it points to. Both
    are "" if unknown.
    """

    ptx_type: str
    size: int  # bytes
    alignment: int  # bytes
    is_pointer: bool  # by the source if known; else declared .ptr, or 64 bits wide
    name: str = ""
    dtype: str = ""

    def __str__(self) -> str:
        """The declaration, with NumPy's names of types where known: "float32 *x", ".u64"."""
        type_ = self.dtype or (f".{self.ptx_type}" if self.size <= 8 else f"{self.size} bytes")
        star = "*" if self.is_pointer and self.dtype else ""
        return f"{type_} {star}{self.name}".rstrip()


@dataclass(frozen=True)
class VariableType:
    """One `__device__` or `__constant__` variable of a module.

    `name` is its C++ name, e.g. "lab::x"; `symbol` its PTX name. `dtype` is a NumPy name. A vector
    type such as float4 adds a last axis to `shape`. A struct is an array of bytes: `dtype` is
    "uint8" and the last axis is the struct's size.
    """

    name: str
    symbol: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Artifact:
    """One compiled kernel, as `gemmlab.load` returns it."""

    entry: str  # name of the kernel in the PTX
    ptx: str = field(repr=False)
    arch: str  # the GPU architecture, e.g. "sm_90a"
    parameters: tuple[ParameterType, ...]
    cubin: bytes | None = field(default=None, repr=False)  # None if the PTX was not assembled
    resources: Resources | None = None  # of the cubin
    block: tuple[int, int, int] | None = None  # the only block size it can run with (.reqntid)
    dynamic_smem_bytes: int = 0  # per block, that a rung needs
    origin: str = ""  # a rung or a file: "naive", "kernel.cu"
    versions: dict[str, str] = field(default_factory=dict)  # by name of the compiler
    options: str = ""  # the compiler's options
    left_out: tuple[str, ...] = ()  # host functions and headers removed from the source
    variable_types: tuple[VariableType, ...] = ()  # of its module

    @property
    def signature(self) -> str:
        """The kernel's declaration: "scale(float32 *x, int32 n)"."""
        name = demangled(self.entry).partition("(")[0]
        return f"{name}({', '.join(map(str, self.parameters))})"

    @cached_property
    def variables(self) -> Variables:
        """The module's `__device__` and `__constant__` variables, to read and set.

        Each Artifact has its own values. They persist between its launches.
        """
        from gemmlab.compile import variables

        return variables.of(self)
