"""One run of a flow, examined: what it left in the host's arrays, and around the device's memory.

The rules are those of a launch (judge.py). The host's output starts as poison, and so does what a
flow allocates on the device, between guards: a copy that is missing, or not waited for, shows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gemmlab.compile.artifact import Artifact
from gemmlab.devices.device import Device, Span
from gemmlab.devices.flow import Program, run_flow
from gemmlab.errors import EmulationError
from gemmlab.lab.judge.buffers import POISON, Guarded, Held, filled, first_image
from gemmlab.lab.judge.judge import Examination, fault, inspect_held
from gemmlab.lab.judge.verdict import Verdict
from gemmlab.problems.problem import Case, Problem


def examine_flow(
    device: Device, artifact: Artifact, program: Program, problem: Problem, case: Case
) -> Examination:
    """Run `program(host, *arrays)` once on `case` and judge what it did.

    Raises as `run_flow` does, but for what the emulated kernel does wrong: that becomes a verdict.
    """
    images = arrays(problem, case)
    placed: list[Guarded] = []

    def allocate(nbytes: int) -> Span:
        placed.append(Guarded.place(device, filled(POISON, nbytes)))
        return placed[-1].span

    try:
        run = run_flow(device, artifact, program, list(images.values()), allocate)
    except EmulationError as error:
        return Examination(fault(error, problem.bound_u(case.shape)))
    held = {name: Held(array.view(np.uint8)) for name, array in images.items()}
    held |= {f"device memory {i}": guarded.read() for i, guarded in enumerate(placed)}
    verdict, image = inspect_held(held, problem, case)
    return Examination(verdict, run.launched, image, run.timeline)


def judge_arrays(images: Mapping[str, np.ndarray], problem: Problem, case: Case) -> Verdict:
    """Judge what a launch left in the host's `arrays`."""
    held = {name: Held(array.view(np.uint8)) for name, array in images.items()}
    return inspect_held(held, problem, case)[0]


def arrays(problem: Problem, case: Case) -> dict[str, np.ndarray]:
    """The case in ordinary host memory, one array for each of the problem's inputs and outputs."""
    return {
        parameter.name: first_image(parameter, case).copy().view(parameter.dtype)
        for parameter in problem.parameters
        if parameter.kind != "scalar"
    }
