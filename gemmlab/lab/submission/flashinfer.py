"""Problems and results in the JSON schema of FlashInfer-Bench and SOL-ExecBench.

    definition.json   what is computed: axes, inputs, outputs, a reference in PyTorch
    workload.jsonl    one shape a line
    solution.json     somebody's source, and its entry
    trace.jsonl       one result a line: definition, workload, solution, evaluation

The schema has row-major tensors only, and no unsigned numbers: so there are no definitions of
column-major layouts and of histograms. It has no pass without a time either: what passed on the
emulator alone is written as a workload, with no evaluation.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any

from gemmlab import problems
from gemmlab.errors import InputError
from gemmlab.lab.directives import read
from gemmlab.lab.directives.call import layout_of
from gemmlab.lab.environment import own_version
from gemmlab.lab.records import write_text
from gemmlab.lab.submission.cases import SHAPES
from gemmlab.lab.submission.steps import Judgement, Trial
from gemmlab.problems.problem import Problem, Tensors, U

Json = dict[str, Any]

_STATUS = {
    "pass": "PASSED",
    **dict.fromkeys(("wrong answer", "unwritten output", "low precision"), "INCORRECT_NUMERICAL"),
    **dict.fromkeys(("compile error", "no entry", "bad directive"), "COMPILE_ERROR"),
    **dict.fromkeys(("forbidden", "impossible time"), "REWARD_HACK"),
    "time limit": "TIMEOUT",
}
OTHER = "RUNTIME_ERROR"
_LANGUAGES = {".cu": ("cuda", "cuda_cpp"), ".py": ("python", "cute_dsl")}


@dataclass(frozen=True)
class Solution:
    """Somebody's source: one kernel file that says how it is called."""

    name: str
    definition: str
    file: str
    text: str
    entry: str


def definition(problem: Problem) -> Json:
    """Raises InputError for a problem that the schema cannot hold."""
    own = _tensors(problem)
    tensors = own.shapes
    axes: Json = {axis: {"type": "var"} for axis in problem.axes}
    if any("one" in shape for shape in tensors.values()):
        axes["one"] = {"type": "const", "value": 1}
    kinds = {parameter.name: parameter for parameter in problem.parameters}

    def specified(output: bool) -> Json:
        return {
            name: {"shape": list(shape), "dtype": kinds[name].dtype}
            for name, shape in tensors.items()
            if (kinds[name].kind != "input") == output
        }

    inputs = specified(output=False)
    return {
        "name": problem.name,
        "op_type": problem.name,
        "description": type(problem).__doc__,
        "axes": axes,
        "inputs": inputs,
        "outputs": specified(output=True),
        "reference": f"import torch\n\n\ndef run({', '.join(inputs)}):\n    return {own.torch}\n",
    }


def read_definition(text: str) -> Problem:
    """The problem of gemmlab's that a definition is of. Raises InputError for any other."""
    told = _object(text, "definition")
    name = told.get("name")
    known = [name for name in problems.NAMES if problems.find(name).tensors]
    if not isinstance(name, str) or name not in known:
        raise InputError(f"definition {name!r} is none of gemmlab's: {', '.join(known)}")
    problem = problems.find(name)
    own = definition(problem)
    for part in ("axes", "inputs", "outputs"):
        if told.get(part) != own[part]:
            raise InputError(f"definition {name!r}: {part} differ from gemmlab's own")
    return problem


def workload(problem: Problem, shape: Mapping[str, int]) -> Json:
    """One shape; its name depends on nothing else."""
    sizes = {axis: shape[axis] for axis in problem.axes}
    inputs = [p.name for p in problem.parameters if p.kind == "input"]
    words = f"{problem.name} {sizes}"
    return {
        "uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, words)),
        "axes": sizes,
        "inputs": dict.fromkeys(inputs, {"type": "random"}),
    }


def workloads(problem: Problem) -> list[Json]:
    """A line for each shape that the judge tries, as the schema keeps workloads: as traces."""
    shapes = SHAPES[problem.name]
    sized = [dict(zip(problem.axes, s, strict=True)) for s in (*shapes.small, *shapes.large)]
    return [_trace(problem.name, workload(problem, shape)) for shape in sized]


def read_workloads(text: str, problem: Problem) -> list[dict[str, int]]:
    """The shapes of a workload.jsonl. Raises InputError with the line at fault."""
    shapes = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        told = _object(line, f"workload, line {number}")
        own = told.get("workload", told)
        axes = own.get("axes") if isinstance(own, dict) else None
        if not isinstance(axes, dict) or not set(problem.axes) <= axes.keys():
            raise InputError(f"workload, line {number}: no sizes of {', '.join(problem.axes)}")
        sizes = {axis: axes[axis] for axis in problem.axes}
        if not all(isinstance(size, int) and size > 0 for size in sizes.values()):
            raise InputError(f"workload, line {number}: {sizes}: sizes are positive numbers")
        shapes.append(sizes)
    return shapes


def solution(problem: Problem, file: Path, text: str) -> Json:
    """A kernel file and its text as a solution, for both: FlashInfer-Bench has one language,
    SOL-ExecBench a list of others, and no hardware but B200 and LOCAL.

    Raises InputError for a language or a layout that they have not, and where the directive does
    not name this problem and an entry, without which nobody could run it.
    """
    if file.suffix not in _LANGUAGES:
        raise InputError(f"{file}: a solution is CUDA C++ (.cu) or Python (.py)")
    language, other = _LANGUAGES[file.suffix]
    directive = read(text)
    if directive.problem is None or directive.entry is None:
        missing = f"problem={problem.name}" if directive.problem is None else "entry=, the kernel"
        mark = "#!" if file.suffix == ".py" else "//!"
        line = f"{mark} gemmlab problem={problem.name} entry=… args=… block=… grid=…"
        raise InputError(f"{file} does not say {missing}: a solution begins with a line {line}")
    if directive.problem != problem.name:
        raise InputError(f"{file} is a kernel of {directive.problem}, not of {problem.name}")
    if (layout := layout_of(directive, problem)) != "row":
        raise InputError(f"{file} has the layout {layout}; a solution's tensors are row-major")
    return {
        "name": file.stem,
        "definition": problem.name,
        "author": "unknown",
        "spec": {
            "language": language,
            "languages": [other],
            "target_hardware": ["LOCAL"],
            "entry_point": f"{file.name}::{directive.entry}",
            "dependencies": [],
            "destination_passing_style": True,
        },
        "sources": [{"path": file.name, "content": text}],
    }


def read_solution(text: str) -> Solution:
    """The source of a solution. Raises InputError for one of several files, or with no entry."""
    told = _object(text, "solution")
    try:
        [source] = told["sources"]
        file, _, entry = str(told["spec"]["entry_point"]).partition("::")
        name, definition, path = (str(told["name"]), str(told["definition"]), str(source["path"]))
        content = str(source["content"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"solution: {error}; the judge takes one source, a kernel file with a directive"
        ) from None
    if file != path or not entry or PurePath(path).name != path:
        raise InputError(f"solution: entry_point {file}::{entry} is not in its one file, {path}")
    return Solution(name, definition, path, content, entry)


def traces(result: Judgement) -> list[Json]:
    """A line for each shape that was timed or failed, or for those that were tried.

    Raises InputError for a problem that the schema cannot hold, or none.
    """
    problem = problems.find(result.problem)
    _tensors(problem)
    name = Path(result.file).stem
    step = next((step for step in result.steps if not step.passed), None)
    if step is not None:
        trial = next((trial for trial in step.trials if trial.precision is None), None)
        trial = trial or max(step.trials, key=_error, default=None)
        shape = trial.shape if trial else dict.fromkeys(problem.axes, 1)
        status = _STATUS.get(step.status, OTHER)
        told = _evaluation(result, status, f"{step.status}: {step.message}")
        if status == "INCORRECT_NUMERICAL" and trial is not None:
            told["correctness"] = _correctness(trial)
        return [_trace(problem.name, workload(problem, shape), name, told)]
    trials = [trial for step in result.steps for trial in step.trials]
    if result.best_seconds is None:
        tried = {tuple(trial.shape.items()): trial.shape for trial in trials}
        return [_trace(problem.name, workload(problem, shape)) for shape in tried.values()]
    told = _evaluation(result, "PASSED", "")
    told["correctness"] = _correctness(max(trials, key=_error))
    own, baseline = result.best_seconds
    told["performance"] = {
        "latency_ms": 1e3 * own,
        "reference_latency_ms": 1e3 * baseline,
        "speedup_factor": baseline / own,
    }
    return [_trace(problem.name, workload(problem, result.runs[0]["shape"]), name, told)]


def lines(told: Iterable[Json]) -> str:
    """JSON lines. Numbers that are not finite are words, as in the schema."""
    return "".join(json.dumps(_finite(one), allow_nan=False) + "\n" for one in told)


def write(path: Path, told: Iterable[Json]) -> None:
    """Whole or not at all. Raises InputError."""
    write_text(path, lines(told))


def _tensors(problem: Problem) -> Tensors:
    if problem.tensors is None:
        raise InputError(f"the schema of FlashInfer-Bench has no unsigned numbers: {problem.name}")
    return problem.tensors


def _object(text: str, what: str) -> Json:
    try:
        told = json.loads(text)
    except ValueError as error:
        raise InputError(f"{what}: {error}") from None
    if not isinstance(told, dict):
        raise InputError(f"{what}: not a JSON object")
    return told


def _trace(
    definition: str, workload: Json, solution: str | None = None, evaluation: Json | None = None
) -> Json:
    return {
        "definition": definition,
        "workload": workload,
        "solution": solution,
        "evaluation": evaluation,
    }


def _evaluation(result: Judgement, status: str, log: str) -> Json:
    timed = result.runs[0]["machine"]["gpu"] if result.runs else f"emulated {result.arch}"
    return {
        "status": status,
        "environment": {"hardware": timed, "libs": {"gemmlab": own_version()}},
        "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
        "log": log,
        "correctness": None,
        "performance": None,
    }


def _correctness(trial: Trial) -> Json:
    """The relative error is relative to |A||B|, as everywhere in gemmlab."""
    error_u = _error(trial)
    return {
        "max_relative_error": error_u * U,
        "max_absolute_error": trial.max_absolute_error or 0.0,
        "extra": {"max_error_u": error_u, "bound_u": trial.verdict.bound_u},
    }


def _error(trial: Trial) -> float:
    return trial.verdict.max_error_u or 0.0


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {name: _finite(one) for name, one in value.items()}
        case list():
            return [_finite(one) for one in value]
        case float() if value != value:
            return "NaN"
        case float() if value in (float("inf"), float("-inf")):
            return "Infinity" if value > 0 else "-Infinity"
    return value
