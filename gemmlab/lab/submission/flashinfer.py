"""Problems and results in the JSON schema of FlashInfer-Bench and SOL-ExecBench.

    definition.json   the problem: axes, inputs, outputs, a reference in PyTorch
    workload.jsonl    one shape per line
    solution.json     a kernel's source and entry point
    trace.jsonl       one result per line: definition, workload, solution, evaluation

The schema only has row-major tensors and no unsigned integers, so it cannot represent column-major
layouts and histograms. It requires a time for a pass, so a kernel that passed only on the emulator
is written as workloads without an evaluation.
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
from gemmlab.problems import files
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
    """The source of a solution: one kernel file with a directive."""

    name: str
    definition: str
    file: str
    text: str
    entry: str


def definition(problem: Problem) -> Json:
    """Return a problem's definition. Raises InputError if the schema cannot represent it."""
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
    """Return the problem of a definition. Raises InputError if it is not gemmlab's."""
    given = _object(text, "definition")
    name = given.get("name")
    known = [name for name in problems.NAMES if problems.find(name).tensors]
    if not isinstance(name, str) or name not in known:
        raise InputError(f"unknown definition {name!r}; gemmlab has {', '.join(known)}")
    problem = problems.find(name)
    expected = definition(problem)
    for part in ("axes", "inputs", "outputs"):
        if given.get(part) != expected[part]:
            raise InputError(f"definition {name!r}: its {part} differ from gemmlab's definition")
    return problem


def workload(problem: Problem, shape: Mapping[str, int]) -> Json:
    """Return the workload for one shape; its uuid depends only on the problem and the shape."""
    sizes = {axis: shape[axis] for axis in problem.axes}
    inputs = [p.name for p in problem.parameters if p.kind == "input"]
    key = f"{problem.name} {sizes}"
    return {
        "uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, key)),
        "axes": sizes,
        "inputs": dict.fromkeys(inputs, {"type": "random"}),
    }


def workloads(problem: Problem) -> list[Json]:
    """Return the judge's shapes as workload lines, which the schema stores as traces."""
    shapes = SHAPES[problem.name]
    sized = [dict(zip(problem.axes, s, strict=True)) for s in (*shapes.small, *shapes.large)]
    return [_trace(problem.name, workload(problem, shape)) for shape in sized]


def read_workloads(text: str, problem: Problem) -> list[dict[str, int]]:
    """Return the shapes in a workload.jsonl. Raises InputError that names the invalid line."""
    shapes = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        given = _object(line, f"workload, line {number}")
        given = given.get("workload", given)
        axes = given.get("axes") if isinstance(given, dict) else None
        if not isinstance(axes, dict) or not set(problem.axes) <= axes.keys():
            needed = ", ".join(problem.axes)
            raise InputError(f"workload, line {number}: axes must give {needed}")
        sizes = {axis: axes[axis] for axis in problem.axes}
        if not all(isinstance(size, int) and size > 0 for size in sizes.values()):
            raise InputError(f"workload, line {number}: {sizes} must be positive integers")
        shapes.append(sizes)
    return shapes


def solution(problem: Problem, file: Path, text: str) -> Json:
    """Return a kernel file with this text as a solution for FlashInfer-Bench and SOL-ExecBench.

    FlashInfer-Bench reads `language`, SOL-ExecBench `languages`, with other names. The only
    hardware that SOL-ExecBench knows is B200 and LOCAL.

    Raises InputError for an unsupported language or layout, and if the directive does not give this
    problem and an entry, which a runner needs.
    """
    if file.suffix not in _LANGUAGES:
        raise InputError(f"{file}: a solution must be CUDA C++ (.cu) or Python (.py)")
    language, other = _LANGUAGES[file.suffix]
    directive = read(text)
    if directive.problem is None or directive.entry is None:
        missing = f"problem={problem.name}" if directive.problem is None else "entry=, the kernel"
        mark = "#!" if file.suffix == ".py" else "//!"
        line = f"{mark} gemmlab problem={problem.name} entry=… args=… block=… grid=…"
        raise InputError(f"{file} has no {missing}: a solution must begin with a line {line}")
    if directive.problem != problem.name:
        raise InputError(f"{file} solves {directive.problem}, not {problem.name}")
    if (layout := layout_of(directive, problem)) != "row":
        raise InputError(f"{file} has layout {layout}; a solution's tensors are row-major")
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
    """Return the source of a solution. Raises InputError for several files or a missing entry."""
    given = _object(text, "solution")
    try:
        [source] = given["sources"]
        file, _, entry = str(given["spec"]["entry_point"]).partition("::")
        name, definition, path = str(given["name"]), str(given["definition"]), str(source["path"])
        content = str(source["content"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"solution: {error}; it must have one source, a kernel file with a directive"
        ) from None
    if definition.endswith(files.SUFFIX):  # it would be executed, and is a stranger's
        raise InputError(f"solution: definition {definition} is not the name of a problem")
    if file != path or not entry or PurePath(path).name != path:
        raise InputError(f"solution: entry_point {file}::{entry} is not in its only file, {path}")
    return Solution(name, definition, path, content, entry)


def traces(result: Judgement) -> list[Json]:
    """Return the trace lines of a judgement.

    A failure and a timed pass give one line, an untimed pass one workload per shape. Raises
    InputError if the file names no problem or the schema cannot represent it.
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
        evaluation = _evaluation(result, status, f"{step.status}: {step.message}")
        if status == "INCORRECT_NUMERICAL" and trial is not None:
            evaluation["correctness"] = _correctness(trial)
        return [_trace(problem.name, workload(problem, shape), name, evaluation)]
    trials = [trial for step in result.steps for trial in step.trials]
    if result.best_seconds is None:
        tried = {tuple(trial.shape.items()): trial.shape for trial in trials}
        return [_trace(problem.name, workload(problem, shape)) for shape in tried.values()]
    evaluation = _evaluation(result, "PASSED", "")
    evaluation["correctness"] = _correctness(max(trials, key=_error))
    seconds, baseline = result.best_seconds
    evaluation["performance"] = {
        "latency_ms": 1e3 * seconds,
        "reference_latency_ms": 1e3 * baseline,
        "speedup_factor": baseline / seconds,
    }
    return [_trace(problem.name, workload(problem, result.runs[0]["shape"]), name, evaluation)]


def lines(objects: Iterable[Json]) -> str:
    """Return JSON lines. The schema writes NaN and infinities as strings."""
    return "".join(json.dumps(_finite(each), allow_nan=False) + "\n" for each in objects)


def write(path: Path, objects: Iterable[Json]) -> None:
    """Write JSON lines atomically. Raises InputError if the file cannot be written."""
    write_text(path, lines(objects))


def _tensors(problem: Problem) -> Tensors:
    if problem.tensors is None:
        raise InputError(
            f"FlashInfer-Bench's schema has no unsigned integers, as {problem.name} requires"
        )
    return problem.tensors


def _object(text: str, what: str) -> Json:
    try:
        given = json.loads(text)
    except ValueError as error:
        raise InputError(f"{what}: {error}") from None
    if not isinstance(given, dict):
        raise InputError(f"{what}: not a JSON object")
    return given


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
    hardware = result.runs[0]["machine"]["gpu"] if result.runs else f"emulated {result.arch}"
    return {
        "status": status,
        "environment": {"hardware": hardware, "libs": {"gemmlab": own_version()}},
        "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
        "log": log,
        "correctness": None,
        "performance": None,
    }


def _correctness(trial: Trial) -> Json:
    """Return the errors of a trial; the relative error is relative to |A||B|."""
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
            return {name: _finite(item) for name, item in value.items()}
        case list():
            return [_finite(item) for item in value]
        case float() if value != value:
            return "NaN"
        case float() if value in (float("inf"), float("-inf")):
            return "Infinity" if value > 0 else "-Infinity"
    return value
