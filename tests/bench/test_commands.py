"""`gemmlab bench` and `gemmlab compare`, with and without a GPU."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cuda.bindings import driver
from machine import needs_gpu
from test_numbers import BASE, timed

from gemmlab.core.packages import NVBENCH
from gemmlab.devices import open_device
from gemmlab.devices.emulated import EmulatedDevice
from gemmlab.errors import DeviceError, MissingDependencyError
from gemmlab.lab.bench import baselines, nvbench, record, session
from gemmlab.lab.bench.job import Outcome, Refusal
from gemmlab.report import bench_tables
from gemmlab.report.tables import console

ROOT = Path(__file__).parent.parent.parent
RUNS = sorted(file.parent for file in (ROOT / "benchmarks" / "h200" / "bench").glob("*/run.json"))


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def outcome(monkeypatch):
    """What the measurement returns, whatever it is asked for; the plans it was given."""
    monkeypatch.setattr("gemmlab.devices.open_device", lambda name: EmulatedDevice())
    found: Any = Outcome()
    found.plans = []

    def measure(plan, _protocol, _arch, keep):
        found.plans.append(plan)
        keep(found)
        return found

    monkeypatch.setattr(session, "measure", measure)
    return found


def test_without_a_gpu_there_is_one_message(gemmlab, monkeypatch):
    monkeypatch.setattr(driver, "cuInit", lambda flags: (driver.CUresult.CUDA_ERROR_NO_DEVICE,))
    code, out, err = gemmlab("bench", "naive")
    assert (code, out) == (3, "") and len(err.splitlines()) == 1


def test_without_nvbench_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bench", None)
    monkeypatch.setattr(type(NVBENCH), "version", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'gemmlab\[bench\]'"):
        nvbench._library()


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["nave"], "Did you mean 'naive'"),
        (["naive", "sum:vectorized"], "vectorized"),
        (["naive", "--shape", "3,4"], "must be M,N,K"),
        (["naive", "--family", "gaussian"], "cancellation"),
        (["naive", "--seed", "-1"], "seed -1"),
        (["naive", "--rounds", "0"], "rounds = 0"),
        (["naive", "--timeout", "nan"], "timeout_s = nan"),
        (["naive", "--baselines", "mkl"], "cublas, torch, cupy, triton"),
        (["--problem", "sum", "--baselines", "cublas"], "copy, cub, torch"),
        (["--problem", "sorting"], "histogram"),
    ],
)
def test_mistakes_are_found_before_the_gpu(gemmlab, args, told):
    code, out, err = gemmlab("bench", *args)
    assert (code, out) == (2, "") and told in err


def test_bench_prints_a_table_and_writes_a_file_per_record(gemmlab, outcome, tmp_path):
    noisy = replace(BASE, kernel="naive", warnings=["noise 9 %, above 0.5 %"])
    outcome.records += [BASE, noisy]
    code, out, _ = gemmlab("bench", "float4", "naive", "--shape", "9,9,9", "-o", str(tmp_path))
    assert code == 0
    assert out.startswith("NVIDIA H200, 132 SMs, driver 1.2") and "1000×1000×1000" in out
    assert "Warnings: naive: noise 9 %" in out and "cublas" in out
    assert record.read(tmp_path) == [BASE, noisy]
    [plan] = outcome.plans
    assert plan.shapes == [{"m": 9, "n": 9, "k": 9}]
    assert [rung.name for rung in plan.rungs] == ["float4", "naive"]


def test_bench_json_is_records_and_nothing_else(gemmlab, outcome):
    outcome.records.append(BASE)
    code, out, _ = gemmlab("bench", "--problem", "transpose", "--json")
    assert code == 0 and json.loads(out)[0]["kernel"] == "float4"
    assert outcome.plans[0].shapes == [{"m": 8192, "n": 8192}]


@pytest.mark.parametrize(
    ("status", "code"), [("wrong answer", 1), ("impossible time", 1), ("skipped", 0)]
)
def test_refusals_are_told_and_decide_the_exit_code(gemmlab, outcome, status, code):
    outcome.refusals.append(Refusal("naive", "gemm 9×9×9", status, "because"))
    found, _, err = gemmlab("bench", "naive")
    assert found == code and f"naive, gemm 9×9×9: {status}: because" in err


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (DeviceError("lost"), 3)])
def test_what_was_finished_is_kept(gemmlab, outcome, tmp_path, error, code):
    outcome.records.append(BASE)
    outcome.ended_by = error
    assert gemmlab("bench", "naive", "-o", str(tmp_path))[0] == code
    assert record.read(tmp_path) == [BASE]


def test_a_second_run_needs_its_own_folder(gemmlab, outcome, tmp_path):
    outcome.records.append(BASE)
    assert gemmlab("bench", "naive", "-o", str(tmp_path))[0] == 0
    code, _, err = gemmlab("bench", "naive", "-o", str(tmp_path))
    assert code == 2 and "already holds a run" in err
    assert len(outcome.plans) == 1  # the mistake is found before anything is measured


@pytest.mark.parametrize("width", [60, 120, 200])
def test_a_narrow_table_says_what_it_leaves_out(width):
    out = console()
    out.width = width
    with out.capture() as held:
        out.print(bench_tables.bench_table([BASE], width))
    assert max(map(len, held.get().splitlines())) <= width
    assert ("omitted at this width" in held.get()) == (width == 60)


@pytest.mark.parametrize(
    ("after", "code", "told"), [(timed(0.5e-4), 0, "faster"), (timed(2e-4), 1, "slower")]
)
def test_compare(gemmlab, tmp_path, after, code, told):
    before = tmp_path / "a"
    record.write(before, [BASE])
    (tmp_path / "b.json").write_text(record.dumps([after]))
    found, out, _ = gemmlab("compare", str(before), str(tmp_path / "b.json"))
    assert found == code and f"1 {told}" in out and "float4" in out


def test_compare_reads_runs_folders_of_runs_and_cases(gemmlab, tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    record.write(before / "one", [BASE])
    record.write(before / "two", [replace(BASE, kernel="naive")])
    record.write(after, [BASE, replace(BASE, kernel="naive")])
    _, out, _ = gemmlab("compare", str(before), str(after))
    assert "2 same" in out and "driver" not in out
    case = after / "gemm" / "1000x1000x1000-row-normal"
    assert "1 same, 1 only in B" in gemmlab("compare", str(before / "one"), str(case))[1]


def test_compare_needs_records(gemmlab, tmp_path):
    code, _, err = gemmlab("compare", str(tmp_path), str(tmp_path))
    assert code == 2 and "contains no records" in err


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_committed_records_are_plausible_and_complete(run):
    for found in record.read(run):
        told = f"{found.kernel}, {found.case}"
        assert found.max_error_u is None or found.max_error_u <= (found.bound_u or 0), told
        assert found.gpu_p10_s <= found.gpu_median_s <= found.gpu_p90_s, told
        roof = found.roof_percent("datasheet")
        assert roof is not None and roof <= 115, told  # the L2 may hold some of the bytes
        assert found.command.startswith("gemmlab bench ") and found.versions["cuda-driver"], told
        assert found.percent_of_baseline and found.baseline, told
        assert found.percent_of_baseline > 0 and found.baseline["details"]["call"], told
        assert record.path(run, found).exists(), told


def test_every_problem_has_baselines():
    for problem in ("gemm", "transpose", "sum", "histogram"):
        assert set(baselines.references(problem)) <= set(baselines.names(problem))


@needs_gpu
@pytest.mark.parametrize("name", ["naive", "wgmma-tma"])
def test_on_a_gpu_the_whole_way(name):
    """One rung against what is installed."""
    from gemmlab import problems
    from gemmlab.kernels import ladder
    from gemmlab.lab.bench.protocol import Protocol

    plan = session.BenchPlan(
        *(problems.find("gemm"), [ladder.find(name)], [{"m": 256, "n": 256, "k": 256}]),
        *("normal", 0, None),
    )
    protocol = Protocol(rounds=2, min_time_s=0.01, timeout_s=2)
    kept: list[Outcome] = []
    outcome = session.measure(plan, protocol, open_device("cuda").arch, kept.append)
    assert [found.records for found in kept] == [outcome.records]
    assert outcome.ended_by is None and not outcome.refusals
    assert outcome.records[-1].kernel == name and outcome.records[-1].samples >= 10
