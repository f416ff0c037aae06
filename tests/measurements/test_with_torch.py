"""Every measurement that needs PyTorch runs on tiny inputs; its record fills its tables."""

import contextlib
import json
import math
from typing import Any

import numpy as np
import pytest
from machine import needs_torch

from benchmarks import (
    accuracy,
    alternatives,
    children,
    contract,
    direct,
    fp16x3,
    new_shapes,
    sm80,
)
from benchmarks.__main__ import module
from benchmarks.matmul import host, results, speed, workloads
from benchmarks.programs import steps
from benchmarks.programs import tables as program_tables
from benchmarks.programs.models import Computation, Program, Training

pytestmark = [pytest.mark.slow, needs_torch]  # importing PyTorch takes seconds

TINY: dict[str, dict[Any, dict[str, Any]]] = {
    "matmul": {
        host: {"SIZE": 16, "BURST": 2, "ROUNDS": 3, "LIBRARIES": ("torch",)},
        results: {"DEPTHS": (16, 24), "SAMPLE": 8, "LU_BLOCK": 4, "SYSTEMS": 2, "SIZES": (8,)},
        speed: {
            "SQUARES": (64,),
            "METERED": (64,),
            "METERED_S": 1e-6,
            "SHAPES": [(64, 32, 128, 1, "nt"), (64, 64, 64, 3, "tn")],
            "DRAWN": 2,
            "SIDES": (8, 32),
            "STACKS": (1, 3),
            "ROUNDS": 3,
            "COOLING_S": 0,
        },
        workloads: {"MEANS_SIZES": (30, 4, 3), "NEIGHBOURS_SIZES": (12, 16, 3), "CHUNK": 8},
    },
    "sm80": {
        sm80: {
            "SQUARES": [(64, "nn"), (64, "tt")],
            "SHAPES": [(16, 8, 32)],
            "ROUNDS": 3,
            "pretend": lambda gpu: None,
        }
    },
    "contract": {contract: {"M": 16, "N": 8, "K": 32, "ROUNDS": 3}},
    "fp16x3": {
        fp16x3: {
            "SQUARES": (64,),
            "OTHERS": [(64, 32, 128, 1, "tt"), (64, 64, 64, 3, "nn")],
            "DEPTHS": (16,),
            "SHOWN": (16,),
            "SAMPLE": 8,
            "ROUNDS": 3,
            "ROTATED": 100_000,
            "SHORTEST_S": 1e-6,
        }
    },
}


@pytest.mark.filterwarnings("ignore:(overflow|invalid):RuntimeWarning")
@pytest.mark.parametrize("name", TINY)
def test_a_measurement_fills_its_record_and_its_pages(name, gpu, monkeypatch, tmp_path):
    for part, constants in TINY[name].items():
        for constant, value in constants.items():
            monkeypatch.setattr(part, constant, value)
    measured, target = module(name).MEASUREMENT, tmp_path / "record.json"
    assert measured.run(target, [], gpu) == 0
    record = json.loads(target.read_text())
    assert all(record[part] for part in measured.parts)
    assert {name: x for name, x in numbers(record) if not (math.isfinite(x) and x >= 0)} == {}
    for tables_of in measured.pages.values():
        for table in tables_of(record).values():
            assert table.splitlines()[-1].startswith("|") and "nan" not in table


def numbers(value, name=""):
    """All numbers of a record, with where they are, but biases, which have a sign."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from numbers(item, f"{name}/{key}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from numbers(item, f"{name}/{i}")
    elif isinstance(value, float | int) and not name.endswith("/bias"):
        yield name, value


def test_errors_are_those_of_the_definition(gpu):
    a, b = gpu.numbers(np.array([[1.0, 2.0]], np.float32)), gpu.numbers(np.eye(2, dtype="f4"))
    product, magnitude = accuracy.exact(a, b)
    off = product.clone()
    off[0, 1] += 3 * 2.0**-23  # 2·3 u of magnitude 2
    found = accuracy.errors(off, product, magnitude)
    assert found["componentwise_u"] == 3
    assert found["frobenius"] == pytest.approx(3 * 2.0**-23 / 5**0.5, rel=1e-2)
    assert found["bias"] == pytest.approx(2.0**-23, rel=1e-2)
    assert accuracy.worst_u(0 * off, 0 * product, 0 * magnitude) == 0
    with pytest.raises(AssertionError, match="zeros"):
        accuracy.worst_u(off, product, 0 * magnitude)


def test_families_have_their_signs_and_seeds(gpu):
    drawn = {x: gpu.draw(x, (64, 64), 3) for x in ("normal", "half-normal", "lognormal 2")}
    assert (drawn["normal"] < 0).any() and (drawn["half-normal"] >= 0).all()
    assert gpu.torch.equal(drawn["normal"].abs(), drawn["half-normal"])
    assert gpu.torch.allclose(drawn["lognormal 2"].log() / 2, drawn["normal"], atol=1e-5)
    assert not gpu.torch.equal(gpu.normal(64, 64, seed=4), drawn["normal"])


def test_systems_solved_in_blocks_have_the_residual_of_lu(gpu, monkeypatch):
    """Blocks of 4 of a matrix of 16 need pivots from other blocks."""
    monkeypatch.setattr(results, "LU_BLOCK", 4)
    a, x = gpu.normal(16, 16, seed=1), gpu.normal(16, 1, seed=2)
    right = (a.double() @ x.double()).float()
    assert results.residual(gpu, a, right, gpu.torch.matmul) < 50
    worse = results.residual(gpu, a, right, lambda p, q: (p @ q).bfloat16().float())
    assert worse > 500


def test_alternatives(gpu, monkeypatch):
    less = {"TRITON_TILES": 1, "TRITON_PRECISIONS": 1, "JAX_PRESETS": 1}
    for name, count in less.items():
        monkeypatch.setattr(alternatives, name, getattr(alternatives, name)[:count])
    for name, value in {"DEEPEST": 64, "ROUNDS": 2, "BURST_S": 1e-6}.items():
        monkeypatch.setattr(alternatives, name, value)
    found = alternatives.measure(64, gpu)
    assert found["gemmlab.matmul"]["tflops"] > 0 and found["gemmlab.matmul"]["norm"] < 1e-6
    record = gpu.facts() | {"triton": "3", "jax": "1"}
    record["sizes"] = {"64": found | {"no": {"error": "e"}}}
    [table] = alternatives.alternatives(record).values()
    assert "does not run: e" in table and "| gemmlab.matmul |" in table


def test_drawn_products_are_timed_in_the_most_promising_ways(gpu, monkeypatch):
    """None in a tier that is far slower, or not accurate."""
    shapes, timed = [(40, 24, 96, 2, "nt"), (20, 30, 17, 1, "tn")], []

    def bound(_gpu, _launcher, a, b, c, choice, index):
        assert (*a.shape[:-1], b.shape[-1]) == c.shape
        timed.append((choice.tier, index))
        return lambda: None

    changes = {"few_operations": lambda _: shapes, "Launcher": lambda _: None, "bound": bound}
    for name, value in {**changes, "LEAST_PACKED": 1e5, "LARGEST_FMA": 1e6}.items():
        monkeypatch.setattr(direct, name, value)
    deep, shallow = direct.drawn(gpu)
    assert deep.keys() - shallow.keys() == {"fp16x3", "routes"} and shallow["sgemm"] > 0
    found = [("fp16x3", None), *(("tf32x3", index) for index, _ in deep["routes"])]
    found += [("fma", index) for row in (deep, shallow) for index, _ in row["fma"]]
    assert timed == found and len(found) == 1 + 3 + 2 + 2


def test_the_fastest_way_counts_and_failures_are_told(gpu):
    def wrong(a, b):
        raise ValueError("no such tile\nmore")

    right = gpu.torch.matmul
    operands = (gpu.normal(4, 4), gpu.normal(4, 4))
    found = alternatives.fastest(gpu, [wrong, right], operands)
    assert isinstance(found, alternatives.Contender) and found.multiply is right
    assert alternatives.fastest(gpu, [wrong], operands) == "ValueError: no such tile"


def tiny_training(gpu, share=1):
    nn = gpu.torch.nn
    x = gpu.normal(8 // share, 4)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    return Training(gpu, model, lambda m: m(x).square().mean())


def tiny_computation(gpu):
    return Computation(gpu, lambda x, y: x @ y, gpu.normal(4, 8), gpu.normal(8, 4, seed=1))


@pytest.mark.parametrize("make", [tiny_training, tiny_computation])
def test_programs(make, gpu, monkeypatch):
    monkeypatch.setattr(steps, "CURVE_STEPS", 4)
    record = {"programs": {"tiny": steps.measure(Program(make, compiles=False), gpu)}}
    found = record["programs"]["tiny"]
    assert "error" not in found and found["eager"]["speedup"] > 0
    assert 0 <= found["difference"]["gemmlab"] < 1e-5
    if make is tiny_training:
        record["losses"] = {"tiny": steps.curves(Program(make), gpu)}
        curves = record["losses"]["tiny"]
        assert len(curves["gemmlab"]) == 4 and curves["float32"] == curves["float32, again"]
        assert curves["float32"][-1] < curves["float32"][0]
    made = program_tables.tables(record)
    assert all(text.splitlines()[-1].startswith("| tiny |") for text in made.values())


def test_a_program_that_fails_does_not_end_the_others(gpu):
    assert steps.measure(Program(lambda gpu: 1 / 0), gpu) == {
        "error": "ZeroDivisionError: division by zero"
    }


def test_new_shapes(gpu, monkeypatch):
    seen = []
    small = {"SHAPES": 6, "IN_TURN": 2, "SIDES": (2, 9), "PRODUCTS": 4, "WEIGHT": 8}
    for name, value in small.items():
        monkeypatch.setattr(new_shapes, name, value)

    @contextlib.contextmanager
    def multiplying(gpu, way):
        def multiply(a, b):
            seen.append((way, *a.shape, b.shape[1]))
            return a @ b

        yield multiply

    first, *_ = new_shapes.WAYS
    with new_shapes.multiplying(gpu, first) as multiply:
        assert multiply is gpu.torch.matmul
    monkeypatch.setattr(new_shapes, "multiplying", multiplying)
    waits = []
    monkeypatch.setattr(gpu, "synchronize", lambda: waits.append(len(seen)))
    found = {}
    for case in new_shapes.CASES:
        seen.clear()
        waits.clear()
        found[case] = new_shapes.shapes(gpu, case)
        ways = [way for way, *_ in seen]
        assert ways == [way for _ in range(3) for way in new_shapes.WAYS for _ in range(2)]
        assert len({tuple(size) for _, *size in seen}) == 18
        assert all(found[case][way]["us"] > 0 for way in new_shapes.WAYS)
        assert {*waits} == {*range(0, 18, 1 if case == "idle" else 2)}
    seen.clear()
    turns = new_shapes.ragged(gpu, first)["ms"]
    assert len(seen) == 3 * 4 and seen[:4] == seen[4:8] and len(turns) == 3
    record = {
        "shapes": {"in turn": found},
        "ragged": {"in turn": {way: {"ms": turns} for way in new_shapes.WAYS}},
    }
    assert new_shapes.new_shapes(record)["new-shapes"].count("\n") == 4


def test_new_shapes_are_medians_over_processes(gpu, monkeypatch):
    calls = []

    def call(*words):
        calls.append(words)
        return {"a": {"ms": [len(calls), -len(calls)]}}

    monkeypatch.setattr(children, "check_kernels", lambda: None)
    monkeypatch.setattr(children, "call", call)
    found = new_shapes.fresh("shapes", new_shapes.CASES)(gpu)
    assert calls == [("new_shapes", "child", "shapes", case) for case in (*new_shapes.CASES,) * 5]
    assert found == {"idle": {"a": {"ms": [5, -5]}}, "busy": {"a": {"ms": [6, -6]}}}
