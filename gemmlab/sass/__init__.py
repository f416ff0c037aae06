"""Machine code (SASS) of a kernel: how often a launch executes it, and where its memory accesses
differ from the PTX."""

from gemmlab.sass.machine import MachineCode, analyse, counters

__all__ = ["MachineCode", "analyse", "counters"]
