"""One launch, examined: guards, inputs, unwritten output, then every element of the result.

An element passes when |c - c64| <= bound_u · u · magnitude, and where float64 says NaN or an
infinity, only the same will do. The first rule broken, in the order above, is the status.
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
from gemmlab.lab.judge.buffers import POISON, Held, Stage, filled
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
    "never ends": "never ends",
    "error": "emulation error",
}
_SHOWN = 5
_SLAB = 2**18  # elements that are compared at once: few enough for a cache


class Examination(NamedTuple):
    """A verdict and what it rests on; what follows it is None when the launch failed."""

    verdict: Verdict
    launched: Launched | None = None
    image: np.ndarray | None = None  # the output as it lies in memory, 1-D
    timeline: tuple[Operation, ...] | None = None  # of a flow


def examine(
    device: Device,
    artifact: Artifact,
    geometry: tuple[Dim3, Dim3, int],
    problem: Problem,
    case: Case,
    workspace: int | None = None,
) -> Examination:
    """Launch `artifact` once on `case` and judge what it did to memory.

    `geometry` is (grid, block, bytes of dynamic shared memory); `workspace` the bytes of memory
    that the kernel takes besides the problem's arguments, None where it takes none.
    A grid with a 0 in it is a case with nothing to do: nothing is launched, the memory is judged.
    What the emulated kernel does wrong becomes a verdict. A launch past a limit (LaunchError) and a
    device that fails (DeviceError) are raised: they say nothing about the result.
    """
    grid, block, dynamic_smem = geometry
    bound = problem.bound_u(case.shape)
    stage = Stage(device, problem, case, workspace)
    try:
        launched = Launched()
        if 0 not in grid:
            launched = device.launch(artifact, grid, block, stage.args, dynamic_smem)
    except EmulationError as error:
        return Examination(fault(error, bound))
    verdict, image = inspect(stage)
    return Examination(verdict, launched, image)


def fault(error: EmulationError, bound: float) -> Verdict:
    """What the emulated kernel did wrong, as a verdict."""
    if isinstance(error, CheckError):
        return Verdict(_FINDING_STATUS[error.kind], str(error), bound)
    status = next(status for kind, status in _EMULATION_STATUS if isinstance(error, kind))
    return Verdict(status, str(error), bound)


def inspect(stage: Stage) -> tuple[Verdict, np.ndarray]:
    """Read a stage back after a launch and apply the rules in order; the output comes along."""
    return inspect_held(stage.read(), stage.problem, stage.case)


def inspect_held(
    held: Mapping[str, Held], problem: Problem, case: Case
) -> tuple[Verdict, np.ndarray]:
    """Apply the rules in order to what inputs and output hold, by name; of other memory that is
    `held`, to its guards. Returns the output, too, as it lies in memory.
    """
    bound = problem.bound_u(case.shape)
    image = held[case.output].data.view(case.output_dtype)

    def failed(status: Status, message: str) -> tuple[Verdict, np.ndarray]:
        return Verdict(status, message, bound), image

    for name, (_, before, after) in held.items():
        if before or after:
            message = f"{before} bytes before and {after} bytes after {name} were overwritten"
            return failed("guard overwritten", message)
    for name, given in case.buffers.items():
        was = np.ascontiguousarray(given).view(np.uint8)
        if np.array_equal(held[name].data, was):
            continue
        changed = np.flatnonzero(held[name].data != was)
        message = f"{changed.size} bytes of the input {name} changed, the first at {changed[0]}"
        return failed("input modified", message)
    missing = case.result(_untouched(image))
    if _must_write(problem, case) and missing.any():
        at = tuple(int(i) for i in np.argwhere(missing)[0])
        message = (
            f"{np.count_nonzero(missing)} of {missing.size} elements never written, first {at}"
        )
        return failed("unwritten output", message)
    return compare(case.result(image), case.reference(), case.magnitude(), bound), image


def _must_write(problem: Problem, case: Case) -> bool:
    """Whether the kernel has to write every element; to an accumulator it only adds."""
    kinds = {parameter.name: parameter.kind for parameter in problem.parameters}
    return kinds[case.output] == "output"


def _untouched(image: np.ndarray) -> np.ndarray:
    """Which elements still hold the poison, all of their bytes."""
    word = np.dtype(f"u{image.itemsize}")
    return np.asarray(image.view(word) == filled(POISON, image.itemsize).view(word))


def compare(
    got: np.ndarray, expected: np.ndarray, magnitude: np.ndarray, bound_u: float
) -> Verdict:
    """Judge `got` against the float64 `expected`, same shape, element by element."""
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
    """|got - expected| in units of u·magnitude; inf where a NaN or an infinity is out of place."""
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
