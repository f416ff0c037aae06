"""The first product of a process, beyond PyTorch's own start; needs PyTorch. A minute.

    python -m benchmarks first-product benchmarks/h200/first-product.json

Each of ten fresh processes imports PyTorch and multiplies two matrices with it. Then it imports
gemmlab, multiplies the same matrices, and waits for the GPU; these seconds are the result. The
first process may compile Python files and is left out.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks import children
from benchmarks.first_product_child import SIZE, STEPS
from benchmarks.gpu import Gpu
from benchmarks.measurement import Measurement
from benchmarks.record import Row

PROCESSES = 10


def product(gpu: Gpu) -> Row:
    children.check_kernels()
    return summary(
        [children.main("first_product_child", gpu.place, str(SIZE)) for _ in range(PROCESSES)]
    )


def summary(runs: Sequence[Row]) -> Row:
    """Medians of all processes but the first; these must agree in what they loaded."""
    _, *kept = runs
    same = {name: kept[0][name] for name in ("tier", "of_the_lab")}
    assert all(run | same == run for run in kept), "the processes differ"
    seconds = {name: [run["seconds"][name] for run in kept] for name in STEPS}
    return {
        **same,
        "size": SIZE,
        "medians": {name: statistics.median(samples) for name, samples in seconds.items()},
        "gemmlab_s": [round(x, 4) for x in seconds["gemmlab_s"]],
    }


MEASUREMENT = Measurement(parts={"processes": {"float32": product}})
