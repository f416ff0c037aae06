"""The error of a launch that is assumed to loop forever."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Mask
from gemmlab.emulator.launch.threads import Threads
from gemmlab.errors import BudgetError


def over_budget(
    threads: Threads, number: int, mask: Mask | None, executed: int = 0, seconds: float = 0.0
) -> NoReturn:
    """Raise BudgetError, located at the end of the innermost loop around basic block `number`.

    seconds: for how long no block has ended, if that is the reason; a warp has then executed
    `executed` instructions.
    """
    blocks = threads.launch.program.blocks
    loops = [
        (last - first, last)
        for last, block in enumerate(blocks)
        for first in block.targets
        if first <= number <= last
    ]
    at = blocks[min(loops)[1] if loops else number]
    limit = threads.launch.max_instructions
    where = ", most recently in this loop" if loops else ""
    message = f"a warp has executed more than {limit:,} instructions (max_instructions){where}"
    if seconds:
        message = (
            f"no block has ended in {seconds:.0f} s, and a warp has executed {executed:,} "
            f"instructions{where}; a larger max_instructions allows more"
        )
    lanes = threads.active(mask)
    if not lanes.any():  # the lanes exited in this very block
        lanes = np.ones_like(lanes)
    threads.fault(BudgetError, message, max(at.last - 1, 0), lanes, np.zeros(lanes.shape, np.int64))
