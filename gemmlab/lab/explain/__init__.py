"""Why a kernel is as fast as it is: formulas, the compiler's facts and the emulator's counts."""

from gemmlab.lab.explain.explanation import Explanation, default_gpu, explain

__all__ = ["Explanation", "default_gpu", "explain"]
