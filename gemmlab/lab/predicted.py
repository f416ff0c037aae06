"""Predict the launch of a rung on a case."""

from __future__ import annotations

from gemmlab import problems, timing
from gemmlab.compile.cute import compile_rung
from gemmlab.errors import GemmlabError, PredictionError
from gemmlab.kernels.ladder import label
from gemmlab.kernels.rung import Rung
from gemmlab.lab import judge
from gemmlab.lab.directives.call import Call, call_of_rung
from gemmlab.lab.records import Json
from gemmlab.problems.problem import Case


def predict(rung: Rung, case: Case, model: timing.Model) -> tuple[Call, timing.Prediction]:
    """Predict how long a rung's launch takes.

    Raises PredictionError for a rung of several launches and for what the model does not follow,
    CompileError, and EmulationError.
    """
    if rung.launches is not None or rung.program is not None:
        raise PredictionError(f"{label(rung)} makes several launches; the model follows one")
    broken = rung.lacks(model.target) or rung.requires(rung.config, case.shape)
    if broken:
        raise PredictionError(broken)
    problem = problems.find(rung.problem)
    artifact = compile_rung(rung, model.target)
    call = call_of_rung(rung, problem, case, {**judge.arrays(problem, case), **case.scalars})
    return call, timing.predict(artifact, call.grid, call.block, call.args, call.smem, model)


def as_json(rung: Rung, case: Case, model: timing.Model) -> Json:
    """Predict for a record: the prediction, or why there is none."""
    try:
        return predict(rung, case, model)[1].as_json(model)
    except GemmlabError as error:
        return {"gpu": model.gpu.name, "refused": str(error)}
