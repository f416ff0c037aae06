"""A PTX emulator in NumPy: runs a kernel with no GPU and counts what hardware would count."""

from gemmlab.emulator.run import Run, run, static_smem_bytes

__all__ = ["Run", "run", "static_smem_bytes"]
