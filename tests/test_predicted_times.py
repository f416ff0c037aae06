"""Predicted times: their parts on small kernels, and what changes them in which direction."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

import gemmlab
from gemmlab import timing
from gemmlab.cli.app import main
from gemmlab.cubin.code import Block, Code, Edge, Instruction
from gemmlab.emulator.memory.arena import GlobalMemory
from gemmlab.errors import InputError, PredictionError, UnknownNameError
from gemmlab.report import predictions
from gemmlab.timing import (
    extrapolation,
    facts,
    instructions,
    moments,
    parameters,
    path,
    roles,
    sample,
)
from gemmlab.timing import warps as warps_of

H200 = timing.model("H200")

STRIDED = """
extern "C" __global__ void f(float *x) {
    __shared__ float s[1024 * 8];
    for (int i = threadIdx.x; i < 8192; i += blockDim.x) s[i] = i;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < 256; i++) sum += s[(threadIdx.x * STRIDE + i * 32) % 8192];
    x[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
"""


def predicted(text, grid=132, block=256, model=H200):
    kernel = gemmlab.load(text, arch=model.target)
    x = np.zeros(grid * block, np.float32)
    return timing.predict(kernel, (grid, 1, 1), (block, 1, 1), [x], 0, model)


@pytest.mark.slow
def test_bank_conflicts_cost_time_and_are_named():
    without = predicted(STRIDED.replace("STRIDE", "1"))
    conflicts = predicted(STRIDED.replace("STRIDE", "32"))
    assert conflicts.time_s > 3 * without.time_s
    assert conflicts.limiter == "the load and store unit"
    assert conflicts.busy["the load and store unit"] > 0.9


@pytest.mark.slow
def test_fewer_multiprocessors_and_a_slower_clock_take_longer():
    text = STRIDED.replace("STRIDE", "1")
    whole = predicted(text, grid=1320)
    half = predicted(text, grid=1320, model=timing.model("H200", sms=66))
    slow = predicted(text, grid=1320, model=timing.model("H200", clock_ghz=0.99))
    assert half.cycles == pytest.approx(2 * whole.cycles, rel=0.1)
    assert slow.time_s > 1.5 * whole.time_s


def test_shares_sum_to_one():
    found = predicted(STRIDED.replace("STRIDE", "1"))
    assert sum(found.stalls.values()) == pytest.approx(1)
    assert sum(found.lines.values()) == pytest.approx(1)
    assert all(0 <= share <= 1 for share in found.busy.values())


def test_an_instruction_that_the_model_does_not_follow_is_refused():
    code = Code([Instruction(0, "", "TEX.SCR", "R0, R2", 1)], {}, [Block(0, 1, [])])
    ops = instructions.prepare(code)
    everyone = roles.everyone(1, 1)[0]
    facts._refuse(ops, [(1.0, [(everyone, [0.0])])])  # is not executed
    with pytest.raises(PredictionError, match=r"TEX\.SCR"):
        facts._refuse(ops, [(1.0, [(everyone, [2.0])])])


@pytest.mark.parametrize("name", ["H200", "H100", "A100"])
def test_each_value_has_a_source(name):
    model = timing.model(name)
    assert {s.status for s in model.sources.values()} <= set(parameters.STATUSES)
    assert all(source.source for source in model.sources.values())
    assert model.is_proven == (model.interval is not None) == (name != "A100")


def test_unknown_gpus_and_sizes_are_refused():
    with pytest.raises(UnknownNameError, match="no model of T4"):
        timing.model("T4")
    with pytest.raises(InputError, match="0 multiprocessors"):
        timing.model("H200", sms=0)
    with pytest.raises(InputError, match="more than 0"):
        timing.model("H200", clock_ghz=0)


def code_of(*targets):
    """Blocks of one instruction each, with the given successors."""
    instructions = [
        Instruction(16 * i, "", "NOP" if i else "MOV", "", 1) for i in range(len(targets))
    ]
    blocks = [Block(i, i + 1, [Edge(t) for t in some]) for i, some in enumerate(targets)]
    return Code(instructions, {}, blocks)


def test_a_path_has_the_iterations_of_its_loops():
    code = code_of((1,), (2,), (2, 3), (1, 4), (-1,))  # a loop in a loop
    tree = path.loops(code, [1, 10, 50, 10, 1])
    way = path.walk(tree, 0, {})
    assert [way.blocks.count(i) for i in range(5)] == [1, 10, 50, 10, 1]
    short = path.walk(tree, 0, {1: 2})
    assert [short.blocks.count(i) for i in range(5)] == [1, 2, 10, 2, 1]
    # one cycle per block: the time with what was left out
    times = list(range(len(short.blocks)))
    offsets = list(range(len(short.blocks) + 1))
    assert extrapolation.duration(short.whole, times, offsets, {}) == pytest.approx(71, abs=1)


def test_a_block_of_some_warps_is_on_that_share_of_paths():
    tree = path.loops(code_of((1, 2), (2,), (-1,)), [1, 0.25, 1])
    ways = [path.walk(tree, warp, {}) for warp in range(64)]
    assert sum(1 in way.blocks for way in ways) == pytest.approx(16, abs=1)


def test_samples_are_spread():
    assert sample.spread(3) == [0, 1, 2]
    assert len(sample.spread(1000)) == sample.COUNTED_BLOCKS
    assert sample.groups((2, 1, 3)) == [0, 2, 4, 1, 3, 5]


PREDICATED = """
extern "C" __global__ void f(float *x) {
    __shared__ float s[256];
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < 64; i++) if (threadIdx.x < LIMIT) sum += s[(threadIdx.x * 32 + i) % 256];
    x[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
"""


def test_lanes_without_work_access_no_memory():
    all_lanes = predicted(PREDICATED.replace("LIMIT", "256"))
    few = predicted(PREDICATED.replace("LIMIT", "32"))
    name = "the load and store unit"
    cycles = [found.busy[name] * found.cycles for found in (all_lanes, few)]
    assert cycles[1] < cycles[0] / 3


def test_without_bank_conflicts_a_launch_is_faster():
    text = STRIDED.replace("STRIDE", "32")
    changed = predicted(text, model=timing.model("H200", what_if=["no-bank-conflicts"]))
    assert changed.time_s < predicted(text).time_s / 3
    with pytest.raises(UnknownNameError, match="twice-l2"):
        timing.model("H200", what_if=["no-latency"])


def test_warps_that_arrive_together_pass_a_barrier_one_after_another():
    text = """
    extern "C" __global__ void f(float *x) {
        for (int i = 0; i < 64; i++) __syncthreads();
        x[blockIdx.x * blockDim.x + threadIdx.x] = 1;
    }
    """
    one, many = (predicted(text, block=threads).cycles for threads in (32, 1024))
    assert many - one > 64 * 31 * 2


PROFILED = [
    {"problem": "gemm", "rung": "a", "layout": "row", "shape": {"m": 1}}
    | {"reasons": {"mio_throttle": 50, "wait": 50}}
]


def test_stalls_are_compared_with_nsight_compute():
    row = ROWS[0] | {"stalls": {"MIO throttle": 0.3, "wait": 0.7}}
    found = predictions.differences([row], PROFILED)
    assert abs(found["`gemm:a`"][0]) == pytest.approx(20)
    assert "Of 1 kernels, 0 have every share" in predictions.stalls([row], PROFILED)


ROWS = [
    {"problem": "gemm", "kernel": k, "layout": "row", "shape": {"m": 1}, "family": "normal"}
    | {"measured_s": m, "predicted_s": p, "fitted": f}
    for k, m, p, f in (("a", 1.0, 1.1, True), ("b", 2.0, 1.0, False), ("c", 4.0, 5.0, False))
]


def test_errors_are_summarized():
    assert "| held out | 2 | 37.5 % | 37.5 % | -50%: `gemm:b` 1, row |" in predictions.summary(ROWS)
    assert "Of 3 pairs" in predictions.orders(ROWS) and ", 2 are in" in predictions.orders(ROWS)
    assert predictions.interval(ROWS) == [0.92, 1.88]


@pytest.mark.slow
def test_the_command_line_predicts(tmp_path, capsys):
    file = tmp_path / "kernel.cu"
    directive = "//! gemmlab block=256 grid=132 args=x:f32[n] n=33792\n"
    file.write_text(directive + STRIDED.replace("STRIDE", "1"))
    with pytest.raises(SystemExit) as ended:
        main(["emulate", str(file), "--predict", "--gpu", "A100", "--sms", "66", "--json"])
    assert not ended.value.code
    found = json.loads(capsys.readouterr().out)
    assert found["gpu"] == "A100 80GB" and found["sms"] == 66 and not found["is_proven"]
    assert found["time_s"] > 0 and found["interval_s"] is None
    with pytest.raises(SystemExit) as ended:
        main(["emulate", str(file), "--gpu", "A100"])
    assert ended.value.code == 2 and "requires --predict" in capsys.readouterr().err


@pytest.mark.slow
def test_a_climb_predicts(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["climb", "sum", "--size", "4096", "--rungs", "vectorized", "--predict"])
    assert not ended.value.code
    told = " ".join(capsys.readouterr().out.split())  # lines are as wide as the terminal
    assert "fastest first: vectorized" in told


@pytest.mark.slow
def test_one_warp_is_followed_cycle_by_cycle():
    kernel = gemmlab.load(STRIDED.replace("STRIDE", "4"), arch=H200.target)
    x = np.zeros(132 * 256, np.float32)
    found = facts.gather(kernel, (132, 1, 1), (256, 1, 1), [x], 0, H200.parameters)
    seen = moments.follow(found, H200.parameters, 40)
    assert len(seen) > 3
    assert seen[0].cycle == 0
    assert seen[-1].cycle < 40
    assert "short scoreboard" in seen[0].waited
    for before, one in itertools.pairwise(seen):
        # a cycle for the instruction before, and those in which the warp waited
        assert one.cycle - before.cycle == pytest.approx(1 + sum(one.waited.values()))


def test_the_page_of_one_warp_has_forty_cycles_of_float4():
    folder = Path(__file__).parent.parent
    rows = json.loads((folder / "benchmarks/predicted/one-warp.json").read_text())
    page = (folder / "docs/one-warp.md").read_text()
    assert predictions.one_warp(rows) in page
    assert 30 < rows[-1]["cycle"] < 40
    assert {row["line"].partition(":")[0] for row in rows} == {"float4.py"}


def test_kernels_that_are_not_measured_are_counted():
    known = {"kernel": "a", "size": "n=1", "measured_s": 1.0, "first_s": 1.5, "predicted_s": 1.1}
    text = predictions.others([known, known | {"round": 2, "first_s": 1.1}, {"kernel": "b"}])
    assert "| mean of round 1 | | | | 50.0 % | | 10.0 % |" in text
    assert "| mean of round 2 | | | | 10.0 % | | 10.0 % |" in text
    assert "1 more times are predicted" in text


UNEVEN = """
extern "C" __global__ void uneven(float *x, int *next, int n) {
  float a = threadIdx.x, b = a, c = a, d = a;
  int at = 0;
  if (blockIdx.x % 2)
    for (int i = 0; i < n; i++) at = next[at];
  else
    for (int i = 0; i < n; i++) {
#pragma unroll
      for (int j = 0; j < 8; j++) a += a * x[0], b += b * x[0], c += c * x[0], d += d * x[0];
    }
  x[32 * blockIdx.x + threadIdx.x + 1] = a + b + c + d + at;
}
"""


def test_of_blocks_that_run_at_once_the_slowest_decides():
    """It is the one that waits, and not the one that executes most."""
    kernel, found = gemmlab.load(UNEVEN, arch="sm_90a"), []
    for blocks in (1, 2):
        args = [np.zeros(256, np.float32), np.zeros(1, np.int32), 1000]
        launch = (kernel, (blocks, 1, 1), (32, 1, 1), args, 0, H200)
        found.append(timing.predict(*launch).cycles)
    busy, both = found
    assert both > 1.2 * busy


def test_a_pace_is_stretched_by_the_iterations_that_inner_loops_lack():
    """An outer loop of 10, 2 of them on the path, whose inner loop of 6 has 3 there, of 10 cycles:
    a path of 60 cycles, and a launch of 600."""
    times, offsets = [10.0 * i for i in range(7)], list(range(7))

    def outer(first):
        steps = [path.Span(first + i, first + i + 1) for i in range(3)]
        return path.Span(first, first + 3, inner=[path.Span(first, first + 3, 6, 1, steps)])

    whole = path.Span(0, 6, 10, 0, [outer(0), outer(3)])
    assert extrapolation.duration(whole, times, offsets, {}) == pytest.approx(600)
    pace = extrapolation.Pace(30, since=30, done=1)
    assert extrapolation.duration(whole, times, offsets, {0: pace}) == pytest.approx(600)


def test_a_pace_is_that_of_all_warps_though_the_oldest_run_ahead():
    """Two warps, of which the first runs three times as fast until it ends its path. Together they
    end an iteration every 75 cycles: 100 iterations of each take 15000."""
    steps = [path.Span(i, i + 1) for i in range(4)]
    way = path.Path([0] * 4, path.Span(0, 4, inner=[path.Span(0, 4, 100, 0, steps)]))
    warps = [
        warps_of.Warp([], warps_of.Block(0), 0, 0, 0, times=times)
        for times in ([0.0, 100, 200, 300, 400], [0.0, 300, 600, 700, 800])
    ]
    known = [(way, list(range(5)))] * 2
    paces = extrapolation.paces(known, warps)
    for warp in warps:
        found = extrapolation.duration(way.whole, warp.times, range(5), paces)
        assert found == pytest.approx(15000, rel=0.02)


COPIED = """
extern "C" __global__ void f(const float *x, float *y) {
  __shared__ float s[1024];
  for (int i = 0; i < 64; i++) {
    const unsigned to = __cvta_generic_to_shared(s + threadIdx.x * STRIDE % 1024);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(x + threadIdx.x));
    asm volatile("cp.async.wait_all;" ::: "memory");
  }
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];
}
"""


@pytest.mark.slow
def test_bank_conflicts_of_copies_into_shared_memory_cost_time():
    """32 lanes write to one bank: 32 wavefronts for each of the 8 warps' 64 copies."""
    found = []
    for stride in ("1", "32"):
        kernel = gemmlab.load(COPIED.replace("STRIDE", stride), arch=H200.target)
        args = [np.zeros(256, np.float32), np.zeros(256, np.float32)]
        found.append(timing.predict(kernel, (132, 1, 1), (256, 1, 1), args, 0, H200))
    without, conflicts = found
    unit = "the load and store unit"
    busy = conflicts.busy[unit] * conflicts.cycles
    assert busy > 32 * 8 * 64 > 10 * without.busy[unit] * without.cycles


def test_roles_of_warps_pass_the_share_that_fits_on_all_paths():
    """A role with a long body and one with a short body, 100 iterations each."""
    trees = [path.loops(code_of((1,), (1, 2), (-1,)), [1, 100, 1]) for _ in range(2)]
    trees[1].inner = {4: path.Loop(4, frozenset({4}), {}, 100, 1, {4: 1.0})}
    body = instructions.prepare(code_of((1,), (1, 2), (-1,)))[0]
    ops = [body, body * 10, body, body, body]
    found = extrapolation.iterations(trees, ops, 100)
    assert found == {1: 30, 4: 30}  # of 10 instructions, in three times 100


def test_sampled_blocks_do_not_keep_a_distance_that_tasks_can_have():
    """Every 512th of 3072 blocks would be the first of a row of 256 blocks."""
    numbers = sample.spread(3072)
    assert [x // 512 for x in numbers] == [0, 1, 2, 3, 4, 5]
    assert len({x % 256 for x in numbers}) == 6


SKEWED = """
extern "C" __global__ void skewed(float *x, float *y) {
  if (threadIdx.x <= 31 * blockIdx.x) y[threadIdx.x] = x[1024 * threadIdx.x];
}
"""


def test_wavefronts_are_those_of_all_blocks_that_are_traced():
    """The first block loads with one lane, the other with 32 from one bank."""
    kernel = gemmlab.load(SKEWED, arch="sm_90a")
    args = [np.zeros(32768, np.float32), np.zeros(32, np.float32)]
    one = timing.model("H200", sms=1).parameters
    found = facts.gather(kernel, (2, 1, 1), (32, 1, 1), args, 0, one)
    waves = [of.wavefronts for of in found.lookups.values() if not of.is_store]
    assert waves == [16.5]


def test_a_matrix_of_shared_memory_is_four_registers_wide():
    one = Instruction(0, "", "LDSM.16.MT88.4", "R4, [R2]", None)
    assert one.width == 16


def test_memory_returns_to_what_was_kept():
    memory = GlobalMemory()
    first, second = (memory.allocate(name, 5000) for name in "ab")
    memory.commit()
    memory.bytes_of(second)[:] = 3
    with memory.kept() as rewind:
        memory.bytes_of(second)[7] = memory.bytes_of(first)[0] = 9
        rewind()
        assert not memory.bytes_of(first).any() and (memory.bytes_of(second) == 3).all()
        memory.view(np.dtype(np.uint8))[:] = 1
        rewind()
        assert memory.view(np.dtype(np.uint8)).sum() == 15000
