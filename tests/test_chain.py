"""Rungs with several launches, and the commands that run them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from configurations import narrowest

from gemmlab import TensorMap, problems
from gemmlab.compile.cute import compile_rung
from gemmlab.devices.device import Span
from gemmlab.devices.emulated import EmulatedDevice, HostBuffer, on_host
from gemmlab.errors import LaunchError
from gemmlab.kernels import ladder
from gemmlab.lab import judge
from gemmlab.lab.bench.job import Place
from gemmlab.lab.bench.protocol import Protocol
from gemmlab.lab.bench.session import BenchPlan
from gemmlab.linalg.runtime.executor import Chain, chained
from gemmlab.linalg.runtime.kernels import artifacts

STAIRS = (
    *("tensor-core", "tensor-core-pipelined", "wgmma", "wgmma-tma"),
    *("warp-specialized", "short-chains"),
)
SHAPE = {"m": 70, "n": 50, "k": 20}
RUNGS = [rung for rung in ladder.rungs() if rung.launches is not None]


def test_only_rungs_of_several_launches_need_a_chain() -> None:
    device = EmulatedDevice()
    assert [rung.name for rung in RUNGS] == [*STAIRS, "fp16x3", "bf16x6"]
    assert chained(device, ladder.find("naive"), SHAPE) is device
    assert isinstance(chained(device, RUNGS[0], SHAPE), Chain)


@pytest.mark.parametrize("layout", ["row", "course"])
@pytest.mark.parametrize("name", [*STAIRS, "fp16x3", "bf16x6"])
def test_a_rung_plans_all_of_its_launches_inside_its_workspace(name: str, layout: str) -> None:
    rung = ladder.find(name, layout)
    assert rung.launches is not None and rung.workspace is not None
    size = rung.workspace(rung.config, SHAPE)
    buffers = [HostBuffer(n) for n in (4 * 70 * 20, 4 * 20 * 50, 4 * 70 * 50, size)]
    a, b, c, work = (Span(buffer, 0, buffer.nbytes) for buffer in buffers)
    given = {"a": a, "b": b, "c": c, "workspace": work}
    launches = rung.launches(rung.config, SHAPE, given, "sm_90a")
    second = "pack_mn_major" if layout == "row" else "pack_k_major"
    rest = ["multiply", "repair"] if name in STAIRS else ["multiply_packed"]
    assert [launch.kernel for launch in launches] == ["pack_k_major", second, *rest]
    geometry = rung.geometry(rung.config, SHAPE)
    assert (launches[2].grid, launches[2].block) == (geometry.grid, geometry.block)
    spans = [x for launch in launches for x in launch.args.values() if isinstance(x, Span)]
    assert all(x.nbytes > 0 and x.offset + x.nbytes == x.buffer.nbytes for x in spans)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tensor-core", "tensor-core-pipelined"])
def test_mma_sync_runs_on_ampere_with_the_bits_of_hopper(name: str) -> None:
    rung, problem = narrowest(ladder.find(name, "course")), problems.find("gemm")
    case = problem.case(SHAPE, rung.layout, "normal", 0)
    assert rung.workspace is not None
    bits = set()
    for arch in ("sm_80", "sm_90a"):
        own = compile_rung(rung, arch)
        size, given = rung.workspace(rung.config, SHAPE), dict.fromkeys(("a", "b", "c"), 0)
        launched = list(artifacts(rung, SHAPE, {**given, "workspace": 0}, own))
        assert {artifact.arch for artifact, _ in launched} == {arch}
        device = chained(EmulatedDevice(arch), rung, SHAPE)
        geometry = rung.geometry(rung.config, SHAPE)
        found = judge.examine(device, own, geometry, problem, case, size)
        assert found.verdict.passed and found.image is not None
        bits.add(found.image.tobytes())
    assert len(bits) == 1


def test_bench_skips_a_rung_whose_instructions_the_gpu_lacks() -> None:
    plan = BenchPlan(problems.find("gemm"), (ladder.find("fp16x3"),), (SHAPE,), "normal", 0, ())
    job, refused = plan.job(SHAPE, Protocol(), "sm_80")
    assert not job.kernels and [x.status for x in refused] == ["skipped"]
    assert "needs sm_90a" in refused[0].message


@pytest.mark.slow
def test_a_job_has_all_launches_and_can_be_sent_to_another_process() -> None:
    rung = ladder.find("fp16x3")
    plan = BenchPlan(problems.find("gemm"), (rung,), (SHAPE,), "normal", 0, ())
    job, refused = pickle.loads(pickle.dumps(plan.job(SHAPE, Protocol(), "sm_90a")))
    [kernel] = job.kernels
    assert not refused and len(kernel.calls) == 3 and kernel.precision == "x3"
    assert kernel.calls[2].artifact == kernel.artifact
    places = {arg.name for call in kernel.calls for arg in call.args if isinstance(arg, Place)}
    assert places == {"a", "b", "c", "workspace"}


def test_a_tensor_map_ends_inside_its_memory() -> None:
    span = Span(HostBuffer(4096), 0, 4096)
    inside = TensorMap(span, (8, 8), format="float16", shape=(16, 100), strides=(256, 2))
    array = on_host(inside).array
    assert array.shape == (16, 100) and array.strides == (256, 2)
    assert array.dtype == np.float16
    beyond = TensorMap(span, (8, 8), format="float16", shape=(17, 100), strides=(256, 2))
    with pytest.raises(LaunchError, match="4096 bytes"):
        on_host(beyond)
