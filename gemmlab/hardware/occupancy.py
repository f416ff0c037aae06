"""How many blocks of a kernel fit on one multiprocessor, and which resource limits them.

The rules are those of NVIDIA's cuda_occupancy.h for the largest shared memory carve-out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gemmlab.errors import LaunchError
from gemmlab.hardware.specs import architecture


@dataclass(frozen=True)
class Occupancy:
    """Theoretical occupancy. `limits`: the number of blocks that each resource permits."""

    blocks_per_sm: int
    warps_per_sm: int
    fraction: float  # of the warps the multiprocessor can hold
    limiter: str  # "registers", "shared memory", "warps" or "blocks"
    limits: Mapping[str, int]


def occupancy(arch: str, threads: int, registers: int, smem_bytes: int) -> Occupancy:
    """Return the occupancy of a kernel with `threads` per block, `registers` per thread and
    `smem_bytes` (static and dynamic) per block.

    Raises LaunchError if a value exceeds the architecture's limits.
    """
    sm = architecture(arch)
    if not 1 <= threads <= 1024:
        raise LaunchError(f"{threads} threads per block are not between 1 and 1024")
    if not 0 <= registers <= sm.max_registers_per_thread:
        most = sm.max_registers_per_thread
        raise LaunchError(f"{registers} registers per thread are not between 0 and {most}")
    if not 0 <= smem_bytes <= sm.smem_per_block:
        raise LaunchError(
            f"{smem_bytes} bytes of shared memory per block are not between 0 and "
            f"{sm.smem_per_block}, the limit of {arch}"
        )
    warps = -(-threads // 32)
    warp_registers = _round_up(max(registers, 1) * 32, sm.register_unit)
    warps_by_registers = sm.registers_per_sm // sm.partitions // warp_registers * sm.partitions
    # The check assumes that every partition has as many warps as the fullest.
    fits = _round_up(warps, sm.partitions) * warp_registers <= sm.registers_per_sm
    block_smem = _round_up(smem_bytes + sm.smem_reserved, sm.smem_unit)
    limits = {
        "warps": sm.warps_per_sm // warps,
        "registers": warps_by_registers // warps if fits else 0,
        "shared memory": sm.smem_per_sm // block_smem if block_smem else sm.blocks_per_sm,
        "blocks": sm.blocks_per_sm,
    }
    limiter = min(limits, key=limits.__getitem__)
    blocks = limits[limiter]
    return Occupancy(blocks, blocks * warps, blocks * warps / sm.warps_per_sm, limiter, limits)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
