"""The instruction limit per warp, above which a launch is assumed to loop forever."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Mask
from gemmlab.errors import BudgetError

if TYPE_CHECKING:
    from gemmlab.emulator.execution.machine import Machine

# About a minute for a single warp. A warp of a GEMM executes a few tens times k instructions.
MAX_INSTRUCTIONS = 10_000_000
"""The default instruction budget of a warp."""


def over_budget(machine: Machine, number: int, mask: Mask | None) -> NoReturn:
    """Raise BudgetError, located at the end of the innermost loop around basic block `number`."""
    blocks = machine.launch.program.blocks
    loops = [
        (last - first, last)
        for last, block in enumerate(blocks)
        for first in block.targets
        if first <= number <= last
    ]
    at = blocks[min(loops)[1] if loops else number]
    limit = machine.launch.max_instructions
    where = ", most recently in this loop" if loops else ""
    message = f"a warp has executed more than {limit:,} instructions{where}"
    lanes = machine.active(mask)
    if not lanes.any():  # the lanes exited in this very block
        lanes = np.ones_like(lanes)
    machine.fault(BudgetError, message, max(at.last - 1, 0), lanes, np.zeros(lanes.shape, np.int64))
