"""The emulator's counters against Nsight Compute's readings of the same kernels on hardware."""

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from gemmlab import problems, sass
from gemmlab.compile.cute import compile_rung
from gemmlab.devices.device import Launched, Span
from gemmlab.devices.emulated import EmulatedDevice
from gemmlab.emulator import Trace
from gemmlab.kernels import ladder
from gemmlab.linalg.runtime import executor
from gemmlab.problems.problem import WORKSPACE

FOLDER = Path(__file__).parent / "readings"
DOCUMENT = json.loads((FOLDER / "counters.json").read_text())
GEMM = [{"problem": "gemm", "family": DOCUMENT["family"]} | r for r in DOCUMENT["readings"]]
OTHERS = [
    reading
    for name in ("counters-families.json", "counters-h100.json", "counters-packed.json")
    for reading in json.loads((FOLDER / name).read_text())["readings"]
]
# The ragged shape of a GEMM has every kind of access that the aligned one has, and is faster.
READINGS = [r for r in GEMM + OTHERS if r["problem"] != "gemm" or r["shape"]["m"] % 32]

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
    "smsp__inst_executed_op_ldgsts.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_access.sum",
)
# Equal unless ptxas converted a branch into predicates, as it does around guarded shared memory
# accesses: hardware counts an instruction as executed even if all its lanes are off.
INSTRUCTIONS = ("smsp__inst_executed_op_shared_ld.sum", "smsp__inst_executed_op_shared_st.sum")
# At the end of a tile, LLVM moves one load behind a branch and ptxas another one: at the ragged
# shape, a warp executes the first but not the second. Counts from machine code are equal.
MOVED = {("gemm:fp16x3", INSTRUCTIONS[0]): 1, ("gemm:bf16x6", INSTRUCTIONS[0]): 1}
# Hardware adds waits that addresses do not explain, never fewer wavefronts: the largest factor.
AT_LEAST = {
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": 1.01,
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum": 1.16,
    # Equal for all rungs but histogram:wide-loads.
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum": 1.03,
    # More only if a warp's atomics access eight lines at once.
    "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum": 1.02,
}
# Warps of these rungs part: ptxas unrolls a loop by four, so lanes with four turns left and lanes
# with three take different ways. The largest factor of their global loads, at ragged shapes.
PARTED = ("softmax:row-per-warp", "softmax:online", "layernorm:row-per-warp")
MOST_PARTED = 1.5
# Instructions of these rungs are estimates: ptxas rotates and copies a loop so that its turns
# cannot be told from the PTX. The largest factor, either way.
ESTIMATED = {
    "sum:loads-in-flight": 1.05,
    "sum:fixed-order": 1.01,
    "histogram:wide-loads": 1.01,
    "softmax:row-per-warp": 1.8,
    "softmax:online": 1.6,
    "layernorm:row-per-warp": 1.5,
    "scan:hillis-steele": 1.1,
    "conv2d:direct": 1.001,
    "gemm:tensor-core": 1.0021,
    "gemm:tensor-core-pipelined": 1.0011,
    "gemm:wgmma": 1.0002,
    "gemm:wgmma-tma": 1.04,  # stores at edges
}
# These rungs ask an mbarrier again until it is ready, as often as the time takes.
WAITING = (
    *("transpose:bulk-copies", "gemm:copy-warps", "gemm:operand-reuse", "gemm:wgmma-tma"),
    *("gemm:warp-specialized", "gemm:short-chains", "gemm:fp16x3", "gemm:bf16x6"),
)
# Machine code: all instructions, and all memory instructions.
EXECUTED = ("smsp__inst_executed.sum", "smsp__thread_inst_executed.sum")


@pytest.mark.parametrize("name", problems.NAMES)
def test_every_rung_was_read_in_every_layout(name):
    read = {(r["rung"], r["layout"]) for r in READINGS if r["problem"] == name}
    layouts = problems.find(name).layouts
    rungs = [ladder.in_layout(rung, layout) for rung in ladder.rungs(name) for layout in layouts]
    rungs = [rung for rung in rungs if not rung.pending]
    assert read == {(ladder.label(rung), rung.layout) for rung in rungs}


class OneOf(EmulatedDevice):
    """Keeps the run of one kernel."""

    def __init__(self, artifact):
        super().__init__(artifact.arch)
        self.artifact = artifact

    def launch(self, artifact, grid, block, args, dynamic_smem=0, cluster=None):
        launch = artifact, grid, block, args, dynamic_smem, cluster
        if artifact is not self.artifact:
            return super().launch(*launch)
        self.run = self.traced(*launch, Trace())
        return Launched(self.run.counters)

    def placed(self, array):
        buffer = self.allocate(max(array.nbytes, 1))
        buffer.write(array.reshape(-1).view(np.uint8))
        return Span(buffer, 0, array.nbytes)


def emulated(problem, rung, case, artifact):
    """The run of a rung's kernel; of several launches, those before it run first."""
    device = OneOf(artifact)
    given = dict(case.buffers) | {case.output: np.zeros(case.output_size, case.output_dtype)}
    if rung.workspace:
        given[WORKSPACE.name] = np.zeros(rung.workspace(rung.config, case.shape), np.uint8)
    args = {name: device.placed(array) for name, array in given.items()} | dict(case.scalars)
    if rung.launches:
        executor.run(device, executor.calls(rung, case.shape, args, artifact))
        return device.run
    names = [parameter.name for parameter in problem.parameters]
    names += [WORKSPACE.name] if rung.workspace else []
    grid, block, smem = rung.geometry(rung.config, case.shape)
    device.launch(artifact, grid, block, [args[name] for name in names], smem)
    return device.run


def asked_again(analysed):
    """What warps execute to ask mbarriers again: loops that sleep, and what leads to them alone."""
    code, blocks = analysed.code, analysed.code.blocks
    again = {
        i
        for i, block in enumerate(blocks)
        if any(one.root == "NANOSLEEP" for one in code.inside(block))
    }
    sources = defaultdict(set)
    for i, block in enumerate(blocks):
        for edge in block.edges:
            sources[edge.target].add(i)
    before = {i for i, block in enumerate(blocks) if {x.target for x in block.edges} <= again}
    after = {i for i in range(len(blocks)) if sources[i] and sources[i] <= again}
    sizes = {i: blocks[i].last - blocks[i].first for i in again | before | after}
    counted = analysed.counted.blocks
    executed = (
        sum(counted[i].warps * size for i, size in sizes.items()),
        sum(counted[i].threads * size for i, size in sizes.items()),
    )
    return dict(zip(EXECUTED, executed, strict=True))


def is_compared(reading):
    """In the course layout one rung of each kernel, whose others have the same addresses in other
    tiles, and none on tensor cores, because packed operands are alike in both layouts."""
    rung = ladder.find(reading["rung"], reading["layout"], reading["problem"])
    if reading["layout"] == "row":
        return True
    first = next(one for one in ladder.rungs(rung.problem) if one.kernel == rung.kernel)
    return rung.launches is None and first.name == rung.name


COMPARED = list(filter(is_compared, READINGS))


@pytest.mark.parametrize("reading", COMPARED, ids=lambda r: f"{r['rung']}-{r['layout']}")
@pytest.mark.slow
def test_counters_are_the_hardwares(reading):
    problem = problems.find(reading["problem"])
    rung = ladder.find(reading["rung"], reading["layout"], problem.name)
    case = problem.case(reading["shape"], reading["layout"], reading["family"], DOCUMENT["seed"])
    artifact = compile_rung(rung, DOCUMENT["arch"])
    run = emulated(problem, rung, case, artifact)
    counters, hardware = run.counters, reading["counters"]
    name = f"{problem.name}:{reading['rung']}"
    is_parted = name in PARTED and reading["shape"]["n"] % 128
    for counter in EQUAL:
        if is_parted and counters[counter] and "global_op_ld" in counter:
            assert counters[counter] < hardware[counter] <= MOST_PARTED * counters[counter]
        elif counter in hardware:
            assert counters[counter] == hardware[counter], counter
    # With cp.async hardware counts three more loads per tile and warp, without wavefronts.
    copies = hardware.get("smsp__inst_executed_op_ldgsts.sum")
    for counter in INSTRUCTIONS:
        executed = counters[counter] - MOVED.get((name, counter), 0)
        assert executed <= hardware[counter]
        assert executed == hardware[counter] or problem.name != "gemm" or copies
    for counter, factor in AT_LEAST.items():
        read = hardware.get(counter, counters[counter])
        assert counters[counter] <= read <= factor * counters[counter]
    analysed = sass.analyse(artifact, run)
    machine = analysed.counters
    same = machine.keys() & hardware.keys()
    for counter in same:
        least, most = sorted((machine[counter], hardware[counter]))
        if name in WAITING and counter in EXECUTED:
            assert machine[counter] - asked_again(analysed)[counter] <= hardware[counter]
            continue
        assert most <= ESTIMATED.get(name, 1) * least, counter
    assert same >= {counter for counter in EXECUTED if counter in hardware}
