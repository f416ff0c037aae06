"""Explain a kernel's performance by formulas, compiler output and the emulator's counts."""

from gemmlab.lab.explain.explanation import Explanation, default_gpu, explain, explained
from gemmlab.lab.explain.subject import Subject, other_target, target_of

__all__ = [
    "Explanation",
    "Subject",
    "default_gpu",
    "explain",
    "explained",
    "other_target",
    "target_of",
]
