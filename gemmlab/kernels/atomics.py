"""Atomic operations without the old value: `red`, which needs no reply, instead of `atom`."""

from typing import Any

import cutlass
from cutlass import cute


@cute.jit
def add(pointer: cute.Pointer, value: Any, scope: cutlass.Constexpr = "gpu") -> None:
    """*pointer += value, atomically among the threads of `scope`: "gpu", or "cta" for a block."""
    cute.arch.red(pointer, value, op="add", dtype=type(value), sem="relaxed", scope=scope)


@cute.jit
def raise_to(pointer: cute.Pointer, value: Any) -> None:
    """*pointer = max(*pointer, value), atomically in the GPU; of unsigned numbers."""
    cute.arch.red(pointer, value, op="umax", dtype=type(value), sem="relaxed", scope="gpu")
