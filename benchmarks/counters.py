"""Nsight Compute's counters of every rung at small shapes. Two minutes of GPU time.

    python -m benchmarks counters tests/readings/counters-families.json
    python -m benchmarks counters new.json readings:register-tiles

The tests compare the emulator with the readings of all problems but gemm; those of gemm go to
counters.json beside them. A rung whose readings are added is no longer pending. Needs ncu.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import ncu, rungs
from benchmarks.children import command
from benchmarks.gpu import Gpu
from benchmarks.measurement import Measurement, Rows
from benchmarks.record import Row

# An aligned and a ragged shape.
SIZES: dict[str, list[tuple[int, ...]]] = {
    "gemm": [(512, 512, 512), (300, 200, 100)],
    "transpose": [(192, 256), (67, 130)],
    "sum": [(16384,), (5003,)],
    "histogram": [(32768,)],
    "vector-add": [(16384,), (5003,)],
    "softmax": [(64, 256), (45, 101)],
    "layernorm": [(64, 256), (45, 101)],
    "scan": [(64, 256), (45, 101)],
    "conv2d": [(64, 96), (45, 67)],
    "attention": [(128,), (61,)],
}
COUNTERS = (
    *(f"l1tex__t_{what}_pipe_lsu_mem_global_op_{word}.sum"
      for what in ("requests", "sectors") for word in ("ld", "st", "atom", "red")),
    *(f"l1tex__t_{what}_pipe_lsu_mem_global_op_ldgsts_cache_access.sum"
      for what in ("requests", "sectors")),
    *(f"l1tex__t_{what}_pipe_lsu_mem_local_op_{word}.sum"
      for what in ("requests", "sectors") for word in ("ld", "st")),
    *(f"l1tex__data_{what}_pipe_lsu_mem_shared_op_{word}.sum"
      for what in ("pipe_lsu_wavefronts", "bank_conflicts") for word in ("ld", "st", "atom")),
    *(f"smsp__inst_executed_op_{word}.sum"
      for word in ("global_ld", "global_st", "global_red", "local_ld", "local_st", "shared_ld",
                   "shared_st", "shared_atom", "ldgsts", "ldsm", "tma_ld")),
    *(f"smsp__inst_executed_pipe_tensor{word}.sum" for word in ("", "_op_gmma", "_op_hmma")),
    "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum",
    *("smsp__inst_executed.sum", "smsp__thread_inst_executed.sum"),
    "smsp__thread_inst_executed_pred_on.sum",
)  # fmt: skip


def chosen(word: str = "") -> Iterator[rungs.Launch]:
    return rungs.launches(SIZES, ("row", "course"), all_families=True, word=word)


def launch(word: str) -> None:
    rungs.run(Gpu(), chosen(word))


def readings(gpu: Gpu, word: str = "") -> Iterator[Row]:
    known = ncu.known()
    names = [name for name in COUNTERS if name.partition(".")[0] in known]
    found = ncu.read(command("counters", "launch", word), names, "--profile-from-start", "off")
    for one, (_, counters) in zip(chosen(word), found, strict=True):
        yield one.row() | {"counters": counters}


def head(gpu: Gpu) -> Row:
    tool = f"Nsight Compute {ncu.version()}, --clock-control none"
    return {**gpu.facts(), "tool": tool, "arch": gpu.device.arch, "seed": 0}


SAME = ("problem", "rung", "layout", "family", "shape")
MEASUREMENT = Measurement(parts={"readings": Rows(readings, SAME, named=True)}, head=head)
