"""Atomic addition whose old value nobody asks for: `red`, which is not waited for, not `atom`."""

from typing import Any

import cutlass
from cutlass import cute


@cute.jit
def add(pointer: cute.Pointer, value: Any, scope: cutlass.Constexpr = "gpu") -> None:
    """*pointer += value, seen whole by the threads of `scope`: "gpu", or "cta" for the block."""
    cute.arch.red(pointer, value, op="add", dtype=type(value), sem="relaxed", scope=scope)
