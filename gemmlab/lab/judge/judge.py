"""Judge one launch: check the guards, the inputs, unwritten output, then each result element.

An element c passes if |c - c64| <= bound_u · u · magnitude, where c64 is the float64 reference and
u = 2**-24. If c64 is NaN or infinite, c must equal it. The first check that fails, in the order
above, determines the status.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from gemmlab.compile.artifact import Artifact
from gemmlab.devices.device import Device, Dim3, Launched
from gemmlab.devices.flow import Operation
from gemmlab.errors import (
    BudgetError,
    CheckError,
    DeadlockError,
    EmulationError,
    MisalignedAddressError,
    OutOfBoundsError,
    UnsupportedInstructionError,
)
from gemmlab.lab.judge.buffers import POISON, CaseMemory, Contents, filled, must_write
from gemmlab.lab.judge.verdict import Mismatch, Status, Verdict
from gemmlab.problems.problem import Case, Problem, U

_EMULATION_STATUS: tuple[tuple[type[EmulationError], Status], ...] = (
    (OutOfBoundsError, "out of bounds"),
    (MisalignedAddressError, "misaligned"),
    (DeadlockError, "deadlock"),
    (UnsupportedInstructionError, "unsupported"),
    (BudgetError, "never ends"),
    (EmulationError, "emulation error"),
)
_FINDING_STATUS: dict[str, Status] = {
    "shared race": "race",
    "global race": "race",
    "order dependent": "race",
    "uninitialized read": "uninitialized read",
    "divergent barrier": "divergent barrier",
    "missing wait": "missing wait",
    "out of bounds": "out of bounds",
    "misaligned": "misaligned",
    "deadlock": "deadlock",
    "livelock": "deadlock",
    "never ends": "never ends",
    "error": "emulation error",
}
_SHOWN = 5  # wrong elements listed in a verdict
_SLAB = 2**18  # elements compared at a time, so that temporaries fit in the cache


class Examination(NamedTuple):
    """A verdict and the data it is based on. If the launch failed, the other fields are None."""

    verdict: Verdict
    launched: Launched | None = None
    image: np.ndarray | None = None  # memory image of the output, 1-D
    timeline: tuple[Operation, ...] | None = None  # None for a single launch


def examine(
    device: Device,
    artifact: Artifact,
    geometry: tuple[Dim3, Dim3, int],
    problem: Problem,
    case: Case,
    workspace: int | None = None,
) -> Examination:
    """Launch `artifact` once on `case` and judge the memory that it leaves.

    `geometry` is (grid, block, bytes of dynamic shared memory). `workspace` is the size in bytes of
    an additional buffer argument, None if the kernel has none. If an extent of the grid is 0, the
    kernel is not launched and the initial memory is judged.

    An EmulationError becomes a verdict. Raises LaunchError for a launch that exceeds a limit and
    DeviceError for a device failure: neither says anything about the result.
    """
    grid, block, dynamic_smem = geometry
    bound = problem.bound_u(case.shape)
    memory = CaseMemory(device, problem, case, workspace)
    try:
        launched = Launched()
        if 0 not in grid:
            launched = device.launch(artifact, grid, block, memory.args, dynamic_smem)
    except EmulationError as error:
        return Examination(error_verdict(error, bound))
    verdict, image = inspect(memory)
    return Examination(verdict, launched, image)


def error_verdict(error: EmulationError, bound: float) -> Verdict:
    """Return the verdict for an error of the emulated kernel; `bound` is in units of u."""
    if isinstance(error, CheckError):
        return Verdict(_FINDING_STATUS[error.kind], str(error), bound)
    status = next(status for kind, status in _EMULATION_STATUS if isinstance(error, kind))
    return Verdict(status, str(error), bound)


def inspect(memory: CaseMemory) -> tuple[Verdict, np.ndarray]:
    """Judge the memory of a case after a launch; also return the output's 1-D memory image."""
    return inspect_contents(memory.read(), memory.problem, memory.case)


def inspect_contents(
    contents: Mapping[str, Contents], problem: Problem, case: Case
) -> tuple[Verdict, np.ndarray]:
    """Judge the contents of buffers, by name; also return the output's 1-D memory image.

    Buffers other than the inputs and the output are checked for modified guards only.
    """
    bound = problem.bound_u(case.shape)
    image = contents[case.output].data.view(case.output_dtype)

    def failed(status: Status, message: str) -> tuple[Verdict, np.ndarray]:
        return Verdict(status, message, bound), image

    for name, (_, before, after) in contents.items():
        if before or after:
            message = f"{before} bytes before and {after} bytes after {name} were overwritten"
            return failed("guard overwritten", message)
    for name, given in case.buffers.items():
        was = np.ascontiguousarray(given).view(np.uint8)
        if np.array_equal(contents[name].data, was):
            continue
        changed = np.flatnonzero(contents[name].data != was)
        message = f"{changed.size} bytes of the input {name} changed, the first at {changed[0]}"
        return failed("input modified", message)
    missing = case.result(_untouched(image))
    if must_write(problem) and missing.any():
        at = tuple(int(i) for i in np.argwhere(missing)[0])
        message = (
            f"{np.count_nonzero(missing)} of {missing.size} elements never written, first {at}"
        )
        return failed("unwritten output", message)
    return compare(case.result(image), case.reference(), case.magnitude(), bound), image


def _untouched(image: np.ndarray) -> np.ndarray:
    """Return a mask of the elements that still hold the poison in all of their bytes."""
    word = np.dtype(f"u{image.itemsize}")
    return np.asarray(image.view(word) == filled(POISON, image.itemsize).view(word))


def compare(
    got: np.ndarray, expected: np.ndarray, magnitude: np.ndarray, bound_u: float
) -> Verdict:
    """Compare `got` element by element with `expected`, float64, and `magnitude`, same shapes."""
    error_u = errors(got, expected, magnitude)
    wrong = error_u > bound_u
    count = int(np.count_nonzero(wrong))
    largest = float(error_u.max(initial=0.0))
    if not count:
        message = f"largest error {largest:.3g} u, bound {bound_u:.3g} u" if bound_u else "exact"
        return Verdict("pass", message, bound_u, largest)

    def mismatch(flat: int) -> Mismatch:
        index = tuple(int(i) for i in np.unravel_index(flat, wrong.shape))
        return Mismatch(index, float(got[index]), float(expected[index]), float(error_u[index]))

    worst = mismatch(int(error_u.argmax()))
    rule = f"outside {bound_u:.3g} u" if bound_u else "not exact"
    message = (
        f"{count} of {wrong.size} elements {rule}; worst at {worst.index}: "
        f"got {worst.got:.9g}, expected {worst.expected:.9g} ({worst.error_u:.3g} u)"
    )
    first = tuple(mismatch(int(flat)) for flat in np.flatnonzero(wrong)[:_SHOWN])
    return Verdict("wrong answer", message, bound_u, largest, count, worst, first)


def errors(got: np.ndarray, expected: np.ndarray, magnitude: np.ndarray) -> np.ndarray:
    """Return |got - expected| in units of u·magnitude; inf for a wrong NaN or infinity."""
    if got.flags.f_contiguous and not got.flags.c_contiguous:
        return errors(got.T, expected.T, magnitude.T).T
    error_u = np.empty(got.shape)
    rows = max(1, _SLAB * len(got) // max(got.size, 1))

    def fill(start: int) -> None:
        part = slice(start, start + rows)
        error_u[part] = _errors(got[part], expected[part], magnitude[part])

    with ThreadPoolExecutor() as pool:
        list(pool.map(fill, range(0, len(got), rows)))
    return error_u


def _errors(got: np.ndarray, expected: np.ndarray, magnitude: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        error_u: np.ndarray = np.subtract(got, expected, dtype=np.float64)
        np.abs(error_u, out=error_u)
        error_u /= U * magnitude
    odd = ~(np.isfinite(got) & np.isfinite(expected))
    if odd.any():
        have, want = got[odd], expected[odd]
        same = (have == want) | (np.isnan(have) & np.isnan(want))
        error_u[odd] = np.where(same, 0.0, np.inf)
    return error_u
