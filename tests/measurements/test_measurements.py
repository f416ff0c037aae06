"""Measurements without PyTorch: what can be checked of them without a GPU."""

import dataclasses
import json
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest
from cpu import Cpu
from machine import needs_native

from benchmarks import (
    cold,
    concepts,
    direct,
    first_product,
    first_product_child,
    ladder,
    latencies,
    microbenchmarks,
    others,
    register_file,
    sanitizer,
)
from benchmarks.emulator import launches, tables
from benchmarks.matmul import speed
from benchmarks.measurement import Measurement
from gemmlab import problems
from gemmlab.cubin.lint import lint
from gemmlab.errors import InputError, UnknownNameError


def test_first_product_leaves_the_first_process_out():
    seconds = dict.fromkeys(first_product_child.STEPS, 1.0)
    runs = [
        {"tier": "fp16x3", "of_the_lab": [], "seconds": seconds | {"gemmlab_s": s}}
        for s in (9.0, 1.0, 2.0, 3.0)
    ]
    found = first_product.summary(runs)
    assert found["gemmlab_s"] == [1, 2, 3] and found["medians"]["gemmlab_s"] == 2
    with pytest.raises(AssertionError, match="differ"):
        first_product.summary([*runs, runs[0] | {"tier": "ieee"}])


def test_drawn_products_are_those_of_the_record():
    """About two thousand, none of the page's, each in every tier that may be the fastest."""
    path = Path(direct.__file__).with_name("h200") / "direct.json"
    rows = json.loads(path.read_text())["drawn"]
    shapes = direct.few_operations(direct.SEEDS)
    assert [tuple(row[x] for x in ("m", "n", "k", "batch", "transposed")) for row in rows] == shapes
    assert len({*shapes}) > 1900 and {*shapes}.isdisjoint(speed.drawn_shapes())
    for row, shape in zip(rows, shapes, strict=True):
        tiers = direct.fastest_routes(*shape)
        assert {direct.NAMES[x] for x in tiers} == {*direct.NAMES.values()} & row.keys()
        assert all(len(tiers[x]) == direct.PROMISING[x] for x in tiers)
    assert direct.digits(123.456) == 123.5 and direct.digits(1.23456) == 1.235


@pytest.mark.slow
def test_latencies_run_on_the_emulator(monkeypatch):
    """The emulator has no clock that counts cycles; the GPU's tests read one."""
    monkeypatch.setattr(latencies, "REPEATS", 1)
    wanted = ("ffma latency", "shared load 4 B", "global load of 8 lines, L1", "barrier")
    cases = [case for case in microbenchmarks.cases(90) if case.name in wanted]
    for case in cases:
        small = dataclasses.replace(case, turns=1, warps=(1, 4))
        assert latencies.cycles(small, Cpu()).keys() == {"1 warps", "4 warps"}
    assert len(cases) == len(wanted)


@pytest.mark.slow
def test_cold_launches_run_on_the_emulator(monkeypatch):
    for name, value in {"PAUSE_CYCLES": 0, "LAUNCHES": 1, "PER_SM": 1, "MOVED_MB": (0, 1)}.items():
        monkeypatch.setattr(cold, name, value)
    monkeypatch.setattr(cold, "FLUSH_MB", 1)
    assert cold.moved("copy", "read", 1, Cpu()).keys() == {"0 MB", "1 MB"}
    assert cold.straight(8, 1, Cpu()).keys() == {"turn 1", "turn 2", "turn 3", "seconds"}
    monkeypatch.setattr(cold, "SCATTERED_MB", 1)
    monkeypatch.setattr(cold, "PLACES", 256)
    assert cold.scattered(16, Cpu())["places"] == 256


@pytest.mark.slow
def test_kernels_of_others_run_on_the_emulator(monkeypatch):
    monkeypatch.setattr(others, "FLUSH_BYTES", 1024)
    monkeypatch.setattr(others, "MOST", 2)
    for name, sizes in (("dot", "n=4096"), ("matrix-mul", "m=32 n=32 k=32")):
        assert others.cold(name, sizes, Cpu())["launches"] == 2


def test_each_kernel_of_others_has_sizes():
    files = {x.stem for x in others.FOLDER.iterdir() if x.suffix in (".cu", ".ptx")}
    assert files == set(others.SIZES)


def test_microbenchmarks_have_distinct_names_and_addresses():
    cases = microbenchmarks.cases(90)
    assert len({case.name for case in cases}) == len(cases)
    load = next(case for case in cases if case.name == "global load 4 B, L1")
    assert "a + 512" in load.source and "{i" not in load.source


@pytest.mark.slow
def test_concepts_run_on_the_emulator(monkeypatch, tmp_path):
    for name, value in {"STEPS": 40, "L2_FILL": 4096, "COPIED": 2048, "SMEM": (0, 50_000)}.items():
        monkeypatch.setattr(concepts, name, value)
    chases = {"L1": (1024, True), "memory": (2048, False)}
    levels = {name: partial(concepts.chase, *how) for name, how in chases.items()}
    parts = {"latency_clocks": levels, "copies": concepts.MEASUREMENT.parts["copies"]}
    target = tmp_path / "record.json"
    Measurement(parts).run(target, [], Cpu())
    record = json.loads(target.read_text())
    assert record["latency_clocks"].keys() == levels.keys() and len(record["copies"]) == 4
    assert record["copies"][0] == {"loads_in_flight": 1, "occupancy": 1, "gbs": 8e-6 * 2048}
    tables = concepts.concepts(record)
    assert tables["occupancy"].splitlines()[-1] == "| 50 % | 0 | 0 |"


@pytest.mark.slow
def test_registers_of_ffmas_are_set_in_machine_code():
    plain = register_file.compiled("sm_90a")
    rules = {}
    for name, sequence in register_file.sequences(*register_file.banks(register_file.ffmas(plain))):
        if name not in (
            "one of each bank",
            "three of one bank",
            "12×8 products row by row, nothing kept",
            "12×8 products in blocks of 2×2, a sum in the other bank",
        ):
            continue  # nvdisasm takes longer to start than to read the code
        loop = register_file.ffmas(register_file.rewritten(plain, sequence))
        rules[name] = lint(loop).cycles / len(loop)
        wanted = [f"R{x.c} R{x.a} R{x.b} R{x.c}" for x in sequence]
        found = [one.operands.replace(".reuse", "").replace(",", "") for one in loop]
        assert found == wanted * (len(loop) // len(wanted))
    assert rules["one of each bank"] == 1 and rules["three of one bank"] == 3
    assert rules["12×8 products row by row, nothing kept"] > 1.5
    assert rules["12×8 products in blocks of 2×2, a sum in the other bank"] == 1


def test_a_chain_visits_every_line_once():
    following = concepts.chain(64 * 4 * concepts.LINE_WORDS)
    at, seen = 0, set()
    while at not in seen:
        seen.add(at)
        at = int(following[at])
    assert at == 0 and len(seen) == 64


@pytest.mark.slow
def test_rungs_that_share_a_kernel_or_take_several_launches_are_not_timed_apart():
    groups = ladder.MEASUREMENT.parts
    named = {name: {rung.name for rung in groups[name].plan().rungs} for name in groups}
    assert "managed" not in named["vector-add"] and "fp16x3" not in named["gemm"]
    assert "float4" in named["gemm-course"] and all(named.values())
    for group in groups.values():
        problem = problems.find(group.problem)
        assert group.layout in problem.layouts and group.family in problem.families
        assert all(len(size) == len(problem.axes) for size in group.sizes)


def test_rungs_of_a_ladder_are_chosen_by_name():
    plan = ladder.MEASUREMENT.parts["gemm-course"].plan("float4,naive")
    assert [(rung.name, rung.layout) for rung in plan.rungs] == [
        ("float4", "course"),
        ("naive", "course"),
    ]
    with pytest.raises(UnknownNameError):
        ladder.MEASUREMENT.parts["sum"].plan("float4")


def test_a_ladder_goes_into_a_new_folder(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(InputError):
        ladder.MEASUREMENT.run(tmp_path, ["gemm"], Cpu())


SANITIZED = """\
========= Invalid __global__ write of size 4 bytes
=========     at k(float *)+0x70 in bug.cu:7
========= Invalid __global__ write of size 4 bytes
=========     at k(float *)+0x70 in bug.cu:7
========= ERROR SUMMARY: 2 errors
"""


def test_reports_of_compute_sanitizer_are_read():
    path = Path("planted/bug.cu")
    assert sanitizer.reported(SANITIZED, path) == {
        "count": 2,
        "reports": ["Invalid __global__ write of size 4 bytes"],
        "lines": [7],
    }
    assert sanitizer.reported("========= ERROR SUMMARY: 0 errors\n", path) == {}
    assert sanitizer.reported(None, path) == "hangs" == sanitizer.alone(None)
    assert sanitizer.alone("error CUDA_ERROR_ILLEGAL_ADDRESS\n") == "CUDA_ERROR_ILLEGAL_ADDRESS"
    assert sanitizer.planted("a;\nb; // expect: race\n") == ("race", 2)


def test_a_hanging_process_is_killed(monkeypatch):
    monkeypatch.setattr(sanitizer, "SECONDS", 0.2)
    assert sanitizer.run(["sleep", "60"]) is None
    assert sanitizer.run(["echo", "done"]) == "done\n"


@pytest.mark.slow
@needs_native
def test_the_emulators_tiers_are_timed_in_turn():
    case = launches.gemm("naive", 32)
    ways = [launches.Way("numpy"), launches.Way("native")]
    timed = case.time(ways, 2)
    assert [t.way for t in timed] == ways and all(t.processor_s > 0 for t in timed)
    rows = json.loads(json.dumps([asdict(t) for t in timed]))
    assert [launches.Timing.read(row) for row in rows] == timed


def test_the_page_shows_ratios_of_the_emulators_record():
    path = Path(launches.__file__).parents[1] / "emulated" / "speed.json"
    record = json.loads(path.read_text())
    shown = {result.what: result.value for result in tables.results(record)}
    one, two = record["timings"][:2]
    assert shown["`float4` 1024³, two threads: faster"] == one["wall_s"] / two["wall_s"]
    assert shown["NumPy tier against Numba's simulator"] > 100
