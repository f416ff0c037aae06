"""A PTX emulator in NumPy: runs a kernel with no GPU and counts what hardware would count."""

from gemmlab.emulator.checks import CHECKS, Finding
from gemmlab.emulator.counters.trace import Trace
from gemmlab.emulator.execution.budget import MOST_INSTRUCTIONS
from gemmlab.emulator.run import Run, run, static_smem_bytes

__all__ = [
    "CHECKS",
    "MOST_INSTRUCTIONS",
    "Finding",
    "Run",
    "Trace",
    "run",
    "static_smem_bytes",
]
