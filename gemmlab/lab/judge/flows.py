"""Judge one run of a flow by its host arrays and the guards of its device memory.

The rules are the same as for a launch (judge.py). The host's output starts as poison. Device
allocations also start as poison and have guards, which reveals missing copies and copies that the
flow did not wait for.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gemmlab.compile.artifact import Artifact
from gemmlab.devices.device import Device, Span
from gemmlab.devices.flow import Program, run_flow
from gemmlab.errors import EmulationError
from gemmlab.lab.judge.buffers import POISON, Contents, Guarded, filled, initial_image
from gemmlab.lab.judge.judge import Examination, error_verdict, inspect_contents
from gemmlab.lab.judge.verdict import Verdict
from gemmlab.problems.problem import Case, Problem


def examine_flow(
    device: Device, artifact: Artifact, program: Program, problem: Problem, case: Case
) -> Examination:
    """Run `program(host, *arrays)` once on `case` and judge the result.

    An EmulationError becomes a verdict. Raises all other errors of `run_flow`.
    """
    images = arrays(problem, case)
    placed: list[Guarded] = []

    def allocate(nbytes: int) -> Span:
        placed.append(Guarded.place(device, filled(POISON, nbytes)))
        return placed[-1].span

    try:
        run = run_flow(device, artifact, program, list(images.values()), allocate)
    except EmulationError as error:
        return Examination(error_verdict(error, problem.bound_u(case.shape)))
    contents = {name: Contents(array.view(np.uint8)) for name, array in images.items()}
    contents |= {f"device memory {i}": guarded.read() for i, guarded in enumerate(placed)}
    verdict, image = inspect_contents(contents, problem, case)
    return Examination(verdict, run.launched, image, run.timeline)


def judge_arrays(images: Mapping[str, np.ndarray], problem: Problem, case: Case) -> Verdict:
    """Judge the host arrays `images`, made by `arrays`, after a launch."""
    contents = {name: Contents(array.view(np.uint8)) for name, array in images.items()}
    return inspect_contents(contents, problem, case)[0]


def arrays(problem: Problem, case: Case) -> dict[str, np.ndarray]:
    """Return one 1-D host array for each input and output of the problem, by name."""
    return {
        parameter.name: initial_image(parameter, case).copy().view(parameter.dtype)
        for parameter in problem.parameters
        if parameter.kind != "scalar"
    }
