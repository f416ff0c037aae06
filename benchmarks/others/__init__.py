"""Times of kernels in the style of other authors, and of Triton's, with cold caches; one minute.

    python -m benchmarks others benchmarks/predicted/measured.json
    scripts/predict-others --measured benchmarks/predicted/measured.json

A time is the median of launches; before each, memory larger than L2 is filled. `triton` also stores
the PTX that Triton generates, with a directive, beside the other kernels. Predict the times before
you measure them: scripts/predict-others keeps its first predictions.
"""

from __future__ import annotations

import json
import statistics
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.gpu import Gpu
from benchmarks.measurement import Measurement
from benchmarks.record import Row
from gemmlab.compile.directive import parse
from gemmlab.lab import judge, kernel_file
from gemmlab.lab.directives.call import Call, bind, prepare

FOLDER = Path(__file__).parent
SIZES: dict[str, list[str]] = json.loads((FOLDER / "sizes.json").read_text(encoding="utf-8"))
FLUSH_BYTES, MOST, MOST_S = 256 << 20, 40, 0.4
# precision, block_m, block_n, block_k, warps, stages
TRITON = (("ieee", 64, 64, 32, 4, 3), ("tf32", 128, 64, 32, 4, 3), ("tf32", 128, 128, 32, 8, 3))


def path_of(name: str) -> Path:
    """The file of a kernel."""
    return next(path for path in FOLDER.glob(f"{name}.*") if path.suffix in (".cu", ".ptx"))


def call_of(file: kernel_file.KernelFile) -> Call:
    """The launch of a file's kernel, on data of its directive."""
    problem = file.problem
    if problem is None:
        return prepare(file.directive, 0)
    case = problem.case(file.shape(), file.layout, problem.families[0], 0)
    return bind(file.directive, problem, case, {**judge.arrays(problem, case), **case.scalars})


def cold(name: str, sizes: str, gpu: Gpu) -> Row:
    """Seconds of a launch with empty caches."""
    file = kernel_file.KernelFile.read(path_of(name), parse(sizes.split()))
    artifact, call = file.compiled(gpu.device.arch), call_of(file)
    args = [gpu.placed(x) if isinstance(x, np.ndarray) else x for x in call.args]
    launch = gpu.device.timed(artifact, call.grid, call.block, args, call.smem)
    flush = gpu.placed(np.zeros(FLUSH_BYTES, np.uint8))
    taken: list[float] = []
    while len(taken) < MOST and sum(taken) < MOST_S:
        gpu.device.clear(flush)
        taken.append(launch())
    return {"seconds": statistics.median(taken), "launches": len(taken)}


def store(work: tuple[str, int, int, int, int, int], gpu: Gpu) -> Row:
    """Store the PTX of Triton's product, with the directive of its launch."""
    from gemmlab.lab.bench.baselines.triton_kernel import matmul

    precision, block_m, block_n, block_k, warps, stages = work
    a, b, c = (gpu.empty(1024, 1024) for _ in "abc")
    strides = (1024, 1) * 3
    made = matmul[1024 // block_m, 1024 // block_n](
        *(a, b, c, 1024, 1024, 1024, *strides),
        *(block_m, block_n, block_k, precision),
        num_warps=warps,
        num_stages=stages,
    )
    name = f"triton-{precision}-{block_m}x{block_n}"
    words = [f"//! gemmlab problem=gemm layout=row block={32 * warps}"]
    words += [f"grid=ceil_div(m,{block_m}),ceil_div(n,{block_n}) smem={made.metadata.shared}"]
    words += ["args=a,b,c,m,n,k,k,n,n,x:f32[1]=zeros,y:f32[1]=zeros"]
    (FOLDER / f"{name}.ptx").write_text(" ".join(words) + "\n" + made.asm["ptx"])
    return {"file": f"{name}.ptx", "shared_bytes": made.metadata.shared}


MEASUREMENT = Measurement(
    parts={
        "triton": {f"{x[0]} {x[1]}x{x[2]}": partial(store, x) for x in TRITON},
        "times": {
            f"{name} {size}": partial(cold, name, size)
            for name, some in SIZES.items()
            for size in some
        },
    },
    depth=2,
)
