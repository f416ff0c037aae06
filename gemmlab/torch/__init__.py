"""gemmlab for PyTorch: products as operators, and `enable()`, which makes a program use gemmlab.

import gemmlab.torch

gemmlab.torch.enable()      # float32 products now run on tensor cores where that is faster
train(model)
print(gemmlab.torch.report())
"""

from gemmlab.linalg.operators import addmm, baddbmm, bmm, linear, mm
from gemmlab.torch.override import Report, disable, enable, enabled, report

__all__ = [
    "Report",
    "addmm",
    "baddbmm",
    "bmm",
    "disable",
    "enable",
    "enabled",
    "linear",
    "mm",
    "report",
]
