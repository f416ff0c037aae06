"""Explain a kernel's performance by formulas, compiler output and the emulator's counts."""

from gemmlab.lab.explain.explanation import Explanation, default_gpu, explain

__all__ = ["Explanation", "default_gpu", "explain"]
