"""Records as JSON, the metrics derived from them, and the sentences about those."""

import json
from dataclasses import replace

import pytest

from gemmlab.core import figures
from gemmlab.lab import metrics, records
from gemmlab.lab.records import Record
from gemmlab.report import steps, tables

STEP = "naive → shared (tiles of A and B in shared memory)"
COUNTERS = {
    metrics.GLOBAL_LOAD_REQUESTS: 1000,
    metrics.GLOBAL_LOAD_SECTORS: 4000,
    metrics.GLOBAL_STORE_SECTORS: 96,
    metrics.SHARED_LOAD_WAVEFRONTS: 0,
    metrics.SHARED_STORE_WAVEFRONTS: 0,
    metrics.SHARED_EXCESSIVE: 0,
    metrics.PTX_INSTRUCTIONS: 9000,
}
BASE = Record(
    rung="naive",
    problem="gemm",
    shape={"m": 64, "n": 64, "k": 16},
    layout="row",
    family="normal",
    seed=0,
    device="emulated",
    arch="sm_90a",
    verdict="pass",
    message="",
    bound_u=8.0,
    flops=2 * 64 * 64 * 16,
    min_bytes=24576,
    max_error_u=1.5,
    resources={"registers": 32, "spill_bytes": 0, "static_smem_bytes": 0},
    occupancy={"fraction": 1.0},
    counters=COUNTERS,
)


def changed(**counts):
    names = {name: getattr(metrics, name.upper()) for name in counts}
    counters = COUNTERS | {names[name]: value for name, value in counts.items()}
    return replace(BASE, rung="shared", counters=counters)


def test_json_is_strict_and_complete():
    record = replace(BASE, max_error_u=float("inf"), worst={"got": float("nan"), "index": (1, 2)})
    written = json.loads(records.dumps([record]))
    [loaded] = written["records"]
    assert loaded["max_error_u"] is None
    assert loaded["worst"] == {"got": None, "index": [1, 2]}
    assert {"rung", "problem", "shape", "layout", "family", "seed"} <= loaded.keys()
    assert written["run"] == {"device": "emulated", "arch": "sm_90a", "versions": {}}


def test_a_file_states_the_run_once(tmp_path):
    path = tmp_path / "a.json"
    skipped = replace(BASE, rung="shared", verdict="skipped", versions={"python": "3.11"})
    compiled = replace(BASE, versions={"python": "3.11", "compiler": "4"})
    records.write(path, [skipped, compiled])
    assert path.read_text().count("3.11") == path.read_text().count("sm_90a") == 1
    assert records.read(path) == [replace(skipped, versions=compiled.versions), compiled]


@pytest.mark.parametrize("other", [{"device": "cuda:0"}, {"versions": {"python": "3.12"}}])
def test_records_of_two_runs_are_not_written_as_one(other):
    with pytest.raises(ValueError, match="several runs"):
        records.dumps([replace(BASE, versions={"python": "3.11"}), replace(BASE, **other)])


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "records.json"
    records.write(path, [BASE])
    before = path.read_text()
    with pytest.raises(TypeError):
        records.write(path, [replace(BASE, worst={"got": object()})])
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


def test_records_of_a_climb_may_be_in_a_file_called_run(tmp_path):
    records.write(tmp_path / "run.json", [BASE])
    assert records.read(tmp_path) == records.read(tmp_path / "run.json") == [BASE]


def test_metrics():
    assert metrics.sectors_per_load(BASE) == 4.0
    assert metrics.intensity(BASE) == 2 * 64 * 64 * 16 / (32 * 4096)
    assert metrics.occupancy_percent(BASE) == 100
    nothing = replace(BASE, counters=None, resources=None, occupancy=None)
    for value in (metrics.sectors_per_load, metrics.intensity, metrics.registers):
        assert value(nothing) is None


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (
            changed(global_load_sectors=500),
            f"{STEP}: global load sectors fall 8× (4,000 → 500).",
        ),
        (
            changed(ptx_instructions=18000, shared_load_wavefronts=64),
            f"{STEP}: PTX instructions rise 2× (9,000 → 18,000), "
            "shared wavefronts appear (0 → 64).",
        ),
        (
            changed(ptx_instructions=9100),
            f"{STEP}: no counter changed by 10 %; counters show neither latency nor hits in L2.",
        ),
        (
            replace(BASE, rung="shared", occupancy={"fraction": 0.25}),
            f"{STEP}: occupancy in % falls 4× (100 → 25).",
        ),
    ],
)
def test_steps_say_what_moved(after, told):
    assert steps.sentences([BASE, after]) == [told]


def test_a_rung_that_the_ladder_no_longer_has_needs_no_text():
    assert steps.sentence(BASE, replace(changed(), rung="gone"))[0] == "naive → gone"


def test_steps_leave_out_what_was_neither_counted_nor_timed():
    assert steps.sentences([BASE, replace(BASE, rung="shared", counters=None)]) == []


def test_steps_tell_the_time_on_a_gpu():
    _, told = steps.sentence(replace(BASE, time_s=1e-3), replace(BASE, time_s=5e-4))
    assert "time in µs falls 2× (1,000 → 500)" in told


def test_steps_pass_over_rungs_that_failed():
    failed = replace(BASE, rung="broken", verdict="wrong answer")
    assert len(steps.sentences([BASE, failed, changed()])) == 1


def test_notes_say_what_went_wrong_and_what_was_not_counted():
    failed = replace(BASE, verdict="wrong answer", message="7 elements")
    uncounted = replace(BASE, device="cuda:0", counters=None, time_s=1e-3)
    different = replace(BASE, emulator_bits_equal=False)
    told = tables.notes([failed, uncounted, different])
    assert told[0] == "naive: wrong answer: 7 elements"
    assert "differ in bits" in told[1] and "--device emulated" in told[2]
    assert not different.passed and not failed.passed and uncounted.passed
    assert "bitwise equal" in tables.notes([replace(BASE, emulator_bits_equal=True)])[0]


@pytest.mark.parametrize(
    ("min_bytes", "flops", "percent"),
    [
        (96 * 10**6, 10**6, 20.0),  # 20 µs at 4.8 TB/s
        (6 * 10**7, 10**6, None),  # fits in L2: no bound
        (6 * 10**7, 669 * 10**7, 100.0),  # by its FLOPs
    ],
)
def test_the_bandwidth_is_a_roof_for_what_l2_cannot_hold(min_bytes, flops, percent):
    time_s = 1e-4
    on_gpu = dict(device="cuda:0 NVIDIA H200", time_s=time_s, min_bytes=min_bytes, flops=flops)
    found = metrics.roof_percent(replace(BASE, **on_gpu))
    assert found == (percent and pytest.approx(percent))


@pytest.mark.parametrize(("rung", "peak"), [("short-chains", 989.5 / 3), ("bf16x6", 989.5 / 6)])
def test_the_roof_of_a_rung_on_tensor_cores_is_theirs(rung, peak):
    on_gpu = replace(BASE, device="cuda:0 NVIDIA H200", problem="gemm", time_s=1e-4, min_bytes=1)
    found = replace(on_gpu, rung=rung, flops=10**10)
    assert metrics.roof_percent(found) == pytest.approx(100 * 100 / peak)


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (figures.scaled, 999.0, "999"),
        (figures.scaled, 16_777_216.0, "16.8M"),
        (figures.scaled, 0.0, "0"),
        (figures.scaled, 999_499.0, "999k"),
        (figures.scaled, 999_999.0, "1M"),
        (figures.scaled, 8.796e15, "8.8P"),
        (figures.scaled, 1.98e28, "19.8R"),
        (figures.seconds, 5.8e-05, "58µs"),
        (figures.seconds, 0.276, "276ms"),
        (figures.seconds, 0.9999, "1s"),
        (figures.seconds, 8123.4, "8,123s"),
        (figures.digits, 0.4884, "0.488"),
        (figures.digits, 4799.6, "4,800"),
        (figures.digits, 999.6, "1,000"),
        (figures.percent, 25.0, "25%"),
    ],
)
def test_numbers_are_short(write, value, text):
    assert write(value) == text
