"""Plan a measurement, and run each case in a process of its own.

NVBench runs once per process and returns its results at the end. With a process per case, the
results of a case are complete when the next one starts, whatever ends the measurement.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import NoReturn

from gemmlab.compile import cute
from gemmlab.compile.artifact import Artifact
from gemmlab.core import processes, status
from gemmlab.errors import DeviceError, InputError, ShapeError, UnknownNameError
from gemmlab.kernels import ladder
from gemmlab.kernels.rung import Rung
from gemmlab.kernels.settings import text
from gemmlab.lab.bench import baselines, roofs
from gemmlab.lab.bench.circumstances import Circumstances
from gemmlab.lab.bench.job import Job, Kernel, Outcome, Place, Refusal, case_name
from gemmlab.lab.bench.protocol import Protocol
from gemmlab.lab.bench.record import IEEE
from gemmlab.lab.judge import precision
from gemmlab.linalg.runtime import executor
from gemmlab.problems.problem import WORKSPACE, Problem, Shape

Keep = Callable[[Outcome], object]

_ALONE = "its kernel alone, operands in device memory"  # title of a rung with a host flow


@dataclass(frozen=True)
class Guest:
    """A kernel that is not a rung; `name` is the file on the command line.

    `kernel(shape, arch)` compiles it and returns its launch; it raises ShapeError for a shape that
    the kernel does not support. `precision` is the class in which its results are judged.
    """

    name: str
    problem: str
    layout: str
    precision: str
    kernel: Callable[[Shape, str], Kernel]


@dataclass(frozen=True)
class BenchPlan:
    """Rungs and guests of one problem, layout and precision class, and the shapes to measure.

    `baselines` None selects all that are installed.
    """

    problem: Problem
    rungs: Sequence[Rung]
    shapes: Sequence[Shape]
    family: str
    seed: int
    baselines: tuple[str, ...] | None
    guests: Sequence[Guest] = ()

    @property
    def layout(self) -> str:
        return (self.rungs[0] if self.rungs else self.guests[0]).layout

    @property
    def precision(self) -> str:
        """The class in which results are judged and cuBLAS computes."""
        return self.guests[0].precision if self.guests else IEEE

    def check(self) -> None:
        """Raise UnknownNameError for an unknown family or baseline, InputError for an invalid seed
        or for kernels that cannot be measured together."""
        for guest in self.guests:
            same = (guest.problem, guest.layout, guest.precision)
            if same != (self.problem.name, self.layout, self.precision):
                raise InputError(
                    f"{guest.name} is for {', '.join(same)}, other kernels for "
                    f"{self.problem.name}, {self.layout}, {self.precision}: measure them separately"
                )
        known = baselines.names(self.problem.name)
        for name in self.baselines or ():
            if name not in known:
                raise UnknownNameError(
                    f"no baseline {name!r} for {self.problem.name}; available: {', '.join(known)}"
                )
        self.problem.case(dict.fromkeys(self.problem.axes, 1), self.layout, self.family, self.seed)

    def job(self, shape: Shape, protocol: Protocol, arch: str) -> tuple[Job, list[Refusal]]:
        """Compile the rungs for one shape; refuse those that do not support it.

        Raises CompileError, MissingDependencyError.
        """
        sizes = tuple(shape[axis] for axis in self.problem.axes)
        case = case_name(self.problem.name, sizes, self.layout, self.family)
        kernels, refusals = [], []
        for rung in self.rungs:
            name = ladder.label(rung)
            broken = rung.lacks(arch) or rung.requires(rung.config, shape)
            if broken:
                refusals.append(Refusal(name, case, "skipped", broken))
                continue
            kernels.append(self._kernel(rung, shape, arch))
        for guest in self.guests:
            try:
                kernels.append(guest.kernel(shape, arch))
            except ShapeError as error:
                refusals.append(Refusal(guest.name, case, "skipped", str(error)))
        job = Job(
            problem=self.problem.name,
            shape=dict(shape),
            layout=self.layout,
            family=self.family,
            seed=self.seed,
            kernels=tuple(kernels),
            baselines=self.baselines,
            command=self._command(sizes, protocol),
            precision=self.precision,
        )
        return job, refusals

    def _kernel(self, rung: Rung, shape: Shape, arch: str) -> Kernel:
        artifact = cute.compile_rung(rung, arch)
        names = (parameter.name for parameter in (*self.problem.parameters, WORKSPACE))
        return Kernel(
            name=ladder.label(rung),
            title=_ALONE if rung.flow else rung.change,
            artifact=artifact,
            geometry=rung.geometry(rung.config, shape),
            workspace=rung.workspace and rung.workspace(rung.config, shape),
            precision=precision.classify([IEEE], artifact.ptx),
            calls=tuple(
                executor.calls(rung, shape, {name: Place(name) for name in names}, artifact)
            )
            if rung.launches
            else (),
        )

    def _command(self, sizes: Sequence[int], protocol: Protocol) -> str:
        words = ["gemmlab bench", *(f"{self.problem.name}:{rung.name}" for rung in self.rungs)]
        words += [guest.name for guest in self.guests]
        words += [f"--shape {','.join(map(str, sizes))} --layout {self.layout}"]
        changes = {name: value for rung in self.rungs for name, value in rung.settings.items()}
        words += [f"--set {name}={text(value)}" for name, value in changes.items()]
        words += [f"--family {self.family} --seed {self.seed}", *protocol.command_options()]
        if self.baselines is not None:
            words.append(f"--baselines {','.join(self.baselines)}")
        return " ".join(words)


def measure(plan: BenchPlan, protocol: Protocol, arch: str, keep: Keep) -> Outcome:
    """Compile for `arch` and measure on GPU 0. Raises as `BenchPlan.job` and `measure_jobs` do."""
    made = [plan.job(shape, protocol, arch) for shape in plan.shapes]
    outcome = measure_jobs([job for job, _ in made], protocol, arch, keep)
    outcome.refusals[:0] = [refusal for _, refused in made for refusal in refused]
    return outcome


def measure_jobs(jobs: Sequence[Job], protocol: Protocol, arch: str, keep: Keep) -> Outcome:
    """Measure the jobs one after another on GPU 0, whose architecture is `arch`.

    `keep` gets the outcome of each job at once. What ends a job early ends the measurement. Raises
    CompileError, and MissingDependencyError if NVBench or a requested baseline is not installed.
    """
    probe = roofs.fma_probe(arch)
    outcome = Outcome()
    with status.interruptible(_interrupt):
        try:
            for job in jobs:
                found = _measured(job, protocol, probe, outcome.circumstances)
                outcome.add(found)
                keep(found)
                if found.ended_by is not None:
                    break
        except KeyboardInterrupt as interrupt:
            outcome.ended_by = interrupt
    return outcome


def _measured(
    job: Job, protocol: Protocol, probe: Artifact, circumstances: Circumstances | None
) -> Outcome:
    """Measure a job in a new process, which ends with this one."""
    pool = ProcessPoolExecutor(
        max_workers=1,
        mp_context=get_context("spawn"),
        initializer=processes.die_with_parent,
        initargs=(os.getpid(),),
    )
    with pool:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:  # the new process inherits the mask: a Ctrl-C waits until it can answer
            outcome = pool.submit(_answering, _work, job, protocol, probe, circumstances)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            try:
                return outcome.result()
            except KeyboardInterrupt:  # the process got it too, and returns what it has finished
                return outcome.result()
        except BrokenProcessPool:
            message = f"{job.case}: the measuring process died; its output is above"
            return Outcome(ended_by=DeviceError(message))


def _answering(work: Callable[..., Outcome], *arguments: object) -> Outcome:
    """Work in a process that has started, and therefore answers to a Ctrl-C from now on."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    return work(*arguments)


def _work(
    job: Job, protocol: Protocol, probe: Artifact, circumstances: Circumstances | None
) -> Outcome:
    from gemmlab.lab.bench import worker

    return worker.run([job], protocol, probe, circumstances=circumstances)


def _interrupt() -> NoReturn:
    raise KeyboardInterrupt
