"""Whole float32 PyTorch programs with and without gemmlab.torch.enable(). Minutes of GPU time.

    python -m benchmarks programs benchmarks/h200/programs.json [programs[:WORD]] [losses[:WORD]]

Needs PyTorch, and transformers, torchvision and gpytorch for the programs that use them. Each
program is timed eager and under torch.compile, in three ways that alternate: PyTorch's float32
(cuBLAS SGEMM), gemmlab, and TF32. Steps follow one another, as in a training loop. A time is the
median of the steps of all rounds, with the 10th and 90th percentile, between CUDA events. Where the
host is slower than the GPU, that is the host's time. So the record also has how long one step keeps
the GPU busy. Models have random weights; data are random.

Differences: of a computation's result to its result in float64, of a training step's gradients to
those of float32; the largest one, relative to the largest element of that tensor, for each way.

Losses are those of 200 steps of Adam from the same weights, with a quarter of the program's batch
and the same random data in every step. They are compared with those of float32; a second run of
float32 shows how far two runs differ anyway, as some of PyTorch's backward passes add in random
order.
"""

from functools import partial

from benchmarks.measurement import Measurement
from benchmarks.programs import steps, tables
from benchmarks.programs.models import PROGRAMS

MEASUREMENT = Measurement(
    parts={
        "programs": {name: partial(steps.measure, one) for name, one in PROGRAMS.items()},
        "losses": {
            name: partial(steps.curves, one) for name, one in PROGRAMS.items() if one.has_curve
        },
    },
    pages={"matmul.md": tables.tables},
    depth=3,
)
