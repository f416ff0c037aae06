"""What a compiler made of one kernel, and all that a device needs to launch it."""

from __future__ import annotations

from dataclasses import dataclass, field


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
    the kernel's source, "" where that is not known.
    """

    ptx_type: str
    size: int  # bytes
    alignment: int  # bytes
    is_pointer: bool  # declared .ptr, or a 64-bit integer that may hold an address
    name: str = ""


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
