"""The emulator's counters against Nsight Compute's readings of the same kernels on hardware."""

import json
from pathlib import Path

import numpy as np
import pytest

import gemmlab
from gemmlab import problems, sass
from gemmlab.compile.cute import compile_rung
from gemmlab.kernels import ladder

FOLDER = Path(__file__).parent / "readings"
DOCUMENT = json.loads((FOLDER / "counters.json").read_text())
# The ragged shape has every kind of access that the aligned one has, and is faster.
GEMM = [r for r in DOCUMENT["readings"] if r["shape"]["m"] % 32]
OTHERS = json.loads((FOLDER / "counters-families.json").read_text())["readings"]
READINGS = [{"problem": "gemm", "family": DOCUMENT["family"]} | r for r in GEMM] + OTHERS

EQUAL = (
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_local_op_st.sum",
    "smsp__inst_executed_op_shared_atom.sum",
    "smsp__inst_executed_op_global_atom.sum",
    "smsp__inst_executed_op_global_red.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom.sum",
    "smsp__inst_executed_op_ldgsts.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_access.sum",
)
# Equal unless ptxas converted a branch into predicates, as it does around guarded shared memory
# accesses: hardware counts an instruction as executed even if all its lanes are off.
INSTRUCTIONS = ("smsp__inst_executed_op_shared_ld.sum", "smsp__inst_executed_op_shared_st.sum")
# Hardware adds waits that addresses do not explain, never fewer wavefronts: the largest factor.
AT_LEAST = {
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": 1.01,
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum": 1.16,
    # More only if a warp's atomics access eight lines at once.
    "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum": 1.02,
}
# Machine code: all instructions, and all memory instructions.
EXECUTED = ("smsp__inst_executed.sum", "smsp__thread_inst_executed.sum")


@pytest.mark.parametrize("name", problems.NAMES)
def test_every_rung_was_read_in_every_layout(name):
    read = {(r["rung"], r["layout"]) for r in READINGS if r["problem"] == name}
    layouts = problems.find(name).layouts
    rungs = [ladder.in_layout(rung, layout) for rung in ladder.rungs(name) for layout in layouts]
    rungs = [rung for rung in rungs if rung.launches is None and not rung.pending]
    assert read == {(ladder.label(rung), rung.layout) for rung in rungs}


@pytest.mark.parametrize("reading", READINGS, ids=lambda r: f"{r['rung']}-{r['layout']}")
@pytest.mark.slow
def test_counters_are_the_hardwares(reading):
    problem = problems.find(reading["problem"])
    rung = ladder.find(reading["rung"], reading["layout"], problem.name)
    case = problem.case(reading["shape"], reading["layout"], reading["family"], DOCUMENT["seed"])
    given = dict(case.buffers) | dict(case.scalars)
    given[case.output] = np.zeros(case.output_size, case.output_dtype)
    grid, block, dynamic_smem = rung.geometry(rung.config, case.shape)
    workspace = []
    if rung.workspace:
        workspace.append(np.zeros(rung.workspace(rung.config, case.shape), np.uint8))
    artifact = compile_rung(rung, DOCUMENT["arch"])
    run = gemmlab.emulate(
        artifact,
        grid=grid,
        block=block,
        args=[given[parameter.name] for parameter in problem.parameters] + workspace,
        dynamic_smem=dynamic_smem,
    )
    counters, hardware = run.counters, reading["counters"]
    names = [name for name in EQUAL if name in hardware]
    assert {name: counters[name] for name in names} == {name: hardware[name] for name in names}
    # With cp.async hardware counts three more loads per tile and warp, without wavefronts.
    copies = hardware.get("smsp__inst_executed_op_ldgsts.sum")
    for name in INSTRUCTIONS:
        assert counters[name] <= hardware[name]
        assert counters[name] == hardware[name] or problem.name != "gemm" or copies
    for name, factor in AT_LEAST.items():
        read = hardware.get(name, counters[name])
        assert counters[name] <= read <= factor * counters[name]
    machine = sass.analyse(artifact, run).counters
    same = machine.keys() & hardware.keys()
    assert {name: machine[name] for name in same} == {name: hardware[name] for name in same}
    assert same >= {name for name in EXECUTED if name in hardware}
