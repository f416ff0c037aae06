"""The judge, tested by fault injection: a host function replaces the kernel."""

from typing import Any

import numpy as np
import pytest

from gemmlab import problems
from gemmlab.compile.artifact import Artifact
from gemmlab.devices import Launched
from gemmlab.devices.emulated import HostBuffer
from gemmlab.errors import (
    DeadlockError,
    EmulationError,
    LaunchError,
    MisalignedAddressError,
    OutOfBoundsError,
    UnsupportedInstructionError,
)
from gemmlab.lab import judge
from gemmlab.problems.problem import U

GEMM = problems.find("gemm")
NOTHING = Artifact("kernel", "", "sm_90a", ())
GEOMETRY = ((1, 1, 1), (32, 1, 1), 0)


class FakeDevice:
    """Runs `kernel(a, b, c, case)` on views of guarded buffers, which reach into the guards."""

    name, arch = "fake", "sm_90a"

    def __init__(self, kernel, case):
        self.kernel, self.case = kernel, case

    def allocate(self, nbytes):
        return HostBuffer(nbytes)

    def launch(self, artifact, grid, block, args, dynamic_smem=0):
        spans = args[:3]
        assert list(args[3:]) == list(self.case.scalars.values())
        images = [span.buffer.data.view(np.float32) for span in spans]
        first = [span.offset // 4 for span in spans]
        a, b, c = (
            image[at : at + span.nbytes // 4]
            for image, at, span in zip(images, first, spans, strict=True)
        )
        self.kernel(a, b, c, self.case)
        return Launched(counters={})

    def versions(self):
        return {}


def run(kernel, m=40, n=33, k=65, family="normal", layout="row"):
    case = GEMM.case({"m": m, "n": n, "k": k}, layout, family, 0)
    device: Any = FakeDevice(kernel, case)
    return judge.examine(device, NOTHING, GEOMETRY, GEMM, case)


def multiply(a, b, c, case):
    """The correct result in the given layout."""
    with np.errstate(invalid="ignore"):
        case.result(c)[:] = (case.a @ case.b).astype(np.float32)


def beyond(c, elements):
    """Return a view of `elements` elements after `c` in memory, or before it if negative."""
    whole, size = c.base.view(np.float32), c.size
    start = (c.ctypes.data - whole.ctypes.data) // 4
    if elements < 0:
        return whole[start + elements : start]
    return whole[start + size : start + size + elements]


def after(change):
    """Return a kernel that computes the correct result and then applies `change` to memory."""

    def kernel(a, b, c, case):
        multiply(a, b, c, case)
        change(a, b, c, case)

    return kernel


def one_element(a, b, c, case):
    c[7] += 1


def nan_tile(a, b, c, case):
    case.result(c)[8:16, 8:16] = np.nan


def just_above(a, b, c, case):
    step = GEMM.bound_u(case.shape) * U * case.magnitude()
    case.result(c)[3, 4] = case.reference()[3, 4] + 1.01 * step[3, 4]


def just_below(a, b, c, case):
    step = GEMM.bound_u(case.shape) * U * case.magnitude()
    case.result(c)[3, 4] = case.reference()[3, 4] + 0.98 * step[3, 4]


def reversed_order(a, b, c, case):
    c[:] = c[::-1].copy()


def write_past_the_end(a, b, c, case):
    beyond(c, 1)[:] = 0


def write_before_the_start(a, b, c, case):
    beyond(c, -1)[:] = 0


def write_past_an_input(a, b, c, case):
    beyond(b, 1)[:] = 0


def modify_input(a, b, c, case):
    a[0] = -a[0]


@pytest.mark.parametrize("layout", GEMM.layouts)
@pytest.mark.parametrize(
    ("change", "status"),
    [
        (one_element, "wrong answer"),
        (nan_tile, "wrong answer"),
        (just_above, "wrong answer"),
        (reversed_order, "wrong answer"),
        (write_past_the_end, "guard overwritten"),
        (write_before_the_start, "guard overwritten"),
        (write_past_an_input, "guard overwritten"),
        (modify_input, "input modified"),
        (just_below, "pass"),
    ],
)
def test_a_fault_after_a_correct_result_is_found(change, status, layout):
    found = run(after(change), layout=layout).verdict
    assert found.status == status, found.message
    assert found.passed is (status == "pass")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (write_past_the_end, "0 bytes before and 4 bytes after c"),
        (write_before_the_start, "4 bytes before and 0 bytes after c"),
        (write_past_an_input, "0 bytes before and 4 bytes after b"),
    ],
)
def test_the_verdict_names_the_overwritten_guard(change, message):
    assert message in run(after(change)).verdict.message


def test_tf32_inputs_are_a_wrong_answer():
    def kernel(a, b, c, case):
        rounded = [
            (x.view(np.uint32) & 0xFFFFE000).view(np.float32) for x in (case.a, case.b.copy())
        ]
        case.result(c)[:] = rounded[0] @ rounded[1]

    assert run(kernel).verdict.status == "wrong answer"


def test_a_kernel_that_writes_nothing_has_unwritten_output():
    found = run(lambda a, b, c, case: None).verdict
    assert found.status == "unwritten output"
    assert "1320 of 1320" in found.message


@pytest.mark.parametrize("layout", GEMM.layouts)
def test_an_unwritten_corner_is_counted_and_located(layout):
    def kernel(a, b, c, case):
        before = case.result(c)[32:, 32:].copy()
        multiply(a, b, c, case)
        case.result(c)[32:, 32:] = before

    found = run(kernel, layout=layout).verdict
    assert found.status == "unwritten output"
    assert "8 of 1320" in found.message and "(32, 32)" in found.message


def test_a_result_for_other_inputs_is_wrong():
    other = GEMM.case({"m": 40, "n": 33, "k": 65}, "row", "normal", 1)
    found = run(lambda a, b, c, case: multiply(a, b, c, other)).verdict
    assert found.status == "wrong answer" and found.wrong_count > 1000


def test_a_kernel_that_adds_to_the_poisoned_output_is_wrong():
    def kernel(a, b, c, case):
        with np.errstate(invalid="ignore"):  # the poison is a signaling NaN
            c += (case.a @ case.b).ravel()

    assert run(kernel).verdict.status == "wrong answer"


@pytest.mark.parametrize("wrong", [-1, 0])
def test_infinities_must_have_the_right_sign(wrong):
    def kernel(a, b, c, case):
        multiply(a, b, c, case)
        c[np.isinf(c)] *= np.float32(wrong) if wrong else np.float32("nan")

    found = run(kernel, family="special").verdict
    assert found.status == "wrong answer"
    assert found.max_error_u == np.inf


def test_nan_and_infinity_in_the_right_places_pass():
    assert run(multiply, family="special").verdict.passed


def test_a_wrong_answer_has_indices_and_errors():
    def kernel(a, b, c, case):
        multiply(a, b, c, case)
        c[[5, 9]] += np.array([1, 1000], np.float32)

    found = run(kernel).verdict
    assert found.wrong_count == 2
    assert [mismatch.index for mismatch in found.first] == [(0, 5), (0, 9)]
    assert found.worst.index == (0, 9)
    assert found.worst.got == pytest.approx(found.worst.expected + 1000, rel=1e-6)
    assert found.max_error_u == found.worst.error_u > found.bound_u
    assert "(0, 9)" in found.message


def test_only_the_first_five_wrong_elements_are_listed():
    found = run(after(nan_tile)).verdict
    assert found.wrong_count == 64 and len(found.first) == 5


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (1, 33, 7), (31, 1, 1), (64, 64, 8)])
@pytest.mark.parametrize("family", GEMM.families)
@pytest.mark.parametrize("layout", GEMM.layouts)
def test_a_correct_result_passes(m, n, k, family, layout):
    examined = run(multiply, m, n, k, family, layout)
    assert examined.verdict.passed, examined.verdict.message
    assert examined.image is not None and examined.image.size == m * n
    assert examined.launched is not None


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (OutOfBoundsError, "out of bounds"),
        (MisalignedAddressError, "misaligned"),
        (DeadlockError, "deadlock"),
        (UnsupportedInstructionError, "unsupported"),
        (EmulationError, "emulation error"),
    ],
)
def test_errors_of_the_emulator_become_verdicts(error, status):
    def kernel(a, b, c, case):
        raise error("lane 3 did it")

    examined = run(kernel)
    assert examined.verdict.status == status
    assert "lane 3 did it" in examined.verdict.message
    assert examined.launched is None and not examined.verdict.passed


def test_a_refused_launch_is_raised():
    def kernel(a, b, c, case):
        raise LaunchError("too many threads")

    with pytest.raises(LaunchError):
        run(kernel)


class Accumulating:
    """Runs `kernel(x, out)` on the memory of a sum problem."""

    name, arch = "fake", "sm_90a"

    def __init__(self, kernel):
        self.kernel = kernel

    def allocate(self, nbytes):
        return HostBuffer(nbytes)

    def launch(self, artifact, grid, block, args, dynamic_smem=0):
        x, out = (span.buffer.data.view(np.float32) for span in args[:2])
        first = args[0].offset // 4
        self.kernel(x[first : first + args[2]], out[first : first + 1])
        return Launched(counters={})


def accumulate(kernel, n=50, grid=(1, 1, 1)):
    total = problems.find("sum")
    case = total.case({"n": n}, "row", "normal", 0)
    device: Any = Accumulating(kernel)
    return judge.examine(device, NOTHING, (grid, (32, 1, 1), 0), total, case).verdict


def test_an_accumulator_starts_as_zeros():
    def add(x, out):
        out += x.sum()

    assert accumulate(add).passed
    assert accumulate(lambda x, out: None).status == "wrong answer"


def test_an_empty_grid_is_not_launched():
    def never(x, out):
        raise AssertionError

    assert accumulate(never, n=0, grid=(0, 1, 1)).passed
