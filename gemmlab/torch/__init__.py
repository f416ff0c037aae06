"""gemmlab for PyTorch: products as operators, and `enable()`, which makes a program use gemmlab.

    import gemmlab.torch

    gemmlab.torch.enable()  # float32 products now run on tensor cores where that is faster
    train(model)
    print(gemmlab.torch.report())

The operators take what PyTorch's operators of the same names take, and the `precision` of
`gemmlab.matmul`. CUDA tensors must be float32 and are multiplied by `gemmlab.matmul`, with its
errors. On the CPU, PyTorch's operator of the same name runs, in any of its dtypes.
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
