"""Limits of kernel launches, checked before anything runs."""

from __future__ import annotations

import math

from gemmlab.errors import LaunchError
from gemmlab.hardware.occupancy import occupancy
from gemmlab.hardware.specs import KB, architecture

# From the CUDA C++ Programming Guide; equal for every architecture in the table.
THREADS_PER_BLOCK = 1024
BLOCK_DIMS = (1024, 1024, 64)
GRID_DIMS = (2**31 - 1, 65535, 65535)
STATIC_SMEM = 48 * KB

Dim3 = tuple[int, int, int]


def check_launch(
    arch: str,
    grid: Dim3,
    block: Dim3,
    static_smem: int = 0,
    dynamic_smem: int = 0,
    registers: int = 0,
) -> None:
    """Raise LaunchError for a launch that no GPU of `arch` accepts, with the values and the rule.

    Shared memory is in bytes per block. Registers are per thread, 0 if unknown. Raises
    UnknownNameError for an architecture not in the table.
    """
    limit = architecture(arch).smem_per_block
    _check_dims("block", block, BLOCK_DIMS)
    _check_dims("grid", grid, GRID_DIMS)
    threads = math.prod(block)
    if threads > THREADS_PER_BLOCK:
        raise LaunchError(
            f"block {_show(block)} has {threads} threads; a block may have {THREADS_PER_BLOCK}"
        )
    if dynamic_smem < 0:
        raise LaunchError(f"{dynamic_smem} bytes of dynamic shared memory: must be 0 or more")
    if static_smem > STATIC_SMEM:
        raise LaunchError(
            f"{static_smem} bytes of static shared memory; a block may have {STATIC_SMEM}, "
            "more only as dynamic shared memory"
        )
    if static_smem + dynamic_smem > limit:
        raise LaunchError(
            f"{static_smem} bytes static + {dynamic_smem} dynamic shared memory; "
            f"a block may have {limit} on {arch}"
        )
    if not occupancy(arch, threads, registers, static_smem + dynamic_smem).blocks_per_sm:
        raise LaunchError(
            f"{threads} threads of {registers} registers each do not fit: "
            f"a multiprocessor has {architecture(arch).registers_per_sm}"
        )


def _check_dims(what: str, dims: Dim3, limits: Dim3) -> None:
    if len(dims) != 3:
        raise LaunchError(f"{what} {_show(dims)} has {len(dims)} dimensions; it must have 3")
    for axis, size, limit in zip("xyz", dims, limits, strict=True):
        if not 1 <= size <= limit:
            raise LaunchError(
                f"{what} {_show(dims)}: {what}.{axis} = {size} is not between 1 and {limit}"
            )


def _show(dims: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, dims)) + ")"
