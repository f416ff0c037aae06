"""What is computed from samples and records: statistics, roofs, comparison, files. No GPU."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmlab.errors import ImplausibleTimeError, InputError
from gemmlab.lab.bench import record, roofs, statistics
from gemmlab.lab.bench.compare import TOLERANCE, compare, machines
from gemmlab.lab.bench.protocol import Protocol
from gemmlab.lab.bench.record import Record
from gemmlab.lab.bench.statistics import Moments, Spread

MACHINE = {
    "gpu": "NVIDIA H200",
    "sms": 132,
    "driver": "1.2",
    "clocks": "as found",
    "roofs": {
        "measured": {"fp32_tflops": 60.0, "bandwidth_gbs": 4000.0, "tensor_tflops": None},
        "datasheet": {"fp32_tflops": 66.9, "bandwidth_gbs": 4800.0, "tensor_tflops": 989.5},
    },
}
BASE = Record(
    kernel="float4",
    title="128-bit loads",
    problem="gemm",
    shape={"m": 1000, "n": 1000, "k": 1000},
    layout="row",
    family="normal",
    seed=0,
    flops=2 * 10**9,
    min_bytes=12 * 10**6,
    precision="ieee",
    max_error_u=3.0,
    bound_u=64.0,
    samples=30,
    gpu_mean_s=1.01e-4,
    gpu_median_s=1e-4,
    gpu_p10_s=0.99e-4,
    gpu_p90_s=1.02e-4,
    gpu_noise_percent=0.8,
    round_medians_s=[1e-4],
    cpu_mean_s=2e-4,
    cpu_noise_percent=None,
    batch_samples=9,
    batch_mean_s=0.9e-4,
    sm_mhz=1900.0,
    temperature_c=40.0,
    power_w=500.0,
    warnings=[],
    baseline={"kernel": "cublas", "gpu_median_s": 0.5e-4, "details": {}},
    details={"call": "f"},
    command="gemmlab bench float4",
    rotation_bytes=9 * 10**6,
    interleaved=["cublas", "float4"],
    date="2026-01-01T00:00:00+00:00",
    protocol={"rounds": 3},
    machine=MACHINE,
    versions={},
)


def timed(median, p10=None, p90=None):
    return replace(
        BASE, gpu_median_s=median, gpu_p10_s=p10 or 0.999 * median, gpu_p90_s=p90 or 1.001 * median
    )


samples = st.lists(st.floats(1e-6, 1e-3), min_size=1, max_size=40)


@given(samples)
def test_a_spread_lies_between_the_extremes(values):
    spread = Spread.of(np.array(values))
    assert min(values) <= spread.p10 <= spread.median <= spread.p90 <= max(values)
    assert spread.samples == len(values)
    assert (spread.noise_percent is None) == (len(values) < statistics.FEWEST_FOR_NOISE)


@given(st.lists(st.lists(st.floats(1e-6, 1e-3), min_size=5, max_size=20), min_size=1, max_size=4))
def test_pooled_moments_are_those_of_all_samples(parts):
    spreads = [Spread.of(np.array(part)) for part in parts]
    moments = [Moments(s.samples, s.mean, s.noise_percent) for s in spreads]
    found = statistics.pooled(moments)
    everything = Spread.of(np.concatenate([np.array(part) for part in parts]))
    assert found.samples == everything.samples
    assert found.mean == pytest.approx(everything.mean)
    assert found.noise_percent == pytest.approx(everything.noise_percent, abs=1e-6)


def test_noise_that_is_not_known_is_not_pooled():
    assert statistics.pooled([Moments(9, 1.0, 0.1), Moments(2, 1.0, None)]).noise_percent is None


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([1.0] * 10, []),
        ([1.0] * 9, ["9 samples in the time limit of 15 s, not 10"]),
        ([1.0, 1.2] * 10, ["noise 9.3 %, above 0.5 %"]),
    ],
)
def test_warnings_are_those_of_nvbench(values, told):
    assert statistics.warnings(Spread.of(np.array(values)), Protocol()) == told


@pytest.mark.parametrize(
    "wrong",
    [{"rounds": 0}, {"min_samples": 0}, {"min_time_s": 0.0}, {"timeout_s": float("nan")}],
)
def test_a_protocol_that_measures_nothing_is_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        Protocol(**wrong)


def test_a_round_gets_its_share():
    options = Protocol(rounds=4, min_samples=10, min_time_s=1.0, timeout_s=8.0).nvbench_options()
    shares = dict(zip(options[::2], options[1::2], strict=True))
    assert shares["--min-samples"] == "3" and shares["--timeout"] == "2"
    assert shares["--min-time"] == shares["--batch-target-time"] == "0.25"
    assert shares["--max-noise"] == "0.5"  # not shared out


H200 = roofs.datasheet("NVIDIA H200", "sm_90a", 132, 1980, 4900)


@pytest.mark.parametrize(
    ("seconds", "flops", "nbytes", "precision", "possible"),
    [
        (1e-3, 66.9e9, 0, "ieee", True),
        (0.99e-3, 66.9e9, 0, "ieee", False),
        (0.99e-3, 66.9e9, 0, None, True),  # tensor cores may do it
        (1e-3, 990e9, 0, None, False),
        (1e-3, 0, 4.8e9, "ieee", True),
        (0.95e-3, 0, 4.8e9, "ieee", False),
        (1e-9, 0, 60e6, "ieee", True),  # the L2 may hold it all
    ],
)
def test_times_below_the_floor_are_refused(seconds, flops, nbytes, precision, possible):
    limits = roofs.Limits(H200, int(flops), 60 * 2**20, precision)
    if possible:
        limits.check(seconds, int(nbytes))
    else:
        with pytest.raises(ImplausibleTimeError, match="H200 data sheet"):
            limits.check(seconds, int(nbytes))


def test_a_gpu_that_no_table_has_is_taken_at_its_drivers_word():
    found = roofs.datasheet("A Card", "sm_89", 100, 2000, 500)
    assert found.fp32_tflops == pytest.approx(2 * 100 * 128 * 2e9 / 1e12)
    assert (found.bandwidth_gbs, found.tensor_tflops) == (500, None)


def test_what_follows_from_a_record():
    assert BASE.tflops == pytest.approx(20) and BASE.gigabytes_per_second == pytest.approx(120)
    assert BASE.percent_of_baseline == pytest.approx(50)
    assert BASE.roof_percent("measured") == pytest.approx(100 * 20 / 60)
    assert BASE.roof_percent("datasheet") == pytest.approx(100 * 20 / 66.9)
    tensor = replace(BASE, precision=None)
    assert tensor.roof_percent("datasheet") == pytest.approx(100 * 120 / 4800)  # by its bytes
    assert tensor.roof_percent("measured") is None
    moving = replace(BASE, flops=1000)
    assert moving.tflops is None
    assert moving.roof_percent("measured") == pytest.approx(100 * 120 / 4000)


@pytest.mark.parametrize(
    ("kernel", "products"), [("wgmma-tma", 3), ("bf16x6", 6), ("fp16x3 split_k=2", 3), ("mine", 1)]
)
def test_the_peak_of_a_rung_on_tensor_cores_counts_its_products(kernel, products):
    tensor = replace(BASE, kernel=kernel, precision="x3", min_bytes=1, gpu_median_s=1e-5)
    peak = tensor.peak("datasheet")
    assert peak and peak.tflops == pytest.approx(989.5 / products)
    assert tensor.peak("measured") is None
    assert tensor.roof_percent("datasheet") == pytest.approx(100 * 200 * products / 989.5)


def test_records_come_back_as_they_were(tmp_path):
    other = replace(BASE, kernel="kernel.cu", gpu_noise_percent=None, baseline=None)
    run = tmp_path / "run"
    record.write(run, [BASE, other])
    case = run / "gemm" / "1000x1000x1000-row-normal"
    shared = json.loads((run / "run.json").read_text())
    assert shared.keys() == {"date", "protocol", "machine", "versions"}
    assert not shared.keys() & json.loads((case / "float4.json").read_text()).keys()
    assert {file.name for file in case.iterdir()} == {"float4.json", "kernel.cu.json"}
    assert record.read(tmp_path) == record.read(run) == record.read(case) == [BASE, other]
    assert record.read(case / "float4.json") == [BASE]
    listed = tmp_path / "list.json"
    listed.write_text(record.dumps([BASE, other]))
    assert record.read(listed) == [BASE, other]


def test_a_folder_holds_one_run(tmp_path):
    record.write(tmp_path, [BASE])
    record.write(tmp_path, [naive := replace(BASE, kernel="naive")])
    with pytest.raises(InputError, match="already holds a run"):
        record.write(tmp_path, [replace(BASE, kernel="shared", date="another day")])
    with pytest.raises(InputError, match="already holds a run"):
        record.check_new(tmp_path)
    assert record.read(tmp_path) == [BASE, naive]


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "lacks date, machine, protocol, versions"), ("[]", r"run\.json"), ("no", r"run\.json")],
)
def test_a_result_needs_the_record_of_its_run(tmp_path, text, message):
    record.write(tmp_path, [BASE])
    run = tmp_path / "run.json"
    run.unlink() if text is None else run.write_text(text)
    with pytest.raises(InputError, match=message):
        record.read(tmp_path)


@pytest.mark.parametrize("text", ["{}", "[]", "no", '{"kernel": 3}', "[3]"])
def test_what_is_no_record_is_refused(tmp_path, text):
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(InputError, match=r"x.json"):
        record.read(file)


@pytest.mark.parametrize(
    ("after", "change"),
    [
        (timed(1e-4), "same"),
        (timed((1 + 0.99 * TOLERANCE) * 1e-4), "same"),
        (timed(0.5e-4), "faster"),
        (timed(1.5e-4), "slower"),
        (timed(0.97e-4, p90=1.0e-4), "undecided"),  # its p90 is above the old p10
        (timed(1.03e-4, p10=1.01e-4), "undecided"),  # its p10 is below the old p90
    ],
)
def test_changes(after, change):
    [found] = compare([BASE], [after])
    assert found.change == change
    assert found.ratio == pytest.approx(after.gpu_median_s / 1e-4)


@given(st.floats(1e-5, 1e-3), st.floats(1e-5, 1e-3))
def test_what_is_faster_one_way_is_not_faster_the_other(one, other):
    [forth] = compare([timed(one)], [timed(other)])
    [back] = compare([timed(other)], [timed(one)])
    assert {forth.change, back.change} in ({"faster", "slower"}, {"same"}, {"same", forth.change})


def test_missing_and_doubled_records():
    other = replace(BASE, kernel="naive")
    found = compare([BASE, other], [BASE])
    assert [one.change for one in found] == ["same", "only in A"]
    assert compare([BASE], [BASE, other])[1].change == "only in B"
    with pytest.raises(InputError, match="in common"):
        compare([BASE], [other])
    with pytest.raises(InputError, match=r"several records of .*×.*: compare run with run"):
        compare([BASE, BASE], [BASE])


def test_other_reasons_for_a_difference_are_told():
    elsewhere = replace(BASE, machine=MACHINE | {"gpu": "NVIDIA H100"}, sm_mhz=1500.0)
    found = compare([BASE], [elsewhere])
    assert machines(found) == ["gpu: NVIDIA H200 → NVIDIA H100"]
    assert found[0].clocks == "1900 → 1500 MHz"
    assert compare([BASE], [BASE])[0].clocks == "" and machines(compare([BASE], [BASE])) == []


def test_json_is_plain():
    assert json.loads(record.dumps([BASE]))[0]["shape"] == {"m": 1000, "n": 1000, "k": 1000}
