"""A PTX emulator in NumPy: runs a kernel with no GPU and counts what hardware would count."""

from gemmlab.emulator.run import Run, run, static_smem_bytes
from gemmlab.emulator.trace import Trace

__all__ = ["Run", "Trace", "run", "static_smem_bytes"]
