"""What each level of memory delivers, by Nsight Compute. A minute of GPU time.

    python -m benchmarks caches gemmlab/lab/explain/caches-h100.json

Launches every rung of one launch, and cuBLAS, at 1024³ and 4096³, in both layouts. `gemmlab
explain` shows the readings. Needs ncu and CuPy or nvmath-python.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from benchmarks import ncu, rungs
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
CASES = [(layout, size) for layout in PROBLEM.layouts for size in (1024, 4096)]
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


def names(layout: str) -> list[str]:
    """The rungs, then cuBLAS: a rung's kernel parts its kernels from those of the next case."""
    single = [rung for rung in ladder.rungs("gemm") if rung.launches is None]
    return [*(ladder.label(ladder.in_layout(rung, layout)) for rung in single), CUBLAS]


def launch() -> None:
    """Launch everything twice, the second time for the profiler."""
    from gemmlab.lab.bench import baselines

    gpu = Gpu()
    device = gpu.device
    for layout, size in CASES:
        shape = dict.fromkeys(PROBLEM.axes, size)
        given = rungs.placed(gpu, PROBLEM, PROBLEM.case(shape, layout, "normal", 0))
        for name in names(layout):
            if name == CUBLAS:
                [contender] = baselines.make(device, PROBLEM, layout, (CUBLAS,))
                run = contender.bind(list(given.values())).run
            else:
                rung = ladder.find(name, layout)
                artifact = compile_rung(rung, device.arch)
                [call] = rungs.calls(gpu, rung, shape, given, artifact)
                run = device.prepare(*call)
            run()
            rungs.profile(gpu, run)


def readings(gpu: Gpu) -> Iterator[Row]:
    known = ncu.known()
    chosen = [name for name in COUNTERS if name.partition(".")[0] in known]
    options = ("--profile-from-start", "off", "--cache-control", "all")
    launches = ncu.read(command("caches", "launch"), chosen, *options)
    products = [(name, *case) for case in CASES for name in names(case[0])]
    for (name, layout, size), counters in zip(
        products, summed(launches, len(products)), strict=True
    ):
        shape = dict.fromkeys(PROBLEM.axes, size)
        yield {
            **{"problem": "gemm", "rung": name, "layout": layout, "shape": shape},
            "counters": counters,
        }


def summed(launches: list[tuple[str, dict[str, int]]], count: int) -> list[dict[str, int]]:
    """The counters of each of `count` products: those of its kernels are added.

    A kernel of cuBLAS that follows another belongs to the same product. Raises DeviceError if the
    kernels are not those of so many products.
    """
    found: list[Counter[str]] = []
    after_rung = True
    for kernel, counters in launches:
        of_rung = kernel.startswith("gemm_")
        if of_rung or after_rung:
            found.append(Counter())
        found[-1].update(counters)
        after_rung = of_rung
    if len(found) != count:
        read = ", ".join(kernel for kernel, _ in launches)
        raise DeviceError(f"{count} products, but Nsight Compute read {read}")
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
