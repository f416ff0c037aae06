"""Explanations: every rung, its work, its counts, and the bounds of its time."""

import json
import types
from typing import Any

import pytest
from configurations import has_its_own_code
from explaining import H200, explained, printed, row

import gemmlab.lab.explain.explanation as explanation_module
import gemmlab.lab.explain.subject as subject_module
from gemmlab import problems
from gemmlab.compile.cute import compile_rung
from gemmlab.devices.cuda import CudaDevice
from gemmlab.devices.emulated import EmulatedDevice
from gemmlab.errors import DeviceError, ShapeError, UnsupportedInstructionError
from gemmlab.hardware import specs
from gemmlab.kernels import ladder
from gemmlab.lab import judge
from gemmlab.lab.explain import default_gpu, explain, models
from gemmlab.linalg.runtime.executor import chained

RAGGED = {"gemm": (33, 67, 12), "transpose": (70, 45), "sum": (1301,), "histogram": (2001,)}
RUNGS = [rung for name in problems.NAMES for rung in ladder.rungs(name)]
OWN_CODE = [rung for rung in ladder.rungs("gemm") if has_its_own_code(rung)]
RUNGS += [ladder.in_layout(rung, "course") for rung in OWN_CODE[::3] if not rung.launches]
TRAFFIC = "l1tex__t_sectors_pipe_lsu_mem_global"


@pytest.mark.parametrize(
    "rung",
    [
        rung
        if rung.problem in RAGGED and rung == ladder.rungs(rung.problem)[0]
        else pytest.param(rung, marks=pytest.mark.slow)
        for rung in RUNGS
    ],
    ids=lambda r: f"{r.problem}-{ladder.label(r)}-{r.layout}",
)
def test_every_rung_is_explained_at_a_ragged_shape(rung):
    problem = problems.find(rung.problem)
    sizes = RAGGED.get(problem.name, (45,) * len(problem.axes))
    found = explain(problem, rung, dict(zip(problem.axes, sizes, strict=True)), H200)
    assert found.occupancy and not found.refusal
    assert found.counted and found.counted.patterns
    number = found.counted.launches
    several = [x for x in found.notes if x.startswith(f"A product takes {number} launches")]
    assert bool(several) == (rung.launches is not None) == (number > 1)
    json.dumps(found.as_json(), allow_nan=False)
    assert max(map(len, printed(found, 80).splitlines())) <= 80
    is_modeled = models.model(rung, dict(zip(problem.axes, sizes, strict=True))) is not None
    # `traffic.staged_product` leaves shared memory out.
    is_staged = rung.kernel.__module__.removeprefix("gemmlab.kernels.") not in models._BY_KERNEL
    for one in found.rows:
        assert one.counted is not None
        if not is_modeled or (one.model is None and one.name.startswith("shared") and is_staged):
            continue
        assert one.formula
        assert one.reason if abs(one.difference or 0) > 0.001 else not one.reason
        if one.name.endswith("elements"):  # requested traffic: exact, or a reason
            assert one.counted == one.model or one.reason


@pytest.mark.slow
def test_a_tile_of_64_sums_has_64_chains():
    loop = explained("float4", 128, 128, 128).counted.loop
    assert loop.operations == 64 * loop.chain and loop.words_loaded == 16 * loop.chain


@pytest.mark.slow
def test_strides_load_each_sector_once_and_float4_loads_four_times_as_many_at_once():
    rungs = ("tile-2d-8x8", "tile-2d-8x8-strided", "float4")
    loads = [explained(name, 256, 256, 64).counted.of("global load") for name in rungs]
    assert [(one.requests, one.sectors) for one in loads] == [
        (2048, 32768),
        (2048, 8192),
        (512, 8192),
    ]


def test_counts_of_a_large_shape_are_made_at_a_smaller_one():
    found = explained("transpose:naive", 100_000, 100_000)
    assert found.counted.shape == {"m": 512, "n": 512}
    [note] = found.notes
    assert note == (
        "Counted at 512×512 to keep emulation short; 100000×100000 is 38,147 times the work."
    )
    assert found.work.traffic.global_loads.value == 10**10


@pytest.mark.parametrize(
    ("name", "sizes", "least_us", "told"),
    [
        pytest.param(
            "naive",
            (1024, 1024, 1024),
            33.1,  # 1024 blocks: 8 or more on one of 132 SMs, 7.76 on average
            "Minimum time of a launch: 33.1µs, limited by the FP32 peak of the part that the grid "
            "uses, 64.9 TFLOPS.",
            marks=pytest.mark.slow,
        ),
        (
            "naive",
            (64, 64, 64),
            0.259,  # 4 blocks on 4 of 132 SMs
            "Minimum time of a launch: 259ns, limited by the FP32 peak of the part that the grid "
            "uses, 2.03 TFLOPS.",
        ),
        (
            "transpose:naive",
            (1024, 1024),
            0,
            "No FLOPs. Moving 8.39MB to and from device memory takes 1.75µs, the minimum time of a "
            "launch unless L2 (60 MiB) already holds the data.",
        ),
        (
            "sum:vectorized",
            (10**8,),
            70.2,
            "Minimum time of a launch: 70.2µs, limited by the bandwidth of device memory. Moving "
            "400MB to and from device memory takes 83.3µs, less if L2 (60 MiB) already holds some "
            "of the data.",
        ),
    ],
)
def test_device_memory_bounds_a_launch_by_what_l2_cannot_hold(name, sizes, least_us, told):
    found = explained(name, *sizes)
    assert found.least_time_s == pytest.approx(least_us / 1e6, rel=0.01)
    assert told in " ".join(printed(found, 100).split())


def test_flops_of_a_ragged_tile_are_counted_whole():
    flops = row(explained("shared", 33, 32, 32), "FLOPs")
    assert (flops.model, flops.counted) == (2 * 33 * 32 * 32, 2 * 64 * 32 * 32)
    assert "edge tiles" in flops.reason


@pytest.mark.parametrize(
    ("name", "accesses"),
    [("naive", 17), ("shared-ilp2", 13), ("tile-1d", 10), ("tile-2d-4x4", 5), ("float4", 3)],
)
def test_accesses_per_result_stand_beside_those_of_teaching_material(name, accesses):
    found = explained(name, 32, 32, 32)
    assert found.work.accesses() == accesses == found.as_json()["work"]["accesses_per_result"]
    text = " ".join(printed(found, 100).split())
    assert f"+ 1 = {accesses} per result" in text
    for tile, count in {"1×1": 17, "4×1": 11, "2×2": 9, "8×1": 10, "8×8": 3}.items():
        assert f"{tile} {count}" in text or found.work.traffic.thread_tile == tuple(
            map(int, tile.split("×"))
        )


@pytest.mark.parametrize(
    ("name", "size", "blocks", "idle", "share", "told"),
    [
        # 512³ and 1024³: the larger tile leaves more SMs idle, so the ladder turns round.
        ("float4", 512, 16, 116, 16 / 132, "16 blocks, 0.0606 waves of 132×2; 116 SMs idle"),
        ("float4-64", 512, 64, 68, 64 / 132, "68 SMs idle: at most 48.5% of the peak"),
        ("float4", 1024, 64, 68, 64 / 132, "68 SMs idle"),
        ("float4-64", 1024, 256, 0, 256 / 264, "2 or more on one SM, 1.94 on average"),
        ("float4", 1152, 81, 51, 81 / 132, "51 SMs idle"),
        ("float4", 1156, 100, 32, 100 / 132, "32 SMs idle"),  # a ragged edge
        # ragged: blocks are not equal
        pytest.param("naive", 2000, 3969, 0, 1, "no SM idle", marks=pytest.mark.slow),
    ],
)
def test_blocks_waves_and_idle_sms_bound_a_launch(name, size, blocks, idle, share, told):
    problem, rung = problems.find("gemm"), ladder.find(name)
    found = explain(problem, rung, dict.fromkeys(problem.axes, size) | {"k": 8}, H200)
    assert found.waves is not None
    assert (found.waves.blocks, found.waves.idle_sms) == (blocks, idle)
    assert found.waves.share == pytest.approx(share)
    assert found.arithmetic_time_s == pytest.approx(found.work.flops / 66.9e12 / share, rel=1e-3)
    assert told in " ".join(printed(found, 100).split())


@pytest.mark.parametrize("name", ["tensor-core-pipelined", "wgmma-tma"])
@pytest.mark.slow
def test_all_launches_of_a_product_are_counted(name):
    rung: Any
    rung, shape = ladder.find(name), {"m": 70, "n": 50, "k": 20}
    found = explained(name, *shape.values())
    device = chained(EmulatedDevice("sm_90a", machine_code=True), rung, shape)
    problem, own = problems.find("gemm"), compile_rung(rung, "sm_90a")
    case = problem.case(shape, "row", problem.families[0], 0)
    sizes = rung.geometry(rung.config, shape), problem, case, rung.workspace(rung.config, shape)
    ran: Any = judge.examine(device, own, *sizes).launched
    assert found.counted.counters == ran.counters
    sectors = [ran.counters[f"{TRAFFIC}_op_{word}.sum"] for word in ("ld", "st", "atom", "red")]
    copied = ran.counters["l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"]
    assert bool(copied) == (name == "wgmma-tma") == ("bulk copies" in printed(found, 100).lower())
    copies = found.counted.of("global load").sectors - sectors[0]  # cp.async
    assert found.counted.moved == copied + 32 * (sum(sectors) + copies)
    assert found.points[-1].intensity == pytest.approx(2 * 70 * 50 * 20 / found.counted.moved)


def unsupported(*args):
    raise UnsupportedInstructionError("unsupported instruction wgmma")


@pytest.mark.parametrize(
    ("name", "products"), [("fp16x3", 3), ("bf16x6", 6), ("tensor-core", 3), ("wgmma", 3)]
)
@pytest.mark.slow
def test_the_roof_of_16_bit_products_is_that_of_tensor_cores(name, products, monkeypatch):
    monkeypatch.setattr(subject_module, "launches", unsupported)  # saves the time of counting
    found = explained(name, 4096, 4096, 4096)
    assert found.peak_tflops == pytest.approx(989.5 / products) and found.peak_tflops > 66.9
    assert found.least_time_s == pytest.approx(2 * 4096**3 * products / 989.5e12)
    assert found.points[0].bound == found.peak and f"÷ {products} products" in found.peak
    assert not any("not its roof" in note for note in found.notes)


@pytest.mark.parametrize(
    ("name", "sizes", "why"),
    [("naive", (3_000_000, 5, 5), "93750 blocks"), ("transpose:ilp", (0, 5), "nothing to launch")],
)
def test_what_is_refused_is_explained_without_counts(name, sizes, why):
    found = explained(name, *sizes)
    assert why in found.refusal and found.counted is None and not found.rows
    assert why in printed(found, 100)


def test_a_kernel_that_cannot_be_emulated_is_explained_without_counts(monkeypatch):
    monkeypatch.setattr(subject_module, "launch", unsupported)
    found = explained("naive", 8, 8, 8)
    assert found.counted is None and "wgmma" in " ".join(found.notes)
    assert "occupancy" in printed(found, 80)


def test_an_older_gpu_is_explained_with_other_registers_and_says_so():
    found = explained("shared", 32, 32, 32, gpu=specs.product("RTX2080Ti"))
    assert found.arch == "sm_90a" and "Not compiled for sm_75" in " ".join(found.notes)
    assert found.occupancy.warps_per_sm == 32 == specs.architecture("sm_75").warps_per_sm


@pytest.mark.parametrize("sizes", [(-1, 8, 8), (0, 8, 8), (8, 8, 2**31)])
def test_sizes_that_a_problem_does_not_have_are_refused(sizes):
    with pytest.raises(ShapeError):
        explained("naive", *sizes)


def test_the_default_is_the_gpu_that_is_there(monkeypatch):
    told = types.SimpleNamespace(
        multiprocessor_count=132,
        clock_rate=1_980_000,
        memory_clock_rate=3_201_000,
        global_memory_bus_width=6016,
        l2_cache_size=60 * 2**20,
    )
    gpu = types.SimpleNamespace(name="NVIDIA H200", properties=told, compute_capability=(9, 0))
    facts = vars(CudaDevice)["facts"].fget(types.SimpleNamespace(gpu=gpu))
    assert facts.fp32_tflops == pytest.approx(H200.fp32_tflops, rel=0.01)
    assert facts.bandwidth_gbs == pytest.approx(H200.bandwidth_gbs, rel=0.01)
    assert (facts.arch, facts.sms, facts.l2_mb) == (H200.arch, H200.sms, H200.l2_mb)

    device = types.SimpleNamespace(facts=facts)
    monkeypatch.setattr(explanation_module, "CudaDevice", lambda: device)
    assert default_gpu() is facts

    def absent():
        raise DeviceError("no GPU")

    monkeypatch.setattr(explanation_module, "CudaDevice", absent)
    assert default_gpu() is H200
