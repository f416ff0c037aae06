"""A PTX emulator: runs kernels without a GPU and computes the counters that hardware reports."""

from gemmlab.emulator.checks import CHECKS, Finding
from gemmlab.emulator.launch.launch import MAX_INSTRUCTIONS
from gemmlab.emulator.run import Run, run, static_smem_bytes
from gemmlab.emulator.trace import Trace

__all__ = [
    "CHECKS",
    "MAX_INSTRUCTIONS",
    "Finding",
    "Run",
    "Trace",
    "run",
    "static_smem_bytes",
]
