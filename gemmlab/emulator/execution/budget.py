"""How many instructions a warp may execute before it counts as one that never ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Mask
from gemmlab.errors import BudgetError

if TYPE_CHECKING:
    from gemmlab.emulator.execution.machine import Machine

# A warp alone takes about a minute for so many; a GEMM's has k times a few tens.
MOST_INSTRUCTIONS = 10_000_000


def over_budget(machine: Machine, number: int, mask: Mask | None) -> NoReturn:
    """Raise BudgetError at the end of the smallest loop around a basic block."""
    blocks = machine.launch.program.blocks
    loops = [
        (last - first, last)
        for last, block in enumerate(blocks)
        for first in block.targets
        if first <= number <= last
    ]
    at = blocks[min(loops)[1] if loops else number]
    limit = machine.launch.max_instructions
    where = ", the last ones in this loop" if loops else ""
    message = f"a warp has executed more than {limit:,} instructions{where}"
    lanes = machine.active(mask)
    if not lanes.any():  # they have just ended
        lanes = np.ones_like(lanes)
    machine.fault(BudgetError, message, max(at.last - 1, 0), lanes, np.zeros(lanes.shape, np.int64))
