"""Predict the launch of a rung on a case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gemmlab import problems, timing
from gemmlab.compile.artifact import Artifact
from gemmlab.compile.cute import compile_rung
from gemmlab.core import forks
from gemmlab.devices.device import Span
from gemmlab.devices.emulated import HostBuffer, on_host
from gemmlab.errors import GemmlabError, PredictionError
from gemmlab.kernels.ladder import label
from gemmlab.kernels.rung import Rung
from gemmlab.lab.directives.call import Call, call_of_rung
from gemmlab.lab.records import Json
from gemmlab.linalg.runtime import executor
from gemmlab.problems.problem import WORKSPACE, Case, Problem

_MOST_BYTES = 1 << 30  # of arrays, of which several launches are emulated at a time
_DATA_DECIDES = ("histogram",)  # problems whose data decide what a kernel does


def family(problem: Problem, drawn: str) -> str:
    """Return the family of the inputs of a prediction: zeros, which take no time to draw and copy.

    If the data may decide what a kernel does, as with users' own problems, return `drawn`.
    """
    is_known = problem.name in problems.NAMES and problem.name not in _DATA_DECIDES
    return "zeros" if is_known else drawn


def predict(rung: Rung, case: Case, model: timing.Model) -> tuple[Call, timing.Prediction]:
    """Predict how long a rung's launch takes, or all its launches.

    Raises PredictionError for a program and for what the model does not follow, CompileError, and
    EmulationError.
    """
    if rung.program is not None:
        raise PredictionError(f"{label(rung)} is a program; the model follows launches")
    broken = rung.lacks(model.target) or rung.requires(rung.config, case.shape)
    if broken:
        raise PredictionError(broken)
    problem = problems.find(rung.problem)
    artifact = compile_rung(rung, model.target)
    output = np.zeros(case.output_size, case.output_dtype)
    given = {**case.buffers, case.output: output, **case.scalars}
    call = call_of_rung(rung, problem, case, given)
    if rung.launches is None:
        return call, timing.predict(artifact, call.grid, call.block, call.args, call.smem, model)

    def predicted(one: executor.Call) -> timing.Prediction:
        args = [on_host(x) for x in one.args]
        return timing.predict(
            one.artifact, one.grid, one.block, args, one.dynamic_smem, model, one.cluster
        )

    launches = launches_of(rung, case, given, artifact)
    nbytes = sum(x.nbytes for x in given.values() if isinstance(x, np.ndarray))
    if nbytes > _MOST_BYTES:
        return call, timing.in_a_row([predicted(one) for one in launches], model)
    longest = sorted(launches, key=lambda one: -len(one.artifact.ptx))  # takes longest, probably
    return call, timing.in_a_row(forks.share(predicted, longest), model)


def launches_of(
    rung: Rung, case: Case, given: Mapping[str, Any], artifact: Artifact
) -> list[executor.Call]:
    """Return the launches of a rung that makes several. given: arrays and numbers by name."""
    assert rung.workspace is not None
    nbytes = rung.workspace(rung.config, case.shape)
    arrays = {**given, WORKSPACE.name: np.zeros(nbytes, np.uint8)}
    spans = {name: _span(x) if isinstance(x, np.ndarray) else x for name, x in arrays.items()}
    return list(executor.calls(rung, case.shape, spans, artifact))


def _span(array: np.ndarray) -> Span:
    buffer = HostBuffer(0)
    buffer.nbytes, buffer.data = array.nbytes, array.view(np.uint8).ravel()
    return Span(buffer, 0, array.nbytes)


def as_json(rung: Rung, case: Case, model: timing.Model) -> Json:
    """Predict for a record: the prediction, or why there is none."""
    try:
        return predict(rung, case, model)[1].as_json(model)
    except GemmlabError as error:
        return {"gpu": model.gpu.name, "refused": str(error)}
