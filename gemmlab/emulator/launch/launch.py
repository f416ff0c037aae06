"""A launch: what all its blocks share."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gemmlab.emulator.launch.printing import Screen
from gemmlab.emulator.memory.arena import GlobalMemory
from gemmlab.emulator.memory.heap import Heap
from gemmlab.emulator.program import Program
from gemmlab.errors import LaunchError
from gemmlab.ptx.ir import Symbol

Dim3 = tuple[int, int, int]
# About a minute for a single warp. A warp of a GEMM executes a few tens times k instructions.
MAX_INSTRUCTIONS = 10_000_000
"""The default instruction budget of a warp."""


@dataclass(frozen=True)
class Launch:
    """Everything that all blocks of a launch share."""

    program: Program
    grid: Dim3
    block: Dim3
    parameters: np.ndarray  # bytes
    memory: GlobalMemory
    variables: dict[str, int]  # .global and .const variable -> address
    shared_bytes: int  # static and dynamic
    local_bytes: int  # per thread
    dynamic_bytes: int = 0
    cluster: Dim3 = (1, 1, 1)  # in blocks
    exact_tensor: bool = True  # tensor cores round as hardware does
    heap: Heap | None = None  # only if the kernel calls malloc or free
    max_instructions: int = MAX_INSTRUCTIONS  # per warp
    screen: Screen = field(default_factory=Screen)

    def address_of(self, symbol: Symbol) -> int:
        """The address of a global variable or a function. Raises LaunchError if it has none."""
        address = self.variables.get(symbol.name, self.program.module.code_address(symbol.name))
        if address is None:
            raise LaunchError(f"a variable holds the address of {symbol.name}, which has none")
        return (address + symbol.offset) % (1 << 64)

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]
