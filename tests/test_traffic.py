"""Traffic models: closed forms, their texts, and the hardware's readings."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmlab import problems
from gemmlab.hardware import occupancy, specs, traffic
from gemmlab.hardware.formula import Quantity, ceil_div, least
from gemmlab.kernels import ladder
from gemmlab.lab.explain import models
from gemmlab.lab.explain.readings import readings

READINGS = Path(__file__).parent / "readings"
OCCUPANCY = json.loads((READINGS / "occupancy.json").read_text())
FIELDS = [f"global_{x}s" for x in ("load", "store", "atomic")]
FIELDS += [f"shared_{x}s" for x in ("load", "store", "atomic")]
RUNGS = [r for name in problems.NAMES for r in ladder.rungs(name) if r.launches is None]
RUNGS = [r for r in RUNGS if not r.pending]
GPU = "H200"  # whose readings come first


def cube(size):
    return dict.fromkeys("mnk", size)


def value_of(text):
    """The value of a formula's text with numbers."""
    text = re.sub(r"⌈([^/⌉]+)/([^⌉]+)⌉", r"(-(-(\1)//(\2)))", text)
    return eval(text.replace("·", "*"))


def model_of(rung, shape) -> Any:
    """Return the model of a rung's traffic. These rungs have one."""
    return models.model(rung, shape)


@pytest.mark.parametrize("rung", RUNGS, ids=ladder.qualified)
@given(sizes=st.lists(st.integers(1, 3000), min_size=3, max_size=3))
@settings(max_examples=5, deadline=None)
def test_the_text_of_a_formula_is_its_value(rung, sizes):
    problem = problems.find(rung.problem)
    shape = dict(zip(problem.axes, sizes, strict=False))
    model = model_of(rung, shape)
    assert model.flops.value == problem.flops(shape)
    for field in ("flops", *FIELDS):
        quantity = getattr(model, field)
        assert value_of(quantity.numbers) == quantity.value


def test_operations_are_bracketed_where_they_must_be():
    a, b, c = (Quantity.named(name, value) for name, value in (("A", 7), ("B", 3), ("C", 2)))
    assert (a * (b + c)).symbols == "A·(B + C)"
    assert ((a + b) * c - 1).numbers == "(7 + 3)·2 - 1"
    assert (ceil_div(a + b, b * c) * 2).symbols == "⌈(A + B)/(B·C)⌉·2"
    assert ceil_div(a + b, b * c).value == math.ceil(10 / 6)
    assert least(a - 2, b).numbers == "min(7 - 2, 3)"
    assert (a + b).numbers_over(32) == "(7 + 3)/32"


def test_a_naive_product_of_1024_makes_67108864_requests():
    model = model_of(ladder.find("naive"), cube(1024))
    assert model.global_loads.value / 32 == 67_108_864


def test_the_traffic_of_a_tiled_product_is_the_textbooks():
    config = ladder.find("tile-2d-8x8").config
    model: Any = traffic.tiled_product(config, cube(8192))
    assert (
        model.global_loads.value == 8192**3 * (1 / 128 + 1 / 128) == pytest.approx(8.6e9, rel=0.01)
    )


@pytest.mark.parametrize(
    ("name", "from_global", "from_shared"),
    [
        ("naive", 2, 0),
        ("shared", 2 / 32, 2),
        ("shared-ilp2", 2 / 32, 1 + 1 / 2),
        ("tile-1d", 2 / 64, 1 + 1 / 8),
        ("tile-2d-4x4", 2 / 128, 2 / 4),
        ("tile-2d-8x8", 1 / 64, 1 / 4),
        ("float4-64", 2 / 64, 2 / 4),
    ],
)
def test_loads_per_result_are_parts_of_k(name, from_global, from_shared):
    model = model_of(ladder.find(name), cube(1024))
    results_and_k = 1024**2 * 1024
    assert model.global_loads.value == from_global * results_and_k
    assert model.shared_loads.value == from_shared * results_and_k


@pytest.mark.parametrize("name", problems.NAMES)
def test_every_rung_has_a_model(name):
    shape = dict.fromkeys(problems.find(name).axes, 100)
    for rung in ladder.rungs(name):
        if rung.launches is None and not rung.pending:
            assert models.model(rung, shape) is not None


@pytest.mark.parametrize("rung", ["naive", "shared", "float4", "double-buffer"])
def test_a_reading_of_hardware_is_the_model(rung):
    made = [r for r in readings("gemm", rung, "row", GPU) if r.rung == rung]
    assert {r.shape["m"] for r in made} >= {1024, 4096}
    for reading in made:
        model = model_of(ladder.find(rung), reading.shape)
        if rung == "naive":  # 32 lanes read one sector of A and four of B
            assert reading.l1_bytes == 32 * (1 + 4) * model.global_loads.value / 2 / 32
        elif rung == "double-buffer":  # one tile more than needed
            tile = model.global_loads.value * 4 * 8 / reading.shape["k"]
            assert reading.l1_bytes == 4 * model.global_loads.value + tile
        else:
            assert reading.l1_bytes == 4 * model.global_loads.value
        assert reading.l1_bytes > reading.l2_bytes > reading.dram_bytes


def test_device_memory_reads_inputs_once_where_l2_holds_them():
    for reading in readings("gemm", "naive", "row", GPU):
        inputs = 8 * reading.shape["m"] ** 2
        fits = inputs + inputs / 2 <= specs.product("H200").l2_mb * 2**20
        assert (reading.dram_bytes < 1.01 * inputs) == fits


@pytest.mark.parametrize(
    ("rung", "factor"),
    [("naive", 1.01), ("shared", 2), ("tile-2d-8x8", 1.1), ("float4", 1.06), ("rasterized", 1.4)],
)
def test_shared_reads_are_an_estimate_from_below(rung, factor):
    """Blocks that drift apart read more: up to twice as much on an H200."""
    made = (r for r in readings("gemm", rung, "row", GPU) if r.rung == rung)
    (reading,) = (r for r in made if r.shape["m"] == 4096)
    blocks = next(r["blocks_per_sm"] for r in OCCUPANCY["rungs"] if r["rung"] == rung)
    estimate = traffic.shared_reads(ladder.find(rung).config, reading.shape, 132 * blocks)
    assert estimate <= reading.dram_bytes <= factor * estimate


def test_shared_reads_are_the_least_where_all_blocks_run_together():
    config = ladder.find("float4").config
    assert traffic.shared_reads(config, cube(512), 1000) == 4 * 2 * 512 * 512


@pytest.mark.parametrize("kind", ["rungs", "synthetic"])
def test_occupancy_is_the_drivers(kind):
    told = OCCUPANCY[kind]
    for one in told:
        smem = one["static_smem_bytes"] + one["dynamic_smem_bytes"]
        found = occupancy(OCCUPANCY["arch"], one["threads"], one["registers"], smem)
        assert found.blocks_per_sm == one["blocks_per_sm"], one
    assert len(told) >= 40


@pytest.mark.parametrize("gpu", specs.GPUS, ids=lambda gpu: gpu.name)
def test_a_roofline_bends_at_its_ridge(gpu):
    assert gpu.attainable_tflops(gpu.ridge) == pytest.approx(gpu.fp32_tflops)
    assert gpu.attainable_tflops(gpu.ridge / 4) == pytest.approx(gpu.fp32_tflops / 4)
    assert gpu.attainable_tflops(4 * gpu.ridge) == gpu.fp32_tflops
    assert 1 <= gpu.l2_mb <= 256


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("H200", "H200"),
        ("rtx2080ti", "RTX 2080 Ti"),
        ("RTX-4090", "RTX 4090"),
        ("A100", "A100 80GB"),
        ("a100 40gb", "A100 40GB"),
        ("H100", "H100 80GB HBM3"),
        ("V100", "V100-SXM2"),
    ],
)
def test_a_product_is_found_by_the_beginning_of_its_name(name, found):
    assert specs.product(name).name == found
