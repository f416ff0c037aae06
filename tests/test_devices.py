"""Devices: the emulated one end to end, and the errors without a GPU."""

import sys
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

from gemmlab import problems
from gemmlab.compile.artifact import Artifact, Resources
from gemmlab.compile.cute import compile_rung
from gemmlab.core.packages import CUDA_CORE, PACKAGES
from gemmlab.devices import Span, cuda, open_device
from gemmlab.errors import DeviceError, LaunchError, MissingDependencyError, UnknownNameError
from gemmlab.kernels import ladder
from gemmlab.lab import environment, judge

GEMM = problems.find("gemm")


def no_library(_flags):
    raise RuntimeError("libcuda.so.1 was not found")


def no_gpu(_flags):
    return (driver.CUresult.CUDA_ERROR_NO_DEVICE,)


@pytest.fixture
def no_driver(monkeypatch):
    monkeypatch.setattr(driver, "cuInit", no_library)


@pytest.mark.usefixtures("no_driver")
def test_without_a_gpu_auto_is_the_emulator():
    assert open_device("auto").name == "emulated"
    assert open_device("auto", "sm_80").arch == "sm_80"


@pytest.mark.parametrize("version", [None, "1.2.0"])
def test_without_cuda_core_the_message_names_what_brings_it(monkeypatch, version):
    monkeypatch.setattr(cuda, "_driver", lambda: None)
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    monkeypatch.setattr(type(CUDA_CORE), "version", property(lambda package: version))
    command = "--force-reinstall 'cuda-core==1.2" if version else r"'gemmlab\[lab\]'"
    with pytest.raises(MissingDependencyError, match=f"run: pip install {command}"):
        open_device("cuda")


@pytest.mark.parametrize(
    ("init", "said"), [(no_library, "has no NVIDIA driver"), (no_gpu, "CUDA_ERROR_NO_DEVICE")]
)
def test_the_driver_is_looked_for_before_any_package(monkeypatch, init, said):
    """Without a GPU, the message does not recommend a package."""
    monkeypatch.setattr(driver, "cuInit", init)
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    with pytest.raises(DeviceError, match=said):
        open_device("cuda")
    report: Any = environment.report()
    assert said in report["gpu_missing_because"]
    told = {package["name"]: package for package in report["packages"]}
    for package in PACKAGES:
        if package.needs_gpu and not package.version:
            assert told[package.name]["install"] is None


@pytest.mark.parametrize(("name", "arch"), [("gpu", None), ("emulated", "sm_1")])
def test_unknown_devices_and_architectures_are_refused(name, arch):
    with pytest.raises(UnknownNameError):
        open_device(name, arch)


def test_buffers_keep_bytes():
    buffer = open_device("emulated").allocate(16)
    buffer.write(np.arange(2, dtype=np.float32), 4)
    assert buffer.read().view(np.float32).tolist() == [0, 0, 1, 0]


def test_launch_limits_are_checked_before_anything_runs():
    device = open_device("emulated")
    artifact = Artifact("k", "", "sm_90a", (), resources=Resources(32, 0, 48 * 1024))
    for grid, block, smem in [
        ((1, 1, 1), (5000, 1, 1), 0),
        ((1, 70000, 1), (32, 1, 1), 0),
        ((1, 1, 1), (32, 1, 1), 180 * 1024),
    ]:
        with pytest.raises(LaunchError):
            device.launch(artifact, grid, block, [], smem)


def test_the_emulator_traps_what_leaves_its_span():
    """`naive`, called with one row of C too many."""
    step = ladder.find("naive", "row")
    device = open_device("emulated")
    artifact = compile_rung(step, device.arch)
    case = GEMM.case({"m": 32, "n": 32, "k": 8}, "row", "normal", 0)
    case.scalars = {**case.scalars, "m": 33}
    geometry = step.geometry(step.config, {"m": 33, "n": 32, "k": 8})
    found = judge.examine(device, artifact, geometry, GEMM, case).verdict
    assert found.status == "out of bounds", found.message


def test_spans_of_another_device_are_refused():
    device = open_device("emulated")
    artifact = compile_rung(ladder.find("naive", "row"), device.arch)
    foreign: Any = object()
    with pytest.raises(TypeError, match="not memory of the emulated device"):
        device.launch(artifact, (1, 1, 1), (32, 32, 1), [Span(foreign, 0, 4)] * 9)
