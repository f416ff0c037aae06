"""The runtime: the functions that all programs share."""

from __future__ import annotations

import numpy as np

from gemmlab.emulator.native import (
    accesses,
    barriers,
    bounds,
    copies,
    copy_costs,
    costs,
    mbarriers,
    schedule,
    transitions,
    transposes,
    wgmma,
)
from gemmlab.emulator.native.builder import Module
from gemmlab.emulator.native.support import ROUTINES

# Importing these modules fills the table ROUTINES.
MODULES = (
    *(costs, bounds, transposes, accesses, copy_costs, copies),
    *(barriers, mbarriers, transitions, schedule, wgmma),
)


def text() -> str:
    """Return the IR of the runtime's functions and of a table of their addresses."""
    module = Module()
    with np.errstate(all="ignore"):
        for name, routine in sorted(ROUTINES.items()):
            routine.define(module, name)
    pointers = ", ".join(f"ptr @{name}" for name in sorted(ROUTINES))
    return f"{module.text}@functions = constant [{len(ROUTINES)} x ptr] [{pointers}]\n"
