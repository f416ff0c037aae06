"""Launch a submission's kernel on a case, emulated or on a GPU, and examine the memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gemmlab.compile.artifact import Artifact
from gemmlab.devices import Device
from gemmlab.devices.emulated import EmulatedDevice
from gemmlab.errors import EmulationError, LaunchError
from gemmlab.kernels import ladder
from gemmlab.lab import judge
from gemmlab.lab.directives.call import Call, bind, call_of_rung
from gemmlab.lab.judge import CaseMemory, Examination
from gemmlab.lab.judge.buffers import Guarded, filled, must_write
from gemmlab.lab.judge.judge import error_verdict
from gemmlab.lab.submission.submission import Submission
from gemmlab.problems.problem import Case

if TYPE_CHECKING:
    from gemmlab.lab.bench.job import Kernel

# Checks that need a single launch, in one thread order.
ONE_ORDER = ("uninitialized", "races", "global-races", "barriers", "warps", "copies", "clusters")


def emulator(arch: str, orders: bool = True) -> EmulatedDevice:
    """Return the emulator for submissions, with all checks.

    Without `orders`, it omits those that run further thread orders and takes a third of the time.
    """
    return EmulatedDevice(arch, check="all" if orders else ONE_ORDER)


def call_of(submission: Submission, case: Case, given: dict[str, Any] | None = None) -> Call:
    """Return the launch for a case.

    `given` has the problem's arguments by name; without it, their names stand for them.
    """
    names = {parameter.name: parameter.name for parameter in submission.problem.parameters}
    if submission.rung is not None:
        rung = ladder.referred(submission.rung)
        return call_of_rung(rung, submission.problem, case, given or names)
    return bind(submission.directive, submission.problem, case, given or names)


def contender(
    submission: Submission, artifact: Artifact, case: Case, name: str, precision: str | None
) -> Kernel:
    """Return the kernel, launched as for this case, as a contender of the benchmark."""
    from gemmlab.lab.bench.job import Kernel

    call = call_of(submission, case)
    return Kernel(
        name=name,
        title=submission.path.name,
        artifact=artifact,
        geometry=(call.grid, call.block, call.smem),
        args=call.args,
        output_word=submission.output_word,
        precision=precision,
    )


class Launcher:
    """Launches a submission's kernel on cases."""

    def __init__(self, device: Device, artifact: Artifact, submission: Submission) -> None:
        self._device, self._artifact, self._submission = device, artifact, submission

    def examine(
        self, case: Case, prefilled: Callable[[np.ndarray], np.ndarray] | None = None
    ) -> Examination:
        """Launch once and judge.

        The output starts as poison, or as the directive's output= says. `prefilled`, if given, maps
        the initial bytes of the output, uint8, to other ones. Raises LaunchError, InputError and
        DeviceError.
        """
        memory = CaseMemory(self._device, self._submission.problem, case)
        word = self._submission.output_word
        if prefilled is not None:
            self._fill(memory, prefilled)
        elif word is not None and must_write(memory.problem):
            self._fill(memory, lambda image: filled(word, image.nbytes))
        spans = {name: guarded.span for name, guarded in memory.guarded.items()}
        call = call_of(self._submission, case, {**case.scalars, **spans})
        args = [self._placed(arg) for arg in call.args]
        launched = None
        try:
            if 0 not in call.grid:
                launched = self._device.launch(
                    self._artifact, call.grid, call.block, args, call.smem
                )
        except EmulationError as error:
            verdict = error_verdict(error, memory.problem.bound_u(case.shape))
            return Examination(replace(verdict, message=call.named(verdict.message)))
        verdict, image = judge.inspect(memory)
        return Examination(verdict, launched, image)

    def _fill(self, memory: CaseMemory, prefilled: Callable[[np.ndarray], np.ndarray]) -> None:
        """Replace the initial contents of the output."""
        old = memory.guarded[memory.case.output]
        new = Guarded(old.buffer, prefilled(old.image))
        memory.guarded[memory.case.output] = new
        new.restore()

    def _placed(self, arg: Any) -> Any:
        """Place an array that the directive defines in device memory; return other arguments."""
        if not isinstance(arg, np.ndarray):
            return arg
        return Guarded.place(self._device, arg.view(np.uint8)).span


def check_arguments(artifact: Artifact, submission: Submission, call: Call) -> None:
    """Raise LaunchError if the arguments do not match the kernel's parameters.

    `call` has names in place of the problem's arguments.
    """
    words, wanted = ", ".join(call.words), len(artifact.parameters)
    if wanted != len(call.args):
        raise LaunchError(
            f"{artifact.entry} takes {wanted} arguments, but args= gives {len(call.args)}: {words}"
        )
    scalars = {p.name for p in submission.problem.parameters if p.kind == "scalar"}
    for word, parameter, arg in zip(call.words, artifact.parameters, call.args, strict=True):
        array = isinstance(arg, np.ndarray) or (isinstance(arg, str) and arg not in scalars)
        floats = parameter.ptx_type in ("f32", "f64")
        if (array and not parameter.is_pointer) or (isinstance(arg, float) and not floats):
            what = "an array" if array else "a float"
            raise LaunchError(
                f"{artifact.entry}: {word} in args= is {what}, but the parameter has type "
                f".{parameter.ptx_type}"
            )
