"""The layout of variables in parameter space, shared memory and local memory.

CUDA reserves 1 KiB of shared memory per block. Cooperative groups larger than a warp synchronize
through it. The emulator allocates it only for kernels that read its address, before the kernel's
own variables, as on Hopper.
"""

from __future__ import annotations

from gemmlab.ptx.ir import Function, Module, Variable

RESERVED = "%reserved_smem_offset_"
# Special registers with the offsets of the reserved memory; values measured on an H200.
RESERVED_OFFSETS = {"begin": 0, "0": 0, "1": 0, "end": 288, "cap": 1024}


def _layout(variables: list[Variable]) -> tuple[dict[str, int], int]:
    """Name -> offset, and the total size in bytes."""
    offsets, end = {}, 0
    for v in variables:
        end = -(-end // v.alignment) * v.alignment
        offsets[v.name] = end
        end += v.size
    return offsets, end


def parameter_offsets(function: Function) -> dict[str, int]:
    return _layout(function.parameters)[0]


def shared_variables(module: Module, function: Function) -> list[Variable]:
    found = [v for v in (*module.variables, *function.variables) if v.space == "shared"]
    # Extern arrays share the dynamic shared memory, after all variables with a size.
    return sorted(found, key=lambda v: v.size == 0)


def shared_offsets(module: Module, function: Function) -> dict[str, int]:
    variables = shared_variables(module, function)
    offsets, _ = _layout([v for v in variables if v.size])
    base = reserved_shared_bytes(function)
    dynamic = dynamic_shared_offset(module, function)
    own = {name: base + offset for name, offset in offsets.items()}
    return own | {v.name: dynamic for v in variables if not v.size}


def reserved_shared_bytes(function: Function) -> int:
    """Bytes that CUDA reserves before the kernel's shared memory; 0 if the kernel never reads its
    address."""
    is_used = any(name.startswith(RESERVED) for name in function.specials)
    return RESERVED_OFFSETS["cap"] if is_used else 0


def static_shared_bytes(module: Module, function: Function) -> int:
    """Bytes of statically sized shared variables."""
    variables = [v for v in shared_variables(module, function) if v.size]
    return _layout(variables)[1]


def dynamic_shared_alignment(module: Module, function: Function) -> int:
    """The alignment in bytes of the kernel's dynamic shared memory."""
    return max([16, *(v.alignment for v in shared_variables(module, function) if not v.size)])


def dynamic_shared_offset(module: Module, function: Function) -> int:
    alignment = dynamic_shared_alignment(module, function)
    end = reserved_shared_bytes(function) + static_shared_bytes(module, function)
    return -(-end // alignment) * alignment


def local_layout(function: Function) -> tuple[dict[str, int], int]:
    """Offsets and total size of a thread's local variables, including the .param variables that
    pass call arguments."""
    return _layout([v for v in function.variables if v.space in ("local", "param")])
