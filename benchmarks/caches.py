"""What each level of memory delivers, by Nsight Compute. Two minutes of GPU time.

    python -m benchmarks caches gemmlab/lab/explain/caches-h100.json
    python -m benchmarks caches new.json readings:wgmma,fp16x3

Launches every rung, and cuBLAS, at 1024³ and 4096³, in both layouts; counters of a product's
kernels are added. `gemmlab explain` shows the readings. Needs ncu and CuPy or nvmath-python.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from benchmarks import ncu, rungs
from benchmarks.children import command
from benchmarks.gpu import Gpu, Work
from benchmarks.measurement import Measurement, Rows
from benchmarks.record import Row
from gemmlab import problems
from gemmlab.compile.cute import compile_rung
from gemmlab.errors import DeviceError
from gemmlab.kernels import ladder
from gemmlab.lab.explain.readings import CUBLAS
from gemmlab.problems.problem import WORKSPACE

PROBLEM = problems.find("gemm")
CASES = [(layout, size) for layout in PROBLEM.layouts for size in (1024, 4096)]
OWN = ("gemm_", "matmul_")  # prefixes of the names of the rungs' kernels
COUNTERS = (
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts_lookup_hit.sum",
    "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum",
    "lts__t_sectors_srcunit_tex_op_read.sum",
    "lts__t_sectors_op_read.sum",
    "lts__t_sectors_op_write.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "gpu__time_duration.sum",
)


class Product(NamedTuple):
    name: str  # of a rung in its layout, or CUBLAS
    layout: str
    size: int

    @property
    def shape(self) -> dict[str, int]:
        return dict.fromkeys(PROBLEM.axes, self.size)

    def kernels(self, arch: str) -> int | None:
        """How many kernels it launches; None: only cuBLAS knows."""
        if self.name == CUBLAS:
            return None
        rung = ladder.find(self.name, self.layout)
        if rung.launches is None:
            return 1
        nowhere = dict.fromkeys((x.name for x in (*PROBLEM.parameters, WORKSPACE)), 0)
        return len(rung.launches(rung.config, self.shape, nowhere | self.shape, arch))


def products(arch: str, word: str = "") -> list[Product]:
    """All rungs of an architecture, then cuBLAS, in each case; their names contain the word, or one
    of several words separated by commas."""
    able = [rung for rung in ladder.rungs("gemm") if not rung.lacks(arch)]
    return [
        Product(name, layout, size)
        for layout, size in CASES
        for name in (*(ladder.label(ladder.in_layout(rung, layout)) for rung in able), CUBLAS)
        if any(part in name for part in word.split(","))
    ]


def launch(word: str) -> None:
    """Launch everything twice, the second time for the profiler."""
    from gemmlab.lab.bench import baselines

    gpu = Gpu()
    device = gpu.device
    for (layout, size), chosen in groupby(products(device.arch, word), lambda p: p[1:]):
        shape = dict.fromkeys(PROBLEM.axes, size)
        given = rungs.placed(gpu, PROBLEM, PROBLEM.case(shape, layout, "normal", 0))
        for name, *_ in chosen:
            if name == CUBLAS:
                [contender] = baselines.make(device, PROBLEM, layout, (CUBLAS,))
                work = [contender.bind(list(given.values())).run]
            else:
                rung = ladder.find(name, layout)
                artifact = compile_rung(rung, device.arch)
                calls = rungs.calls(gpu, rung, shape, given, artifact)
                work = [device.prepare(*call) for call in calls]

            def run(work: Sequence[Work] = work) -> None:
                for enqueue in work:
                    enqueue()

            run()
            rungs.profile(gpu, run)


def readings(gpu: Gpu, word: str = "") -> Iterator[Row]:
    known = ncu.known()
    chosen = [name for name in COUNTERS if name.partition(".")[0] in known]
    options = ("--profile-from-start", "off", "--cache-control", "all")
    launches = ncu.read(command("caches", "launch", word), chosen, *options)
    made = products(gpu.device.arch, word)
    counts = [product.kernels(gpu.device.arch) for product in made]
    for product, counters in zip(made, summed(launches, counts), strict=True):
        yield {
            **{"problem": "gemm", "rung": product.name, "layout": product.layout},
            **{"shape": product.shape, "counters": counters},
        }


def summed(
    launches: Sequence[tuple[str, dict[str, int]]], counts: Sequence[int | None]
) -> list[dict[str, int]]:
    """The counters of each product, whose kernels are added. counts: its kernels; None: all up to
    the next kernel of a rung.

    Raises DeviceError if the kernels are not those of these products.
    """
    found: list[dict[str, int]] = []
    left = deque(launches)
    for count in counts:
        added: Counter[str] = Counter()
        taken = 0
        while left and (taken < count if count else not left[0][0].startswith(OWN)):
            added.update(left.popleft()[1])
            taken += 1
        if taken < (count or 1):
            break
        found.append(dict(added))
    if left or len(found) != len(counts):
        read = ", ".join(kernel for kernel, _ in launches)
        raise DeviceError(f"{len(counts)} products, but Nsight Compute read {read}")
    return found


def head(gpu: Gpu) -> Row:
    return {
        **gpu.facts(),
        "tool": f"Nsight Compute {ncu.version()}, --clock-control none --cache-control all",
        **{"arch": "sm_90a", "family": "normal"},
        "units": "bytes, sectors of 32 bytes, nanoseconds",
    }


MEASUREMENT = Measurement(
    parts={"readings": Rows(readings, ("rung", "layout", "shape"), named=True)}, head=head, depth=2
)
