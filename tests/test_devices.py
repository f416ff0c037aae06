"""Devices: the emulated one end to end, and what is said when there is no GPU."""

import sys

import numpy as np
import pytest

from gemmlab import judge, ladder, problems
from gemmlab.compile.artifact import Artifact, Resources
from gemmlab.compile.cute import compile_rung
from gemmlab.devices import Span, open_device
from gemmlab.errors import DeviceError, LaunchError, MissingDependencyError, UnknownNameError

GEMM = problems.find("gemm")


@pytest.fixture
def no_driver():
    """Skip where a GPU can be opened."""
    try:
        open_device("cuda")
    except (DeviceError, MissingDependencyError):
        return
    pytest.skip("this machine has a GPU")


def test_without_a_gpu_auto_is_the_emulator(no_driver):
    assert open_device("auto").name == "emulated"
    assert open_device("auto", "sm_80").arch == "sm_80"


def test_without_cuda_core_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'gemmlab\[cu13\]'"):
        open_device("cuda")


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
    """`naive`, told that C has one row more than it has."""
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
    with pytest.raises(TypeError, match="not memory of the emulated device"):
        device.launch(artifact, (1, 1, 1), (32, 32, 1), [Span(object(), 0, 4)] * 9)
