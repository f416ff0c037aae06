"""gemmlab in PyTorch programs: products as operators, and one line that makes a program use them.

import gemmlab.torch

gemmlab.torch.enable()      # from here on, float32 products run on tensor cores where faster
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
