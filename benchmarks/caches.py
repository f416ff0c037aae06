"""What each level of memory delivers, by Nsight Compute. A minute of GPU time.

    python -m benchmarks caches gemmlab/lab/explain/caches-h200.json

Launches the baseline, the best rungs and cuBLAS at 1024³ and 4096³, in both layouts. `gemmlab
explain` shows the readings. Needs ncu and CuPy or nvmath-python.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks import ncu
from benchmarks.children import command
from benchmarks.gpu import Gpu
from benchmarks.measurement import Measurement, Rows
from benchmarks.record import Row
from gemmlab import problems
from gemmlab.compile.cute import compile_rung
from gemmlab.errors import DeviceError
from gemmlab.kernels import ladder
from gemmlab.lab.explain.readings import CUBLAS

PROBLEM = problems.find("gemm")
SIZES = (1024, 4096)
# By layout. A rung comes first: its kernel separates the kernels of cuBLAS from those before.
NAMES = {"row": ("naive", "rasterized", CUBLAS), "course": ("naive-tnn", "async-copy", CUBLAS)}
LAUNCHES = [(name, layout, size) for layout in NAMES for size in SIZES for name in NAMES[layout]]
COUNTERS = (
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts_lookup_hit.sum",
    "lts__t_sectors_srcunit_tex_op_read.sum",
    "lts__t_sectors_op_read.sum",
    "lts__t_sectors_op_write.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "gpu__time_duration.sum",
)


def launch() -> None:
    """Launch everything twice, the second time for the profiler."""
    from gemmlab.lab.bench import baselines

    gpu = Gpu()
    device = gpu.device
    for name, layout, size in LAUNCHES:
        shape = dict.fromkeys(PROBLEM.axes, size)
        case = PROBLEM.case(shape, layout, "normal", 0)
        args: list[Any] = []
        for parameter in PROBLEM.parameters:
            if parameter.kind == "scalar":
                args.append(case.scalars[parameter.name])
            else:
                output = np.zeros(case.output_size, np.float32)
                args.append(gpu.placed(case.buffers.get(parameter.name, output)))
        if name == CUBLAS:
            [contender] = baselines.make(device, PROBLEM, layout, (CUBLAS,))
            run = contender.bind(args).run
        else:
            rung = ladder.find(name, layout)
            artifact = compile_rung(rung, device.arch)
            grid, block, smem = rung.geometry(rung.config, shape)
            run = device.prepare(artifact, grid, block, args, smem)
        run()
        device.call("cuProfilerStart")
        run()
        device.stream.sync()
        device.call("cuProfilerStop")


def readings(gpu: Gpu) -> Iterator[Row]:
    known = ncu.known()
    chosen = [name for name in COUNTERS if name.partition(".")[0] in known]
    options = ("--profile-from-start", "off", "--cache-control", "all")
    launches = ncu.read(command("caches", "launch"), chosen, *options)
    for (name, layout, size), counters in zip(LAUNCHES, summed(launches), strict=True):
        shape = dict.fromkeys(PROBLEM.axes, size)
        yield {
            **{"problem": "gemm", "rung": name, "layout": layout, "shape": shape},
            "counters": counters,
        }


def summed(launches: list[tuple[str, dict[str, int]]]) -> list[dict[str, int]]:
    """The counters of each product: those of its kernels are added.

    Raises DeviceError if the kernels are not those that were launched.
    """
    found: list[Counter[str]] = []
    after_rung = True
    for kernel, counters in launches:
        of_rung = kernel.startswith("gemm_")
        if of_rung or after_rung:
            found.append(Counter())
        found[-1].update(counters)
        after_rung = of_rung
    if len(found) != len(LAUNCHES):
        names = ", ".join(kernel for kernel, _ in launches)
        raise DeviceError(f"{len(LAUNCHES)} launches, but Nsight Compute read {names}")
    return [dict(counts) for counts in found]


def head(gpu: Gpu) -> Row:
    return {
        **gpu.facts(),
        "tool": f"Nsight Compute {ncu.version()}, --clock-control none --cache-control all",
        **{"arch": "sm_90a", "family": "normal"},
        "units": "bytes, sectors of 32 bytes, nanoseconds",
    }


MEASUREMENT = Measurement(
    parts={"readings": Rows(readings, ("rung", "layout", "shape"))}, head=head, depth=2
)
