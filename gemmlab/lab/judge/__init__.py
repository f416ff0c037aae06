"""Verdicts: whether a result is correct and all memory accesses were legal. No timing."""

from gemmlab.lab.judge.buffers import CaseMemory
from gemmlab.lab.judge.flows import arrays, examine_flow, judge_arrays
from gemmlab.lab.judge.judge import Examination, examine, inspect
from gemmlab.lab.judge.verdict import Mismatch, Status, Verdict

__all__ = [
    "CaseMemory",
    "Examination",
    "Mismatch",
    "Status",
    "Verdict",
    "arrays",
    "examine",
    "examine_flow",
    "inspect",
    "judge_arrays",
]
