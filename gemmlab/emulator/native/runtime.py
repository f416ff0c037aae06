"""The runtime as a whole: the functions that are the same for all programs."""

from __future__ import annotations

import numpy as np

from gemmlab.emulator.native import (
    accesses,
    barriers,
    bounds,
    copies,
    costs,
    mbarriers,
    schedule,
    wgmma,
)
from gemmlab.emulator.native.builder import Module
from gemmlab.emulator.native.support import ROUTINES

# The modules whose import fills the table.
MODULES = (costs, bounds, accesses, copies, barriers, mbarriers, schedule, wgmma)
NUMBERS = {name: number for number, name in enumerate(ROUTINES)}


def text() -> str:
    """IR of all of them, and of a table of their addresses."""
    module = Module()
    with np.errstate(all="ignore"):
        for name, routine in ROUTINES.items():
            routine.define(module, name)
    pointers = ", ".join(f"ptr @{name}" for name in ROUTINES)
    return f"{module.text}@functions = constant [{len(ROUTINES)} x ptr] [{pointers}]\n"
