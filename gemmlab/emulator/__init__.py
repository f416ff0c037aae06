"""A PTX emulator in NumPy: runs a kernel with no GPU and counts what hardware would count."""

from gemmlab.emulator.run import Run, run

__all__ = ["Run", "run"]
