"""Machine code beside PTX: what a launch executed of it, and where it does something else."""

from gemmlab.sass.machine import MachineCode, analyse, counters

__all__ = ["MachineCode", "analyse", "counters"]
