"""Verdicts: is the result right, and did the kernel keep to its own memory. Never times."""

from gemmlab.lab.judge.buffers import Stage
from gemmlab.lab.judge.flows import arrays, examine_flow, judge_arrays
from gemmlab.lab.judge.judge import Examination, examine, inspect
from gemmlab.lab.judge.verdict import Mismatch, Status, Verdict

__all__ = [
    "Examination",
    "Mismatch",
    "Stage",
    "Status",
    "Verdict",
    "arrays",
    "examine",
    "examine_flow",
    "inspect",
    "judge_arrays",
]
