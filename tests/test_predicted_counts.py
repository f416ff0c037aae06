"""How often a launch executes its basic blocks, counted without waiting and without most iterations
of its loops."""

from copy import copy
from unittest.mock import Mock

import numpy as np
import pytest
from machine import needs_native

import gemmlab
from gemmlab import problems, timing
from gemmlab.compile.cute import compile_rung
from gemmlab.compile.directive import parse
from gemmlab.core import forks
from gemmlab.devices.device import Span
from gemmlab.devices.emulated import HostBuffer, on_host
from gemmlab.emulator import tiers
from gemmlab.emulator.counters.tally import Tally
from gemmlab.emulator.execution.machine import Machine
from gemmlab.emulator.run import prepare
from gemmlab.kernels import ladder
from gemmlab.lab import kernel_file, predicted
from gemmlab.linalg.runtime import executor
from gemmlab.problems import gemm, inputs
from gemmlab.problems.problem import WORKSPACE
from gemmlab.timing import flow, sample
from gemmlab.timing.counted import Counted
from gemmlab.timing.facts import gather
from gemmlab.timing.flow import FlowMachine
from gemmlab.timing.unneeded import unneeded

H200 = timing.model("H200")


def product(name, m, n, k):
    """The launch of a rung that multiplies. The kernels of its other launches are not compiled."""
    rung = ladder.find(name, "row", "gemm")
    artifact, shape = compile_rung(rung, H200.target), {"m": m, "n": n, "k": k}
    assert rung.workspace and rung.launches
    sizes = {"a": 4 * m * k, "b": 4 * k * n, "c": 4 * m * n}
    sizes[WORKSPACE.name] = rung.workspace(rung.config, shape)
    zeros = {name: Span(HostBuffer(size), 0, size) for name, size in sizes.items()}
    launches = rung.launches(rung.config, shape, zeros, artifact.arch)
    (multiplies,) = [launch for launch in launches if launch.config == rung.config]
    one = executor.bind(multiplies, artifact)
    return one, [on_host(x) for x in one.args]


def prepared(name, m, n, k, **how):
    """The launch of a rung that multiplies, in an emulator."""
    one, args = product(name, m, n, k)
    ptx, entry, smem = one.artifact.ptx, one.artifact.entry, one.dynamic_smem
    return prepare(ptx, entry, one.grid, one.block, args, smem, one.cluster, **how).launch


def run(launch, kind):
    tally = Tally.of(launch.program)
    machine = sample._machine(launch, sample.chunks(launch)[-1], tally, kind)
    with np.errstate(all="ignore"):
        for _ in machine.run():
            pass
    return machine


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wgmma-tma", "warp-specialized", "fp16x3", "bf16x6"])
def test_warps_that_do_not_wait_execute_what_waiting_ones_do(name):
    lean = prepared(name, 300, 200, 1216, unneeded=unneeded)
    assert flow.follows(lean.program) and len(lean.program.left_out) > 1000
    free, waiting = run(lean, FlowMachine), run(prepared(name, 300, 200, 1216), Machine)
    for field in ("warps", "lanes", "guarded_off"):
        assert (getattr(free.tally, field) == getattr(waiting.tally, field)).all()
    assert free.tally.sites == waiting.tally.sites
    assert free.steps <= waiting.steps


SUMS = """
extern "C" __global__ void sums(const float* x, float* y, int n) {
  __shared__ float all[64];
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += 64) sum += x[i * gridDim.x + blockIdx.x];
  all[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < 64; i++) sum += all[i];
    y[blockIdx.x] = sum;
  }
}
"""


@needs_native
def test_native_code_counts_what_would_take_longer_than_compiling(monkeypatch):
    kernel, n, blocks = gemmlab.load(SUMS, arch=H200.target), 1000, 20
    args = [np.zeros(n * blocks, np.float32), np.zeros(blocks, np.float32), n]
    launch = prepare(kernel.ptx, "sums", (blocks, 1, 1), (64, 1, 1), args).launch
    natively = Mock(wraps=sample._natively)
    monkeypatch.setattr(sample, "_natively", natively)
    monkeypatch.setattr(tiers, "is_compiled", lambda _: False)
    found = []
    for worth in (10**9, 10**4):
        monkeypatch.setattr(tiers, "WORTH_COMPILING", worth)
        found.append(sample.counts(launch, sample.chunks(launch)))
        assert natively.called == (worth < 10**9)
    for one, other in zip(*found, strict=True):
        for field in ("warps", "lanes", "guarded_off", "divergent"):
            assert (getattr(one, field) == getattr(other, field)).all()
        assert one.sites == other.sites


@pytest.mark.slow
def test_the_cost_of_counting_hardly_grows_with_the_depth():
    shallow, deep = (run(prepared("fp16x3", 256, 256, k), FlowMachine) for k in (1024, 8192))
    assert deep.tally.warps.sum() > 4 * shallow.tally.warps.sum()
    assert deep.steps < 1.2 * shallow.steps < 400


@pytest.mark.slow
@pytest.mark.parametrize(("name", "most"), [("fp16x3", 3500), ("bf16x6", 6500)])
def test_a_prediction_runs_a_small_part_of_a_launch(monkeypatch, name, most):
    """Its cost: the basic blocks that the emulator runs one after another."""
    machines, make = [], sample._machine

    def kept(*args):
        machines.append(make(*args))
        return machines[-1]

    monkeypatch.setattr(sample, "_machine", kept)
    monkeypatch.setattr(forks, "_can_fork", lambda: False)
    one, args = product(name, 1024, 1024, 4096)
    gather(
        *(one.artifact, one.grid, one.block, args, one.dynamic_smem),
        *(H200.parameters, one.cluster),
    )
    assert sum(x.steps for x in machines) < most, [x.steps for x in machines]


def test_addresses_are_traced_without_counts_of_bank_conflicts(monkeypatch):
    tallies, make = [], sample._machine

    def kept(*args):
        tallies.append(args[2])
        return make(*args)

    monkeypatch.setattr(sample, "_machine", kept)
    launch = prepared("tensor-core", 128, 128, 64)
    loads = sample.loads(launch, np.arange(1))
    assert {load.kind for load in loads} == {"load", "store"}
    assert not tallies[0].sites
    with np.errstate(all="ignore"):
        [*make(launch, np.arange(1), tallies[0]).run()]
    assert {space for _, space in tallies[0].sites} == {"global", "shared"}


def test_inputs_are_drawn_only_where_they_decide_what_a_kernel_does(monkeypatch):
    drawn = []

    def draw(family, *args):
        drawn.append(family)
        return inputs.draw(family, *args)

    monkeypatch.setattr(gemm, "draw", draw)
    rung = ladder.find("naive", "row", "gemm")
    kernel_file.predict(rung, parse(["m=64", "n=64", "k=64"]), H200)
    assert drawn == ["zeros", "zeros"]
    assert predicted.family(problems.find("histogram"), "skewed") == "skewed"
    own = copy(problems.find("softmax"))
    own.name = "a user's own"
    assert predicted.family(own, "normal") == "normal"


# The blocks of a cluster wait for tiles. A counter of every fifth tile, and a value
# of each lane, decide what else an iteration executes.
TURNS = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry turns(.param .u64 p, .param .u32 n) {
.reg .pred %p<8>;
.reg .b32 %r<20>;
.reg .b64 %rd<4>;
.shared .align 8 .b64 full[3];
ld.param.u64 %rd1, [p];
ld.param.u32 %r1, [n];
mov.u32 %r2, %tid.x;
mov.u32 %r3, full;
mov.u32 %r4, 0;
mov.u32 %r5, 0;
mov.u32 %r7, 0;
barrier.cluster.arrive;
barrier.cluster.wait;
LOOP:
WAIT:
mbarrier.try_wait.parity.shared.b64 %p1, [%r3], 0;
@!%p1 bra WAIT;
EXTRA
add.s32 %r5, %r5, 1;
setp.eq.s32 %p2, %r5, 5;
selp.b32 %r5, 0, %r5, %p2;
@!%p2 bra SKIP;
setp.lt.u32 %p3, %r2, 7;
@%p3 bra SKIP;
add.s32 %r7, %r7, 1;
SKIP:
add.s32 %r6, %r4, 1;
setp.lt.s32 %p4, %r6, %r1;
mov.b32 %r4, %r6;
@%p4 bra LOOP;
st.global.u32 [%rd1], %r7;
ret;
}
"""


def turns(extra, n):
    """The counts of a launch, and the machine. extra: PTX in the loop."""
    out = np.zeros(64, np.uint32)
    ptx = TURNS.replace("EXTRA", extra)
    launch = prepare(ptx, "turns", (2, 1, 1), (64, 1, 1), [out, n], 0, (2, 1, 1)).launch
    assert flow.follows(launch.program)
    machine = run(launch, FlowMachine)
    return machine.tally, machine


@pytest.mark.parametrize("n", [1, 4, 5, 6, 14, 15, 16, 1000, 1003])
def test_iterations_that_repeat_are_left_out_and_counted(n):
    tally, machine = turns("", n)
    blocks = machine.launch.program.blocks
    code = machine.launch.program.function.instructions
    every = next(k for k, b in enumerate(blocks) if code[b.first].text.startswith("setp.lt.u32"))
    within = next(k for k, b in enumerate(blocks) if code[b.first].text.startswith("add.s32 %r7"))
    assert (tally.warps[every], tally.lanes[every]) == (4 * (n // 5), 128 * (n // 5))
    assert (tally.warps[within], tally.lanes[within]) == (4 * (n // 5), 114 * (n // 5))
    assert tally.divergent.sum() == 2 * (n // 5)
    assert machine.steps < 100


def test_a_loop_whose_counter_decides_more_than_its_end_is_run_to_its_end():
    extra = "setp.gt.s32 %p5, %r4, 700;\n@%p5 bra LATE;\nadd.s32 %r8, %r8, 1;\nLATE:"
    tally, machine = turns(extra, 1000)
    blocks, code = machine.launch.program.blocks, machine.launch.program.function.instructions
    late = next(k for k, b in enumerate(blocks) if code[b.first].text.startswith("add.s32 %r8"))
    assert tally.warps[late] == 4 * 701
    assert not machine.loops
    assert machine.steps > 1000


def test_a_loop_that_accesses_memory_is_run_to_its_end():
    tally, machine = turns("st.global.u32 [%rd1], %r4;", 100)
    assert sum(site.requests for site in tally.sites.values()) == 4 * 101
    assert machine.steps > 100


def test_counts_are_not_taken_without_waits_if_copied_data_decide():
    launch = prepare(
        TURNS.replace("EXTRA", "ld.shared.u32 %r9, [%r3];\nadd.s32 %r5, %r5, %r9;"),
        *("turns", (2, 1, 1), (64, 1, 1), [np.zeros(64, np.uint32), 3], 0, (2, 1, 1)),
    ).launch
    assert not flow.follows(launch.program)


@pytest.mark.parametrize(
    ("comparison", "type_", "step", "bound", "start", "left"),
    [
        ("ne", "b32", 1, 0, -3, 2),
        ("lt", "s32", 2, 7, -1, 3),
        ("gt", "s32", -1, -2, 0, 1),
        ("lt", "u32", 1, 3, 0xFFFFFFFF, 3),
        ("eq", "b32", 1, 5, 4, 1),
    ],
)
def test_how_often_a_loop_returns_to_its_head(comparison, type_, step, bound, start, left):
    loop = Counted(0, 0, "%r", step, comparison, type_, bound, False, ())
    assert loop.left(start, bound) == left
