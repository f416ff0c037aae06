"""The tasks that run in child processes. Each yields its findings as JSON objects.

Only `compile_file` runs the file's code on the host, and the judge takes only PTX from it. The
other tasks assemble the PTX themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from gemmlab.compile import Artifact, headers, load
from gemmlab.devices.emulated import EmulatedDevice
from gemmlab.errors import CompileError, InputError
from gemmlab.hardware.limits import check_launch
from gemmlab.hardware.occupancy import occupancy
from gemmlab.lab.judge import Examination, precision
from gemmlab.lab.judge.buffers import corrupted, must_write
from gemmlab.lab.submission import cases
from gemmlab.lab.submission.launching import Launcher, call_of, check_arguments, emulator
from gemmlab.lab.submission.static import forbidden
from gemmlab.lab.submission.steps import OVER_RESULT, Trial
from gemmlab.lab.submission.submission import Submission
from gemmlab.problems.problem import Case

Answer = dict[str, Any]


def compile_file(submission: Submission) -> Iterator[Answer]:
    """Compile the file; yield its PTX and the entry."""
    if submission.path.suffix == ".py":
        from gemmlab.compile import cute_file

        found = submission.path, submission.directive, submission.arch
        artifact = cute_file.compile_file(*found)
    else:
        wanted = submission.directive.entry
        try:
            artifact = load(submission.path, entry=wanted, arch=submission.arch)
        except CompileError as error:
            if other := headers.foreign(str(error), submission.path):
                raise CompileError(
                    f"{submission.path.name} includes {other}, which is neither in its folder nor "
                    "a header of CUDA"
                ) from None
            raise
    yield {
        "ptx": artifact.ptx,
        "entry": artifact.entry,
        "versions": artifact.versions,
        "left_out": artifact.left_out,
    }


def check_statically(submission: Submission) -> Iterator[Answer]:
    """Check the parameters, the launch limits and the rules of static.py; yield the resources."""
    artifact = _artifact(submission)
    taken = artifact.resources
    if taken is not None:
        yield {"resources": asdict(taken)}
    rule = forbidden(submission.ptx)
    if rule:
        yield {"forbidden": f"{artifact.entry} {rule}"}
    registers, static_smem = (taken.registers, taken.static_smem_bytes) if taken else (0, 0)
    for case in cases.cases(submission, large=False):
        try:
            call = call_of(submission, case)
        except InputError as error:
            yield {"directive": f"{_name(case)}: {error}"}
            return
        check_arguments(artifact, submission, call)
        if 0 not in call.grid:
            limits = call.grid, call.block, static_smem, call.smem, registers
            check_launch(artifact.arch, *limits)
    threads = call.block[0] * call.block[1] * call.block[2]
    if taken is not None:
        found = occupancy(artifact.arch, threads, registers, static_smem + call.smem)
        yield {"occupancy": {"fraction": found.fraction, "limiter": found.limiter}}


def emulate(submission: Submission) -> Iterator[Answer]:
    """Run the small shapes with checks, then count at a larger shape without."""
    artifact = _artifact(submission)
    all_orders, one_order = (
        Launcher(emulator(artifact.arch, orders), artifact, submission) for orders in (True, False)
    )
    first = submission.problem.families[0]

    def launch(case: Case) -> Launcher:
        """Try several thread orders once per shape: the input values hardly affect races."""
        return all_orders if case.family == first else one_order

    passed = True
    for answer in try_out(launch, submission, large=False):
        yield answer
        passed = passed and ("trial" not in answer or answer["trial"]["precision"] is not None)
    if not passed:
        return
    problem, shape = submission.problem, cases.counted_shape(submission)
    yield {"begun": "counters"}
    case = problem.case(shape, submission.layout, problem.families[0], submission.seed + 1000)
    found = Launcher(EmulatedDevice(artifact.arch), artifact, submission).examine(case)
    yield {"trial": _trial(case, found, purpose="counted")}
    if found.launched is not None:
        yield {"counters": found.launched.counters, "shape": shape}


def try_on_gpu(submission: Submission) -> Iterator[Answer]:
    """Run the small and large shapes on GPU 0."""
    from gemmlab.devices.cuda import CudaDevice

    device = CudaDevice()
    artifact = _artifact(submission, device.arch)
    yield {"device": device.name, "arch": device.arch, "versions": device.versions()}
    launch = Launcher(device, artifact, submission)
    yield from try_out(lambda case: launch, submission, large=True)


def time_on_gpu(request: Any) -> Iterator[Answer]:
    """Run the timed runs of timing.py."""
    from gemmlab.lab.submission import timing

    yield from timing.take(request)


def try_out(
    launch: Callable[[Case], Launcher], submission: Submission, large: bool
) -> Iterator[Answer]:
    """Run the cases up to the first failure, then the first one again on its own corrupted result.

    `launch` returns the launcher for a case; `large` adds the large shapes.
    """
    first: tuple[Case, np.ndarray] | None = None
    for case in cases.cases(submission, large):
        yield {"begun": _name(case)}
        found = launch(case).examine(case)
        trial = _trial(case, found)
        yield {"trial": trial}
        if trial["precision"] is None:
            return
        if first is None and found.image is not None:
            first = case, found.image
    if first is not None and must_write(submission.problem):
        case, image = first
        yield {"begun": f"{_name(case)} {OVER_RESULT}"}
        again = launch(case).examine(case, lambda _: corrupted(image, case.seed))
        yield {"trial": _trial(case, again, OVER_RESULT)}


def _artifact(submission: Submission, arch: str | None = None) -> Artifact:
    """Assemble the submission's PTX in this process."""
    return load(submission.ptx, entry=submission.entry, arch=arch)


def _trial(case: Case, found: Examination, purpose: str = "") -> Answer:
    verdict, absolute = found.verdict, None
    best = precision.class_of(verdict, case, found.image)
    if found.image is not None and verdict.max_error_u is not None:
        with np.errstate(invalid="ignore"):
            difference = np.abs(case.result(found.image) - case.reference())
        absolute = float(difference[np.isfinite(difference)].max(initial=0.0))
    shape, seed = dict(case.shape), case.seed
    return asdict(Trial(shape, case.layout, case.family, seed, verdict, best, purpose, absolute))


def _name(case: Case) -> str:
    return f"{'×'.join(map(str, case.shape.values()))} {case.family}"
