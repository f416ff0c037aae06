"""The emulator's counters against Nsight Compute's readings of the same kernels on hardware."""

import json
from pathlib import Path

import numpy as np
import pytest

import gemmlab
from gemmlab import ladder, problems
from gemmlab.compile.cute import compile_rung

DOCUMENT = json.loads(
    (Path(__file__).parent.parent / "benchmarks" / "h200" / "counters.json").read_text()
)
# The aligned shape takes longer; the ragged one has every kind of access that it has.
READINGS = [r for r in DOCUMENT["readings"] if r["shape"]["m"] % 32]

EQUAL = (
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_local_op_st.sum",
    "smsp__inst_executed_op_shared_ld.sum",
    "smsp__inst_executed_op_shared_st.sum",
)
# Hardware adds waits that no address explains, never fewer wavefronts: the largest factor allowed.
AT_LEAST = {
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": 1.01,
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum": 1.16,
}


def test_every_rung_was_read_in_both_layouts():
    read = {(r["rung"], r["layout"]) for r in READINGS}
    rungs = [ladder.in_layout(g, layout) for g in ladder.rungs() for layout in ("row", "course")]
    assert read == {(ladder.label(rung), rung.config.layout) for rung in rungs}


@pytest.mark.parametrize("reading", READINGS, ids=lambda r: f"{r['rung']}-{r['layout']}")
def test_counters_are_the_hardwares(reading):
    gemm = problems.find("gemm")
    rung = ladder.find(reading["rung"], reading["layout"])
    case = gemm.case(reading["shape"], reading["layout"], DOCUMENT["family"], DOCUMENT["seed"])
    given = dict(case.buffers) | dict(case.scalars)
    given[case.output] = np.zeros(case.output_size, np.float32)
    grid, block, dynamic_smem = rung.geometry(rung.config, case.shape)
    counters = gemmlab.emulate(
        compile_rung(rung, DOCUMENT["arch"]),
        grid=grid,
        block=block,
        args=[given[parameter.name] for parameter in gemm.parameters],
        dynamic_smem=dynamic_smem,
    ).counters
    hardware = reading["counters"]
    assert {name: counters[name] for name in EQUAL} == {name: hardware[name] for name in EQUAL}
    for name, factor in AT_LEAST.items():
        assert counters[name] <= hardware[name] <= factor * counters[name]
