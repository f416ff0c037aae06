"""The measurement from case to record, on a fake GPU and a fake NVBench."""

import math
import os
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fakes import L2_BYTES, SAMPLES, FakeGpu, FakeSensors, install

from gemmlab import problems
from gemmlab.compile.artifact import Artifact
from gemmlab.compile.cute import compile_rung
from gemmlab.errors import DeviceError
from gemmlab.kernels import ladder
from gemmlab.lab.bench import baselines, machine, worker
from gemmlab.lab.bench.contenders import Bound, Contender, CopyContender, KernelContender
from gemmlab.lab.bench.job import Job, Kernel
from gemmlab.lab.bench.protocol import Protocol
from gemmlab.lab.bench.session import BenchPlan
from gemmlab.lab.judge import CaseMemory

pytestmark = pytest.mark.usefixtures("rarely_native")

GEMM = problems.find("gemm")
SHAPE = {"m": 20, "n": 30, "k": 7}
PROTOCOL = Protocol(rounds=3, min_samples=10)
COSTS = {"naive": 4e-3, "shared": 2e-3}


def take(device, jobs):
    probe = Artifact("fma_peak", "", device.arch, ())
    sensors: Any = FakeSensors()
    return worker.Measurement(device, sensors, jobs, PROTOCOL, probe).take()


class NumpyProduct(Contender):
    """A library: takes a millisecond."""

    name, title = "cublas", "NumPy"
    details = {"call": "a @ b"}

    def __init__(self, device, wrong=False):
        self._device, self._wrong = device, wrong

    def bind(self, args):
        a, b, c, m, n, k = args[:6]

        def floats(span):
            return span.buffer.data[span.offset : span.offset + span.nbytes].view(np.float32)

        def run():
            self._device.log.append(("cublas", id(c.buffer)))
            self._device.spend(1e-3)
            product = floats(a).reshape(m, k) @ floats(b).reshape(k, n)
            floats(c)[:] = product.ravel() * (1.01 if self._wrong else 1)

        return Bound(run)


@pytest.fixture
def measured(monkeypatch):
    """Measure rungs and a library on the fake; outcome, device, fake NVBench."""
    monkeypatch.setattr(machine, "LEAST_S", 0.0)
    monkeypatch.setattr(machine, "PAUSE_S", 0.0)
    monkeypatch.setattr(worker, "RESETTLE_S", 0.0)

    def measure(*names, problem=GEMM, shapes=(SHAPE,), costs=COSTS, wrong=False, device_sync=None):
        device = FakeGpu(costs)
        device.gpu.sync = device_sync or device.gpu.sync
        library = [NumpyProduct(device, wrong)] if problem is GEMM else []
        monkeypatch.setattr(baselines, "make", lambda *args: library)
        bench = install(monkeypatch, device)
        rungs = [ladder.find(name, problem=problem.name) for name in names]
        plan = BenchPlan(problem, rungs, shapes, problem.families[0], 0, None)
        jobs = [plan.job(shape, PROTOCOL, device.arch)[0] for shape in shapes]
        return take(device, jobs), device, bench

    return measure


@pytest.mark.slow
def test_records_hold_what_was_measured(measured):
    outcome, _, bench = measured("naive", "shared")
    assert not outcome.refusals
    library, naive, shared = outcome.records
    assert [r.kernel for r in outcome.records] == ["cublas", "naive", "shared"]
    assert naive.samples == PROTOCOL.rounds * SAMPLES == 15
    assert naive.gpu_median_s == pytest.approx(4e-3, rel=1e-3)
    assert naive.percent_of_baseline == pytest.approx(25, rel=1e-2)
    assert shared.baseline["gpu_median_s"] == library.gpu_median_s
    assert library.percent_of_baseline == 100
    assert len(naive.round_medians_s) == 3 and naive.batch_samples == 12
    assert naive.cpu_mean_s == pytest.approx(8e-3, rel=1e-3)
    assert 0 < naive.gpu_noise_percent < 0.5 and naive.warnings == []
    assert 0 < naive.max_error_u <= naive.bound_u and naive.precision == "ieee"
    assert (naive.power_w, naive.temperature_c) == (300, 40)
    assert naive.machine["roofs"]["measured"]["bandwidth_gbs"] == pytest.approx(214.7, rel=1e-2)
    assert naive.interleaved == ["cublas", "naive", "shared"]
    assert naive.command.startswith("gemmlab bench gemm:naive gemm:shared --shape 20,30,7 ")
    options = dict(zip(bench.argv[6::2], bench.argv[7::2], strict=True))
    assert options["--min-samples"] == "4" and options["--timeout"] == "5"


@pytest.mark.slow
def test_rounds_are_interleaved_and_operands_rotate(measured):
    _, device, _ = measured("naive", "shared")
    order = [entry for entry, _ in device.log if entry in ("cublas", *COSTS)]
    turns = [entry for i, entry in enumerate(order) if i == 0 or entry != order[i - 1]]
    assert turns == ["cublas", *COSTS] * (1 + 3 + 1)  # judged, three rounds, judged again
    naive = [output for entry, output in device.log if entry == "naive"][2:-2]  # not those judged
    per_set = 4 * (20 * 7 + 7 * 30 + 20 * 30)
    sets = math.floor(worker.ROTATION * L2_BYTES / per_set) + 1
    assert sets == 3 and len(set(naive)) == sets
    assert naive[:6] == 2 * naive[:3]


@pytest.mark.slow
def test_a_wrong_result_is_refused_and_not_timed(measured):
    outcome, device, _ = measured("naive", wrong=True)
    [refusal] = outcome.refusals
    assert (refusal.kernel, refusal.status) == ("cublas", "wrong answer")
    assert [entry for entry, _ in device.log].count("cublas") == 2  # judged once, nothing more
    [naive] = outcome.records
    assert naive.baseline is None and naive.percent_of_baseline is None


@pytest.mark.slow
def test_an_impossible_time_is_no_record(measured):
    outcome, _, _ = measured("naive", "shared", costs=COSTS | {"naive": 1e-9})
    assert [r.kernel for r in outcome.records] == ["cublas", "shared"]
    [refusal] = outcome.refusals
    assert refusal.status == "impossible time" and "needs at least" in refusal.message


@pytest.mark.slow
def test_accumulators_are_zeroed_in_every_launch(measured):
    costs = {"tree-sequential": 1e-3}
    outcome, _, _ = measured(
        "tree-sequential", problem=problems.find("sum"), shapes=[{"n": 3000}], costs=costs
    )
    assert not outcome.refusals
    [record] = outcome.records
    assert record.baseline is None and record.tflops is None
    assert record.gigabytes_per_second == pytest.approx(12004 / 1e-3 / 1e9, rel=1e-2)


@pytest.mark.slow
def test_a_rung_of_several_launches_is_timed_as_a_whole(measured):
    costs = {"tensor-core": 4e-3, "naive": 2e-3}
    outcome, device, _ = measured("tensor-core", "naive", costs=costs)
    assert not outcome.refusals
    library, stair, naive = outcome.records
    # Packing A, packing B and repairing take a millisecond each.
    assert stair.gpu_median_s == pytest.approx(7e-3, rel=1e-2)
    assert stair.percent_of_baseline == pytest.approx(100 / 7, rel=1e-2)
    assert (stair.precision, naive.precision) == ("x3", "ieee")
    assert 0 < stair.max_error_u <= stair.bound_u and stair.interleaved == library.interleaved
    entries = [launch["entry"] for launch in stair.details["launches"]]
    assert len(entries) == 4 and stair.details["entry"] == entries[2]
    assert {len(launch["cubin_sha256"]) for launch in stair.details["launches"]} == {64}
    outputs = [output for entry, output in device.log if entry == "tensor-core"]
    assert len(set(outputs)) > 2  # operands rotate


@pytest.mark.slow
def test_a_long_launch_gets_no_batch(measured, monkeypatch):
    monkeypatch.setattr(time, "perf_counter", iter(range(10_000)).__next__)
    outcome, _, _ = measured("naive")
    assert all(r.batch_mean_s is None and r.batch_samples == 0 for r in outcome.records)


@pytest.mark.slow
def test_a_slow_launch_sits_out_when_its_time_is_up(measured, monkeypatch):
    monkeypatch.setattr(worker.Measurement, "_time_launch", slow_naive)
    outcome, _, _ = measured("naive", "shared")
    library, naive, shared = outcome.records
    assert len(naive.round_medians_s) == 2  # two turns of two launches are beyond 15 s
    assert len(shared.round_medians_s) == len(library.round_medians_s) == 3


def slow_naive(_, entry, _bound):
    entry.launch_s = 6.0 if entry.contender.name == "naive" else 1e-3


@pytest.mark.slow
def test_percentages_are_of_the_next_reference_where_the_first_was_refused(measured, monkeypatch):
    monkeypatch.setattr(baselines, "references", lambda problem: ("cublas", "shared"))
    outcome, _, _ = measured("naive", "shared", wrong=True)
    assert [record.baseline["kernel"] for record in outcome.records] == ["shared", "shared"]
    assert outcome.records[1].percent_of_baseline == 100


@pytest.mark.parametrize("error", [DeviceError("the GPU fell off the bus"), KeyboardInterrupt()])
def test_what_ends_the_measurement_comes_back(measured, monkeypatch, error):
    def broken(_):
        raise error

    monkeypatch.setattr(FakeSensors, "read", broken)
    outcome, _, _ = measured("naive")
    assert outcome.ended_by is error and not outcome.records


@pytest.mark.slow
def test_finished_cases_survive_the_end(measured, monkeypatch):
    monkeypatch.setattr(worker.Measurement, "_operand_sets", fails_on_second_call())
    outcome, _, _ = measured("naive", shapes=[SHAPE, {"m": 8, "n": 8, "k": 8}])
    assert str(outcome.ended_by) == "second"
    assert [(r.kernel, r.shape) for r in outcome.records] == [("cublas", SHAPE), ("naive", SHAPE)]


def fails_on_second_call():
    original, calls = worker.Measurement._operand_sets, []

    def method(self, memory):
        calls.append(memory)
        if len(calls) == 2:
            raise DeviceError("second")
        return original(self, memory)

    return method


@pytest.mark.slow
def test_work_on_another_stream_is_refused(measured, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def device_sync():
        now[0] += 0.01

    outcome, _, _ = measured("naive", device_sync=device_sync)
    assert {refusal.status for refusal in outcome.refusals} == {"not timed"}


@pytest.mark.slow
def test_a_kernel_that_does_not_run_is_refused(monkeypatch, measured):
    def too_large(*_):
        raise ValueError("no")

    monkeypatch.setattr(NumpyProduct, "bind", too_large)
    outcome, _, _ = measured("naive")
    [refusal] = outcome.refusals
    assert (refusal.status, refusal.message) == ("not run", "ValueError: no")
    assert [r.kernel for r in outcome.records] == ["naive"]


@pytest.mark.slow
def test_any_artifact_can_be_measured(monkeypatch):
    """What a judge of a user's file builds: no rung, only an artifact and how it is launched."""
    monkeypatch.setattr(machine, "LEAST_S", 0.0)
    monkeypatch.setattr(machine, "PAUSE_S", 0.0)
    monkeypatch.setattr(worker, "RESETTLE_S", 0.0)
    monkeypatch.setattr(baselines, "make", lambda *args: [])
    rung = ladder.find("naive")
    device = FakeGpu({"mine": 1e-3})
    install(monkeypatch, device)
    compiled = compile_rung(rung, device.arch)
    artifact = replace(compiled, origin="mine")
    kernel = Kernel("mine.cu", "a user's", artifact, rung.geometry(rung.config, SHAPE))
    job = Job("gemm", SHAPE, "row", "normal", 0, (kernel,), (), "gemmlab judge mine.cu")
    outcome = take(device, [job])
    assert [r.kernel for r in outcome.records] == ["mine.cu"]


@pytest.mark.usefixtures("measured")
def test_a_copy_moves_as_many_bytes_as_the_problem():
    """Also where the problem reads more than one array."""
    device: Any = FakeGpu({})
    copied: list[tuple[int, int]] = []
    device.copy = lambda target, source: copied.append((target.nbytes, source.nbytes))
    for name, shape in (("vector-add", {"n": 1000}), ("sum", {"n": 1000}), ("transpose", SHAPE)):
        problem = problems.find(name)
        shape = {axis: shape[axis] for axis in problem.axes}
        case = problem.case(shape, "row", problem.families[0], 0)
        CopyContender(device).bind(CaseMemory(device, problem, case).args).run()
        written, held = copied.pop()
        assert 2 * written == problem.min_bytes(shape) <= 2 * held


@pytest.mark.slow
def test_company_on_the_gpu_is_a_warning(measured, monkeypatch):
    reading = replace(FakeSensors().read(), others=1)
    monkeypatch.setattr(FakeSensors, "read", lambda self: reading)
    outcome, _, _ = measured("naive")
    assert all(record.warnings[-1] == "other processes on the GPU: 1" for record in outcome.records)


@pytest.mark.parametrize(
    ("pids", "others"),
    [
        ([], None),  # a driver that does not tell
        ([os.getpid()], 0),
        ([os.getpid(), os.getppid(), 1], 1),
        ([4_000_001, 4_000_002], None),  # numbers of another namespace
    ],
)
def test_others_are_who_is_neither_we_nor_our_parent(pids, others):
    assert machine._others([SimpleNamespace(pid=pid) for pid in pids]) == others


@pytest.mark.slow
def test_a_kernel_is_told_from_another_by_its_code(measured):
    """And not by the folder in which it was compiled."""
    outcome, _, _ = measured("naive", "shared")
    details = [record.details for record in outcome.records[1:]]
    assert len({own["ptx_sha256"] for own in details}) == 2
    assert all(len(own["cubin_sha256"]) == 64 and "sm_90a" in own["options"] for own in details)
    rung = ladder.find("naive")
    artifact = compile_rung(rung)
    moved = replace(artifact, ptx=artifact.ptx.replace('.py"', '_moved.py"'))
    geometry = rung.geometry(rung.config, SHAPE)
    device: Any = FakeGpu({})
    same = [
        KernelContender(device, GEMM, Kernel("naive", "", one, geometry)).details
        for one in (artifact, moved)
    ]
    assert moved.ptx != artifact.ptx and same[0]["ptx_sha256"] == same[1]["ptx_sha256"]


@pytest.mark.parametrize(
    ("readings", "least_s", "took"),
    [
        ([1000] * 99, 3.0, 3.0),  # steady from the start: not before the least
        ([500, 800, 900, 950, 980, 985], 0.5, 1.0),  # until it no longer moves by 1 %
        (list(range(1000, 100_000, 200)), 0.5, machine.MOST_S),  # never
        ([None] * 99, 0.5, 0.6),  # a driver that tells no clock
    ],
)
def test_work_goes_on_until_the_clock_settles(readings, least_s, took):
    now = [0.0]

    def work():
        now[0] += 0.05

    told = iter(readings)
    found = machine.settle(work, lambda: next(told), least_s, now=lambda: now[0])
    assert found == pytest.approx(took, abs=0.11)
