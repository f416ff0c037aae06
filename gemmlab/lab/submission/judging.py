"""Judge a file: run the steps in child processes, up to the first that fails."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gemmlab.compile import SUFFIXES, source
from gemmlab.compile.architectures import DEFAULT, NVRTC_ARCHITECTURES, check_architecture
from gemmlab.compile.cute import compile_rung
from gemmlab.core import scratch, turns
from gemmlab.core.status import say
from gemmlab.devices import cuda
from gemmlab.errors import CompileError, GemmlabError, InputError
from gemmlab.kernels.ladder import Reference, label, reference
from gemmlab.kernels.rung import Rung
from gemmlab.lab import advice
from gemmlab.lab.directives import Directive, read
from gemmlab.lab.directives.call import check_rung
from gemmlab.lab.judge import Mismatch, Verdict, precision
from gemmlab.lab.submission import isolation, process, timing
from gemmlab.lab.submission.isolation import Mode
from gemmlab.lab.submission.process import Limits
from gemmlab.lab.submission.steps import OVER_RESULT, Judgement, Status, Step, Trial
from gemmlab.lab.submission.submission import Submission
from gemmlab.problems import files

Progress = Callable[[Step], None]
SEEDS = 2**40
MESSAGE = 20_000  # characters of a step's message that are kept
CONTINUE = ("pass", "unsupported")  # a GPU may support what the emulator does not


@dataclass(frozen=True)
class Options:
    """Options of the judge.

    `seed` None draws an unpredictable seed. `gpu` False omits the steps that need a GPU. `shapes`
    are additional test shapes, in the order of the problem's axes. `sandbox` "auto" confines the
    processes as far as this machine can, "required" refuses to judge without a sandbox, "off" does
    not confine them. `quota_s` limits all steps together. `gpus` are names for
    CUDA_VISIBLE_DEVICES: a step takes one of them when no other judge uses it; () is what the
    driver shows.
    """

    arch: str | None = None
    seed: int | None = None
    seconds: float = 120.0  # limit of each step
    memory_bytes: int = 8 * 2**30  # limit of each step without a GPU, whose driver maps far more
    gpu: bool = True
    shapes: tuple[tuple[int, ...], ...] = ()
    sandbox: Mode = "auto"
    quota_s: float = math.inf  # limit of all steps together
    gpus: tuple[str, ...] = ()


def judge_file(
    path: Path,
    words: Directive,
    options: Options,
    progress: Progress = lambda step: None,
) -> Judgement:
    """Judge one kernel file; `words` replace those of its directive. `progress` gets each step.

    Faults of the file are part of the judgement. Raises InputError if the path is not a kernel file
    or cannot be read, UnknownNameError if it does not exist and for an unknown architecture.
    """
    return _prepared(path, words, options, progress).judge()


def judge_rung(
    rung: Rung,
    words: Directive,
    options: Options,
    progress: Progress = lambda step: None,
) -> Judgement:
    """Judge a rung like a PTX file; `words` may have sizes to time.

    Raises InputError for other words, for a rung of several launches and for one that rewrites its
    machine code, which the judge would not see; errors of the compiler; and as `judge_file`.
    """
    check_rung(rung, words)
    if rung.rewrite is not None:
        raise InputError(f"{rung.name} changes its machine code, but the judge assembles the PTX")
    artifact = compile_rung(rung, options.arch or DEFAULT)
    block = ",".join(map(str, artifact.block or ()))
    directive = f"problem={rung.problem} entry={artifact.entry} layout={rung.layout} block={block}"
    with scratch.folder() as folder:
        path = folder / f"{label(rung)}.ptx"
        path.write_text(f"//! gemmlab {directive} grid=1\n{artifact.ptx}", encoding="utf-8")
        return _prepared(path, words, options, progress, reference(rung)).judge()


def prepare(path: Path, options: Options) -> Submission:
    """Compile a file and check statically that it can be launched as its directive says.

    Raises CompileError if a step fails, and as `judge_file`.
    """
    judge = _prepared(path, Directive(), options)
    found = judge.judge(runs=False)
    if not found.passed:
        raise CompileError(f"{path}: {found.verdict}: {found.steps[-1].message}")
    return judge.submission


def read_file(path: Path) -> str:
    """Return the text of a kernel file. Raises as `judge_file`."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path} is not a kernel file: {', '.join(SUFFIXES)}")
    return source.read(path)


def _prepared(
    path: Path,
    words: Directive,
    options: Options,
    progress: Progress = lambda step: None,
    rung: Reference | None = None,
) -> _Judge:
    isolation.checked(options.sandbox)
    text = read_file(path)
    arch = check_architecture(options.arch or DEFAULT, NVRTC_ARCHITECTURES)
    seed = secrets.randbelow(SEEDS) if options.seed is None else options.seed
    submission = Submission(path.resolve(), words, arch, seed, options.shapes, rung)
    return _Judge(submission, text, options, progress)


class _Judge:
    """Takes one file through the steps."""

    def __init__(
        self, submission: Submission, text: str, options: Options, progress: Progress
    ) -> None:
        self.submission, self._text = submission, text
        self._options, self._progress = options, progress
        self._result = Judgement(
            file=submission.path.name,
            seed=submission.seed,
            arch=submission.arch,
            sandbox=isolation.described(options.sandbox),
        )

    def judge(self, runs: bool = True) -> Judgement:
        """Run the steps; without `runs`, only those that do not launch the kernel."""
        result = self._result
        steps = [self._directive, self._compile, self._static]
        if runs:
            steps += [self._emulate, *([self._gpu, self._time] if self._options.gpu else [])]
        for take in steps:
            start = time.perf_counter()
            step = take()
            step.seconds = step.seconds or time.perf_counter() - start
            step.message = step.message[:MESSAGE]
            result.steps.append(step)
            self._progress(step)
            if step.status not in CONTINUE:
                break
        result.precision = self._class()
        taken = result.resources or {}
        result.advice = advice.sentences(
            result.counters, taken, result.problem, self.submission.ptx
        )
        return result

    # The steps

    def _directive(self) -> Step:
        try:
            directive = read(self._text).overridden(self.submission.directive)
            if (name := directive.problem) and name.endswith(files.SUFFIX):
                directive = replace(directive, problem=str(Path(name).resolve()))
            self.submission = replace(self.submission, directive=directive)
            self.submission.check()
        except GemmlabError as error:
            return Step("directive", "bad directive", str(error))
        self._result.problem = self.submission.problem.name
        self._result.layout = self.submission.layout
        words = ", ".join(self.submission.argument_words)
        return Step("directive", message=f"{self._result.problem}, takes {words}")

    def _compile(self) -> Step:
        seedless = replace(self.submission, seed=0)  # the file's code must not know the inputs
        step, found = self._run("compile", "compile_file", seedless)
        if step.status == "pass":
            ptx, entry = str(found.get("ptx", "")), str(found.get("entry", ""))
            if ".version" not in ptx or ".target" not in ptx:  # the file's code may answer anything
                return replace(step, status="crashed", message="the file produced no PTX")
            self.submission = replace(self.submission, ptx=ptx, entry=entry)
            self._result.entry = entry
            versions = found.get("versions")
            versions = versions if isinstance(versions, dict) else {}
            made_by = ", ".join(f"{name} {version}" for name, version in versions.items())
            name = self.submission.directive.entry or entry  # the name in the source
            step.message = f"{name}: {len(ptx.splitlines())} lines of PTX, {made_by or 'unchanged'}"
            left_out = found.get("left_out")
            if left_out and isinstance(left_out, list):
                names = ", ".join(map(str, left_out))
                step.message += f"; removed as host code: {names}"
        elif self._options.sandbox != "off" and "headers that cannot be read" in step.message:
            step.message += "; the sandbox has the file's own folder only: see --sandbox"
        return step

    def _static(self) -> Step:
        step, found = self._run("checks", "check_statically", self.submission)
        taken = found.get("resources")
        if taken:
            self._result.resources = taken | found.get("occupancy", {})
        for key, status in _FINDINGS.items():
            if key in found and step.status == "pass":
                step.status, step.message = status, found[key]
        if step.status == "pass" and taken:
            step.message = (
                f"{taken['registers']} registers, {taken['spill_bytes']} bytes spilled, "
                f"{taken['static_smem_bytes']} bytes of static shared memory"
            )
        return step

    def _emulate(self) -> Step:
        step, found = self._run("emulator", "emulate", self.submission)
        self._judge_trials(step)
        self._result.counters = found.get("counters")
        self._result.counted_shape = found.get("shape")
        return step

    def _gpu(self) -> Step:
        needed = "timing also requires a GPU"
        if not cuda.has_driver():  # avoids starting a process
            return Step("GPU", "skipped", f"{cuda.NO_DRIVER}; {needed}")
        step, found = self._run("GPU", "try_on_gpu", self.submission, on_gpu=True)
        if step.status == "not run" and not found:
            if self._options.sandbox != "off":
                needed += "; if one is there, the sandbox may be the reason: see --sandbox"
            return replace(step, status="skipped", message=f"{step.message}; {needed}")
        self._judge_trials(step)
        self._result.arch = found.get("arch", self._result.arch)
        return step

    def _time(self) -> Step:
        request = timing.Request(self.submission, self._result.arch, self._class())
        step, found = self._run("timing", "time_on_gpu", request, on_gpu=True)
        self._result.runs = found.get("runs", [])
        self._result.score = found.get("score")
        if "best_seconds" in found:
            self._result.best_seconds = tuple(found["best_seconds"])
        if found.get("status"):
            step.status = found["status"]
        step.message = found.get("message", step.message)
        return step

    # Shared by the steps

    def _run(
        self, name: str, task: str, request: Any, on_gpu: bool = False
    ) -> tuple[Step, dict[str, Any]]:
        """Run a task; return the step with its trials, and the task's answers merged.

        If several answers have the same key, the last one counts.
        """
        memory_bytes = None if on_gpu else self._options.memory_bytes
        runs_file = task == "compile_file" and self.submission.path.suffix == ".py"
        say(f"judging {self.submission.path.name}: {name}")
        left = self._options.quota_s - sum(step.seconds for step in self._result.steps)
        if left <= 0:
            message = f"the quota of {self._options.quota_s:g} s is used up"
            return Step(name, "time limit", message), {}
        limits = Limits(
            file=self.submission.path,
            seconds=min(self._options.seconds, left),
            memory_bytes=memory_bytes,
            runs_file=runs_file,
            on_gpu=on_gpu,
            sandbox=self._options.sandbox != "off",
            problem=self.submission.problem_file,
        )
        if on_gpu and self._options.gpus:
            with turns.turn(self._options.gpus) as gpu:
                start = time.perf_counter()
                ended = process.run(task, request, replace(limits, gpu=gpu))
        else:
            start = time.perf_counter()
            ended = process.run(task, request, limits)
        step = Step(name, ended.status or "pass", ended.message, output=ended.output)
        step.seconds = time.perf_counter() - start
        found: dict[str, Any] = {}
        for answer in ended.answers:
            if "trial" in answer and not runs_file:  # the file's code may have forged it
                step.trials.append(_trial(answer["trial"]))
            found |= answer
        if ended.status is not None and process.BEGUN in found:
            step.message = f"{found[process.BEGUN]}: {step.message}"
        if step.status == "time limit":
            step.message += "; --time-limit sets a longer limit"
        return step, found

    def _judge_trials(self, step: Step) -> None:
        """Set the step's status: pass if every result is correct in the requested class."""
        wanted = self.submission.precision
        failed = [trial for trial in step.trials if trial.precision is None]
        if failed:
            first = failed[0]
            step.status = first.verdict.status
            step.message = f"{first.name}: {first.verdict.message}"
            if first.purpose == OVER_RESULT and first.verdict.status == "wrong answer":
                step.status = "forbidden"
                step.message += "; it kept elements that were in the output before the launch"
            elif hint := self._hint(first, is_first=first is step.trials[0]):
                step.message += f"\n{hint}" if "\n" in step.message else f"; {hint}"
            return
        if step.status != "pass":
            return
        inaccurate = [t for t in step.trials if not precision.suffices(t.precision, wanted)]
        if inaccurate:
            name = precision.accuracy(trial.precision or "" for trial in inaccurate)
            worst = max(inaccurate, key=lambda trial: trial.verdict.max_error_u or 0.0)
            step.status = "low precision"
            step.message = f"{_excess(worst, wanted)}: this is {name}"
            return
        errors = (trial.verdict.max_error_u or 0.0 for trial in step.trials)
        largest = max(filter(math.isfinite, errors), default=0.0)
        step.message = f"{len(step.trials)} launches correct, largest error {largest:.3g} u"

    def _hint(self, wrong: Trial, is_first: bool) -> str:
        """Return a hint at a common cause of a wrong trial, or an empty string."""
        given, verdict = self.submission, wrong.verdict
        nan = verdict.first and all(math.isnan(element.got) for element in verdict.first)
        if nan and is_first and given.output_word is None:
            return (
                "the output starts as NaN: a kernel that multiplies it by beta = 0 needs "
                "output=finite"
            )
        takes_smem = ".extern .shared" in given.ptx and given.directive.smem in (None, "0")
        if takes_smem and verdict.status == "out of bounds":
            return "smem=… must give the bytes of extern __shared__ memory that the kernel needs"
        return ""

    def _class(self) -> str | None:
        """Return the precision class shown by all trials so far.

        None without trials, after a failed one, and if the problem involves no rounding.
        """
        known = (step for step in self._result.steps if step.status != "unsupported")
        trials = [trial for step in known for trial in step.trials]
        classes = [trial.precision for trial in trials]
        if not trials or None in classes or not any(t.verdict.bound_u for t in trials):
            return None
        wanted = self.submission.precision
        return precision.classify((name for name in classes if name), self.submission.ptx, wanted)


_FINDINGS: dict[str, Status] = {"directive": "bad directive", "forbidden": "forbidden"}


def _excess(trial: Trial, wanted: str) -> str:
    """Describe how a result exceeds the bounds of the class `wanted`."""
    error_u = trial.verdict.max_error_u or 0.0
    if math.isinf(error_u):
        return f"{trial.name}: NaN or infinity where {wanted} has a number, or the reverse"
    allowed_u = trial.verdict.bound_u + precision.LOSS_U[wanted]
    return f"{trial.name}: errors up to {error_u:.3g} u, but {wanted} allows {allowed_u:.3g} u"


def _trial(given: dict[str, Any]) -> Trial:
    """Convert a trial from JSON."""
    verdict = dict(given["verdict"])
    verdict["worst"] = _mismatch(verdict["worst"]) if verdict["worst"] else None
    verdict["first"] = tuple(_mismatch(element) for element in verdict["first"])
    return Trial(**{**given, "verdict": Verdict(**verdict)})


def _mismatch(given: dict[str, Any]) -> Mismatch:
    return Mismatch(**{**given, "index": tuple(given["index"])})
