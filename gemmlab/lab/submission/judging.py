"""From a file to a judgement: each step in a process of its own, the first that fails ends it."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gemmlab.compile import source
from gemmlab.compile.architectures import DEFAULT, NVRTC_ARCHITECTURES, check_architecture
from gemmlab.core.status import say
from gemmlab.devices import cuda
from gemmlab.errors import CompileError, GemmlabError, InputError
from gemmlab.lab.directives import Directive, read
from gemmlab.lab.judge import Mismatch, Verdict, precision
from gemmlab.lab.submission import advice, process, timing
from gemmlab.lab.submission.process import Limits
from gemmlab.lab.submission.steps import Judgement, Status, Step, Trial
from gemmlab.lab.submission.submission import SUFFIXES, Submission

Progress = Callable[[Step], None]
SEEDS = 2**40
GO_ON = ("pass", "unsupported")  # what the emulator does not know, a GPU may


@dataclass(frozen=True)
class Options:
    """How to judge. `seed` None: inputs that nobody can know beforehand.

    `gpu` False leaves out what needs one, even where there is one. `shapes` are tried besides the
    judge's own, in the order of the problem's axes.
    """

    arch: str | None = None
    seed: int | None = None
    seconds: float = 120.0  # of each step
    memory_bytes: int = 8 * 2**30  # of each step but those on a GPU, whose driver maps far more
    gpu: bool = True
    shapes: tuple[tuple[int, ...], ...] = ()


def judge_file(
    path: Path,
    words: Directive,
    options: Options,
    progress: Progress = lambda step: None,
) -> Judgement:
    """Judge one kernel file that is called as its directive says, with `words` in place of its own.

    What the file does wrong is in the judgement. Raises InputError for a path that is no kernel
    file or cannot be read, UnknownNameError for one that is not there and for an architecture.
    """
    return _opened(path, words, options, progress).judge()


def prepare(path: Path, options: Options) -> Submission:
    """Compile a file and check it without running it: it can be launched as its directive says.

    Raises CompileError where a step fails, and as `judge_file`.
    """
    judge = _opened(path, Directive(), options)
    found = judge.judge(runs=False)
    if not found.passed:
        raise CompileError(f"{path}: {found.verdict}: {found.steps[-1].message}")
    return judge.submission


def read_file(path: Path) -> str:
    """The text of a kernel file. Raises as `judge_file`."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path} is none of {', '.join(SUFFIXES)}")
    return source.read(path)


def _opened(
    path: Path, words: Directive, options: Options, progress: Progress = lambda step: None
) -> _Judge:
    text = read_file(path)
    arch = check_architecture(options.arch or DEFAULT, NVRTC_ARCHITECTURES)
    seed = secrets.randbelow(SEEDS) if options.seed is None else options.seed
    submission = Submission(path.resolve(), words, arch, seed, options.shapes)
    return _Judge(submission, text, options, progress)


class _Judge:
    """One file on its way through the steps."""

    def __init__(
        self, submission: Submission, text: str, options: Options, progress: Progress
    ) -> None:
        self.submission, self._text = submission, text
        self._options, self._progress = options, progress
        self._result = Judgement(
            file=submission.path.name,
            seed=submission.seed,
            arch=submission.arch,
        )

    def judge(self, runs: bool = True) -> Judgement:
        """Without `runs`, only the steps in which the kernel does not run."""
        result = self._result
        steps = [self._directive, self._compile, self._static]
        if runs:
            steps += [self._emulate, *([self._gpu, self._time] if self._options.gpu else [])]
        for take in steps:
            start = time.perf_counter()
            step = take()
            step.seconds = time.perf_counter() - start
            result.steps.append(step)
            self._progress(step)
            if step.status not in GO_ON:
                break
        self._classify()
        result.advice = advice.sentences(result, self.submission.ptx)
        return result

    # The steps

    def _directive(self) -> Step:
        try:
            directive = read(self._text).overridden(self.submission.directive)
            self.submission = replace(self.submission, directive=directive)
            self.submission.check()
        except GemmlabError as error:
            return Step("directive", "bad directive", str(error))
        self._result.problem = self.submission.problem.name
        self._result.layout = self.submission.layout
        words = ", ".join(self.submission.argument_words)
        return Step("directive", message=f"{self._result.problem}, takes {words}")

    def _compile(self) -> Step:
        step, told = self._run("compile", "compile_file", self.submission)
        if step.status == "pass":
            ptx, entry = str(told.get("ptx", "")), str(told.get("entry", ""))
            if ".version" not in ptx or ".target" not in ptx:  # a file's own code may say anything
                return replace(step, status="crashed", message="no PTX came of it")
            self.submission = replace(self.submission, ptx=ptx, entry=entry)
            self._result.entry = entry
            versions = told.get("versions")
            versions = versions if isinstance(versions, dict) else {}
            made_by = ", ".join(f"{name} {version}" for name, version in versions.items())
            name = self.submission.directive.entry or entry  # as its author calls it
            step.message = f"{name}: {len(ptx.splitlines())} lines of PTX, {made_by or 'as it is'}"
            left_out = told.get("left_out")
            if left_out and isinstance(left_out, list):
                names = ", ".join(map(str, left_out))
                step.message += f"; removed as host code: {names}"
        return step

    def _static(self) -> Step:
        step, told = self._run("checks", "check_statically", self.submission)
        taken = told.get("resources")
        if taken:
            self._result.resources = taken | told.get("occupancy", {})
        for key, status in _FINDINGS.items():
            if key in told and step.status == "pass":
                step.status, step.message = status, told[key]
        if step.status == "pass" and taken:
            step.message = (
                f"{taken['registers']} registers, {taken['spill_bytes']} bytes spilled, "
                f"{taken['static_smem_bytes']} bytes of static shared memory"
            )
        return step

    def _emulate(self) -> Step:
        step, told = self._run("emulator", "emulate", self.submission)
        self._judge_trials(step)
        self._result.counters = told.get("counters")
        self._result.counted_shape = told.get("shape")
        return step

    def _gpu(self) -> Step:
        needed = "timing needs one too"
        if not cuda.has_driver():  # a process would take its time to say the same
            return Step("GPU", "skipped", f"{cuda.NO_DRIVER}; {needed}")
        step, told = self._run("GPU", "try_on_gpu", self.submission, None)
        if step.status == "not run" and not told:
            return replace(step, status="skipped", message=f"{step.message}; {needed}")
        self._judge_trials(step)
        self._result.arch = told.get("arch", self._result.arch)
        return step

    def _time(self) -> Step:
        request = timing.Request(self.submission, self._result.arch, self._class())
        step, told = self._run("timing", "time_on_gpu", request, None)
        self._result.runs = told.get("runs", [])
        self._result.score = told.get("score")
        if "best_seconds" in told:
            self._result.best_seconds = tuple(told["best_seconds"])
        if told.get("status"):
            step.status = told["status"]
        step.message = told.get("message", step.message)
        return step

    # What steps have in common

    def _run(
        self, name: str, task: str, request: Any, memory: int | None = -1
    ) -> tuple[Step, dict[str, Any]]:
        """Run a task; what it told by key, the last word counts, and its trials in the step."""
        limit = self._options.memory_bytes if memory == -1 else memory
        runs_it = task == "compile_file" and self.submission.path.suffix == ".py"
        say(f"judging {self.submission.path.name}: {name}")
        ended = process.run(task, request, Limits(self._options.seconds, limit, runs_it))
        step = Step(name, ended.status or "pass", ended.message, output=ended.output)
        told: dict[str, Any] = {}
        for answer in ended.answers:
            if "trial" in answer and not runs_it:
                step.trials.append(_trial(answer["trial"]))
            told |= answer
        if ended.status is not None and "begun" in told:
            step.message = f"{told['begun']}: {step.message}"
        if step.status == "time limit":
            step.message += "; --time-limit gives it longer"
        return step, told

    def _judge_trials(self, step: Step) -> None:
        """Pass if every result is right in the class that is wanted."""
        wanted = self.submission.precision
        failed = [trial for trial in step.trials if trial.precision is None]
        if failed:
            worst = failed[0]
            step.status, step.message = (
                worst.verdict.status,
                f"{worst.name}: {worst.verdict.message}",
            )
            if "spoilt" in worst.purpose and worst.verdict.status == "wrong answer":
                step.status = "forbidden"
                step.message += "; it kept elements that the output held before"
            elif hint := self._hint(worst, is_first=worst is step.trials[0]):
                step.message += f"\n{hint}" if "\n" in step.message else f"; {hint}"
            return
        if step.status != "pass":
            return
        short = [one for one in step.trials if not precision.suffices(one.precision, wanted)]
        if short:
            name = precision.accuracy(trial.precision or "" for trial in short)
            worst = max(short, key=lambda trial: trial.verdict.max_error_u or 0.0)
            step.status = "low precision"
            step.message = f"{_too_wrong(worst, wanted)}: this is {name}"
            return
        errors = (trial.verdict.max_error_u or 0.0 for trial in step.trials)
        largest = max(filter(math.isfinite, errors), default=0.0)
        step.message = f"{len(step.trials)} launches right, largest error {largest:.3g} u"

    def _hint(self, wrong: Trial, is_first: bool) -> str:
        """What the cause may be, if it looks like one of those that are common."""
        given, verdict = self.submission, wrong.verdict
        nan = verdict.first and all(one.got != one.got for one in verdict.first)
        if nan and is_first and given.output_word is None:
            return (
                "all of it is NaN, as the output was before: a kernel that multiplies that by "
                "beta = 0 needs output=finite"
            )
        takes_smem = ".extern .shared" in given.ptx and given.directive.smem in (None, "0")
        if takes_smem and verdict.status == "out of bounds":
            return "how many bytes of extern __shared__ memory it needs, smem=… has to say"
        return ""

    def _class(self) -> str | None:
        """From all trials so far; None where nothing is rounded, or nothing was right."""
        known = (step for step in self._result.steps if step.status != "unsupported")
        trials = [trial for step in known for trial in step.trials]
        kept = [trial.precision for trial in trials]
        if not trials or None in kept or not any(t.verdict.bound_u for t in trials):
            return None
        wanted = self.submission.precision
        return precision.classify((name for name in kept if name), self.submission.ptx, wanted)

    def _classify(self) -> None:
        self._result.precision = self._class()


_FINDINGS: dict[str, Status] = {"directive": "bad directive", "forbidden": "forbidden"}


def _too_wrong(trial: Trial, wanted: str) -> str:
    """How a result breaks the bounds of a class."""
    error_u = trial.verdict.max_error_u or 0.0
    if math.isinf(error_u):
        return f"{trial.name}: NaN or infinity where {wanted} has a number, or the reverse"
    allowed_u = trial.verdict.bound_u + precision.LOSS_U[wanted]
    return f"{trial.name}: errors up to {error_u:.3g} u, where {wanted} allows {allowed_u:.3g} u"


def _trial(told: dict[str, Any]) -> Trial:
    """A trial from JSON."""
    own = dict(told["verdict"])
    own["worst"] = _mismatch(own["worst"]) if own["worst"] else None
    own["first"] = tuple(_mismatch(one) for one in own["first"])
    return Trial(**{**told, "verdict": Verdict(**own)})


def _mismatch(told: dict[str, Any]) -> Mismatch:
    return Mismatch(**{**told, "index": tuple(told["index"])})
