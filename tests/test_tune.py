"""`gemmlab tune`: the search for a rung's fastest configuration."""

from __future__ import annotations

import json
import re
import shlex
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from test_supervisor import COMMAND, start

from gemmlab import problems
from gemmlab.devices import open_device
from gemmlab.errors import InputError
from gemmlab.hardware import specs
from gemmlab.kernels import ladder
from gemmlab.kernels.settings import configured, read
from gemmlab.lab import metrics, tune
from gemmlab.lab.climb import climb
from gemmlab.lab.tune import Trial

H200 = specs.product("H200")
RECORDS = Path(__file__).parents[1] / "benchmarks/h200/bench/gemm/gemm/4096x4096x4096-row-normal"


def climbed(name, size, **changes):
    """A climb's record of a rung, on the emulator."""
    problem, rung = problems.find("gemm"), ladder.find(name)
    case = problem.case(dict.fromkeys("mnk", size), "row", "normal", 0)
    [record] = climb(problem, case, [rung], open_device("emulated"))
    return replace(record, **changes)


def test_a_search_without_a_gpu_ranks_every_configuration_by_its_bound(gemmlab, tmp_path):
    file = tmp_path / "tuned.json"
    where = ("--size", "40", "--device", "emulated")
    code, out, err = gemmlab("tune", "shared", *where, "--json", "-o", str(file))
    assert code == 0, err
    told = json.loads(out)
    assert file.read_text() == out
    assert (told["rung"], told["problem"], told["layout"]) == ("shared", "gemm", "row")
    assert (told["score"], told["shape"]) == ("bound", {"m": 40, "n": 40, "k": 40})
    trials = told["trials"]
    wanted = [
        {k: str(v) for k, v in rung.settings.items()} for rung in tune.chosen(ladder.find("shared"))
    ]
    assert {} in wanted and len(wanted) == 3
    assert all(trial["settings"] in wanted for trial in trials) and len(trials) == len(wanted)
    times = [trial["seconds"] for trial in trials]
    assert times == sorted(times) and times[0] > 0
    for trial in trials:
        assert trial["record"]["verdict"] == "pass"
        assert max(trial["limits_s"].values()) == trial["seconds"]
    assert [line.partition(" ")[0] for line in err.splitlines()] == ["1/3", "2/3", "3/3"]
    assert "1/3 shared: pass, at least " in err


def test_the_table_says_what_is_best_and_why(gemmlab, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    code, out, _ = gemmlab("tune", "naive", "--most", "2", "--size", "64", "--device", "emulated")
    lines = out.splitlines()
    assert code == 0 and lines[0] == "gemm naive, 64×64×64, row layout, emulated"
    assert [line.split("  ")[0] for line in lines[3:5]] == ["block_m=4", "as in the ladder"]
    assert "instructions" in lines[3]
    assert lines[-1].startswith("Best of 2: block_m=4, at least ")
    assert lines[-1].endswith("8.00 times as fast as the ladder's by the bound.")


def test_a_large_shape_is_counted_at_a_smaller_one():
    gemm = problems.find("gemm")
    assert tune.counted_shape(gemm, {"m": 4096, "n": 64, "k": 4096}) == {
        "m": 512,
        "n": 64,
        "k": 512,
    }
    assert tune.counted_shape(gemm, dict.fromkeys("mnk", 300)) == dict.fromkeys("mnk", 300)


def test_the_bound_is_the_work_of_the_multiprocessor_with_the_most_blocks():
    rung, shape = ladder.find("float4"), {"m": 4096, "n": 4096, "k": 1024}
    counters = {
        metrics.MACHINE_INSTRUCTIONS: 4_000_000,
        metrics.SHARED_LOAD_WAVEFRONTS: 600_000,
        metrics.SHARED_STORE_WAVEFRONTS: 200_000,
        metrics.GLOBAL_LOAD_SECTORS: 600_000,
        metrics.GLOBAL_STORE_SECTORS: 200_000,
    }
    record = climbed("float4", 16, counters=counters, shape=dict.fromkeys("mnk", 512))
    found = tune.limits_s(rung, record, shape, 100 * 2**20, H200)
    clocks = 132 * 1980e6
    uneven = 8 * 132 / 1024  # 1024 blocks on 132 multiprocessors: at most 8 on one
    assert found["instructions"] == pytest.approx(128 * uneven * 1e6 / clocks)
    assert found["shared memory and L1"] == pytest.approx(128 * uneven * 1e6 / clocks)
    assert found["device memory"] == pytest.approx(40 * 2**20 / 4.8e12)


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("naive", 3.6),
        ("tile-2d-8x8", 1.4),
        ("float4", 1.5),
        ("warp-tile", 1.5),
        ("async-copy", 1.3),
    ],
)
@pytest.mark.slow
def test_measured_times_are_a_little_longer_than_the_bounds(name, most):
    measured = json.loads((RECORDS / f"{name}.json").read_text())["gpu_median_s"]
    shape = dict.fromkeys("mnk", 4096)
    least = problems.find("gemm").min_bytes(shape)
    limits = tune.limits_s(ladder.find(name), climbed(name, 256), shape, least, H200)
    assert max(limits.values()) < measured < most * max(limits.values())


def test_times_rank_before_bounds_and_failures_come_last():
    record = climbed("naive", 16)
    timed = [
        Trial({"block_m": 8}, replace(record, time_s=2.0), {}),
        Trial({}, replace(record, time_s=3.0), {}),
        Trial({"block_m": 4}, replace(record, verdict="wrong answer", time_s=1.0), {}),
    ]
    assert [trial.name for trial in tune.ranked(timed)] == [
        "block_m=8",
        "as in the ladder",
        "block_m=4",
    ]
    told = tune.sentence(timed, ladder.find("naive"))
    assert told == "Best of 3: block_m=8, 2s, 1.50 times as fast as the ladder's."
    assert tune.sentence(timed[2:], ladder.find("naive")) == "No configuration of naive passed."


def test_a_search_in_which_nothing_passes_fails(gemmlab, monkeypatch):
    def refuse(*given, **named):
        raise InputError("no such kernel today")

    monkeypatch.setattr("gemmlab.lab.climb.compile_rung", refuse)
    code, out, _ = gemmlab("tune", "naive", "--most", "2", "--size", "16", "--device", "emulated")
    assert code == 1
    assert "block_m=4: not run: no such kernel today" in out
    assert out.splitlines()[-1] == "No configuration of naive passed."


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["naive", "--most", "0"], "--most 0: at least 1 configuration must be tried"),
        (["nothing"], "no rung 'nothing'"),
        (["naive", "--shape", "1,2"], "--shape '1,2' has 2 sizes; it must be M,N,K"),
        (["naive", "-o", "/nowhere/x.json"], "folder /nowhere does not exist"),
    ],
)
def test_mistakes_are_told_before_the_search(gemmlab, words, message):
    code, out, err = gemmlab("tune", *words)
    assert (code, out) == (2, "") and message in err


def test_a_rung_without_choices_is_refused():
    with pytest.raises(InputError, match="naive names no other configuration to try"):
        tune.chosen(replace(ladder.find("naive"), choices={}))


def test_the_page_names_configurations_that_exist():
    page = (Path(__file__).parents[1] / "docs" / "tuning.md").read_text()
    found = re.findall(r"^    gemmlab .*--set.*", page, re.MULTILINE)
    assert len(found) == 6
    known = {rung.name for rung in ladder.rungs()}
    for line in found:
        words = shlex.split(line)
        rung = next(word for word in words if word in known)
        given = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
        assert configured(ladder.find(rung), read(given)).settings
    assert "gemmlab: copy-warps with stages=40: 40 stages take 2007040 bytes, at most" in page
    with pytest.raises(InputError, match="40 stages take 2007040 bytes, at most 231424"):
        configured(ladder.find("copy-warps"), {"stages": 40})


@pytest.mark.slow
def test_an_interrupted_search_keeps_what_is_found(tmp_path):
    output = tmp_path / "tuned.json"
    command = [*COMMAND, "tune", "tile-1d", "--size", "96", "--device", "emulated"]
    with start([*command, "-o", str(output)]) as running:
        assert "1/62 tile-1d: pass" in running.stderr.readline()
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=20)
    assert (running.returncode, "Traceback" in err) == (130, False), err
    trials = json.loads(output.read_text())["trials"]
    assert 1 <= len(trials) < 20 and f"interrupted after {len(trials)} configurations" in err
    assert out.startswith("gemm tile-1d, 96×96×96") and f"Best of {len(trials)}: " in out
