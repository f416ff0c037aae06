"""Measure cases, in the process that uses the GPU.

For each case: judge every contender, wait until the clock settles, measure all contenders with
NVBench in interleaved rounds, and judge them again on new inputs.
"""

from __future__ import annotations

import itertools
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from gemmlab import problems
from gemmlab.compile.artifact import Artifact
from gemmlab.devices.cuda import CudaDevice
from gemmlab.devices.device import Span
from gemmlab.lab import judge
from gemmlab.lab.bench import baselines, machine, nvbench, roofs
from gemmlab.lab.bench.circumstances import Circumstances
from gemmlab.lab.bench.contenders import Arguments, Bound, KernelContender
from gemmlab.lab.bench.job import Job, Outcome, Refusal
from gemmlab.lab.bench.kernel_clock import KernelClock
from gemmlab.lab.bench.machine import Sensors
from gemmlab.lab.bench.nvbench import Step
from gemmlab.lab.bench.protocol import Protocol
from gemmlab.lab.bench.results import Entry, result
from gemmlab.lab.environment import own_version
from gemmlab.lab.judge import CaseMemory, Verdict, precision
from gemmlab.lab.judge.buffers import corrupted, must_write
from gemmlab.problems.problem import Case

ROTATION = 2.25  # the operand sets are together larger than this many L2 caches,
MOST_SETS = 256  # but there are at most this many sets
RESETTLE_S = 0.5  # warm-up before each case
ASIDE_S = 1e-4  # shorter work on a stream that is not timed cannot be detected reliably
PROBES = 2  # steps before the first case of a run: copy, FMA


def run(
    jobs: Sequence[Job],
    protocol: Protocol,
    probe: Artifact,
    clock: KernelClock | None = None,
    circumstances: Circumstances | None = None,
) -> Outcome:
    """Measure the jobs in this process; works once per process.

    `probe` is the kernel of roofs.fma_probe. `clock`, if given, also times the launches, after the
    second judgement. `circumstances` are those of a run whose earlier cases another process
    measured; None starts a run, with its roofs. Raises the same errors as nvbench.sample.
    """
    device = CudaDevice()
    sensors = Sensors(device)
    return Measurement(device, sensors, jobs, protocol, probe, clock, circumstances).take()


class Measurement:
    """The measurement of all jobs of a process."""

    def __init__(
        self,
        device: CudaDevice,
        sensors: Sensors,
        jobs: Sequence[Job],
        protocol: Protocol,
        probe: Artifact,
        clock: KernelClock | None = None,
        circumstances: Circumstances | None = None,
    ) -> None:
        self._device, self._sensors, self._protocol = device, sensors, protocol
        self._probe, self._clock, self._circumstances = probe, clock, circumstances
        self._facts = machine.facts(device, sensors)
        self._cases = [(job, self._entries(job)) for job in jobs]
        self._turns = self._finished = 0

    def take(self) -> Outcome:
        """Measure. Raises the same errors as nvbench.sample."""
        probes = PROBES if self._circumstances is None else 0
        count = probes + self._protocol.rounds * sum(len(own) for _, own in self._cases)
        sampled, error = nvbench.sample(self._walk(), count, self._device.stream, self._protocol)
        circumstances = self._circumstances or Circumstances.of(
            self._facts, sampled[:PROBES], self._protocol, _versions() | self._device.versions()
        )
        outcome = Outcome(ended_by=error, circumstances=circumstances)
        for _, entries in self._cases[: self._finished]:
            for entry in entries:
                found = result(entry, entries, sampled, circumstances)
                if isinstance(found, Refusal):
                    outcome.refusals.append(found)
                else:
                    outcome.records.append(found)
        return outcome

    def _entries(self, job: Job) -> list[Entry]:
        problem = problems.find(job.problem)
        kernels = [KernelContender(self._device, problem, kernel) for kernel in job.kernels]
        libraries = baselines.make(self._device, problem, job.layout, job.baselines, job.precision)
        return [Entry(job, contender) for contender in (*libraries, *kernels)]

    def _walk(self) -> Iterator[Step | None]:
        """Yield every step in order; between them, do the work that is not measured."""
        if self._circumstances is None:
            yield from self._measure_roofs()
        for job, entries in self._cases:
            yield from self._measure(job, entries)

    def _measure_roofs(self) -> Iterator[Step | None]:
        copy = roofs.copy_launch(self._device)
        fma = roofs.fma_launch(self._device, self._probe, self._facts["sms"])
        self._settle(fma, machine.LEAST_S)
        for launch in (copy, fma):
            yield self._step(Step(launch, batched=False))

    def _measure(self, job: Job, entries: list[Entry]) -> Iterator[Step | None]:
        """Judge, measure and judge again the contenders of one case."""
        start = time.perf_counter()
        memory = self._place(job, job.seed)
        for entry in entries:
            self._judge(entry, memory)
        sets = self._operand_sets(memory)
        launches = [self._rotating(entry, sets) for entry in entries]
        self._settle(next(filter(None, launches), None), RESETTLE_S)
        for number in range(self._protocol.rounds):
            for entry, launch in zip(entries, launches, strict=True):
                entry.turns.append(self._turns)
                yield self._step(launch and self._turn(entry, launch, number))
                entry.readings.append(self._sensors.read())
        del memory, sets, launches
        fresh = self._place(job, job.seed + 1)
        for entry in entries:
            self._judge(entry, fresh)
        self._finished += 1
        took = time.perf_counter() - start
        print(f"{job.case}: {len(entries)} contenders, {took:.1f} s", file=sys.stderr, flush=True)

    def _turn(self, entry: Entry, launch: Callable[[], None], number: int) -> Step | None:
        """Return a contender's step in a round; None if earlier rounds used up its time.

        A step takes at least two launches, the first to warm up. It has no batch if one launch
        takes longer than a batch should.
        """
        protocol = self._protocol
        if 2 * number * entry.launch_s > protocol.timeout_s:
            return None
        batched = entry.launch_s < protocol.min_time_s / protocol.rounds
        return Step(launch, batched, entry.contender.synchronizes)

    def _step(self, step: Step | None) -> Step | None:
        self._turns += 1
        return step

    def _place(self, job: Job, seed: int) -> CaseMemory:
        problem = problems.find(job.problem)
        case = problem.case(job.shape, job.layout, job.family, seed)
        return CaseMemory(self._device, problem, case)

    def _judge(self, entry: Entry, memory: CaseMemory) -> None:
        """Run once on a poisoned output; refuse the contender on an error or a wrong result."""
        if entry.refusal is not None:
            return
        try:
            bound = entry.contender.bind(memory.args)
            bound.run()
            bound.deliver()
            self._device.gpu.sync()  # all streams
            if entry.contender.solves:
                verdict, image = judge.inspect(memory)
                entry.max_error_u = max(entry.max_error_u or 0.0, verdict.max_error_u or 0.0)
                if not _suffices(verdict, memory.case, image, entry.job):
                    entry.refuse(verdict.status, verdict.message)
                elif entry.turns:
                    self._judge_over_result(entry, memory, bound, image)
            if not entry.turns:
                self._time_launch(entry, bound)
            elif self._clock is not None and entry.refusal is None:
                entry.cupti_s = self._clock.measure(bound.run, self._device.gpu.sync)
        except Exception as error:  # a library may raise anything
            entry.refuse("not run", f"{type(error).__name__}: {error}")
        memory.restore(memory.case.output if entry.refusal is None else None)

    def _judge_over_result(
        self, entry: Entry, memory: CaseMemory, bound: Bound, image: np.ndarray
    ) -> None:
        """Run again on the result with some elements corrupted; refuse a kernel that keeps them.

        A timed launch also finds a complete output, and must not skip its work. Accumulators are
        exempt: they start from zeros every time.
        """
        output = memory.guarded[memory.case.output]
        if not must_write(memory.problem):
            return
        output.buffer.write(corrupted(image, memory.case.seed), output.span.offset)
        bound.run()
        bound.deliver()
        self._device.gpu.sync()
        verdict, image = judge.inspect(memory)
        if not _suffices(verdict, memory.case, image, entry.job):
            entry.refuse("forbidden", f"keeps old contents of its output: {verdict.message}")

    def _time_launch(self, entry: Entry, bound: Bound) -> None:
        """Measure roughly the time of a launch; refuse the contender if it uses other streams."""
        for _ in range(3):  # Python may pause
            start = time.perf_counter()
            self._wait_for(bound.run)
            entry.launch_s = time.perf_counter() - start
            self._device.gpu.sync()
            late_s = time.perf_counter() - start - entry.launch_s
            if late_s < max(ASIDE_S, entry.launch_s / 4):
                return
        entry.refuse("not timed", f"{1e3 * late_s:.3g} ms of its work is on another stream")

    def _operand_sets(self, memory: CaseMemory) -> list[Arguments]:
        """Return copies of the operands, at least two, that together are larger than L2."""
        nbytes = sum(guarded.image.nbytes for guarded in memory.guarded.values())
        wanted = int(ROTATION * self._facts["l2_bytes"] / max(nbytes, 1)) + 1
        return [self._copy(memory) for _ in range(max(2, min(wanted, MOST_SETS)))]

    def _copy(self, memory: CaseMemory) -> Arguments:
        images = {id(guarded.span.buffer): guarded.image for guarded in memory.guarded.values()}

        def copied(arg: Any) -> Any:
            if not isinstance(arg, Span):
                return arg
            image = images[id(arg.buffer)]
            buffer = self._device.allocate(image.nbytes)
            buffer.write(image)
            return Span(buffer, 0, image.nbytes)

        return [copied(arg) for arg in memory.args]

    def _rotating(self, entry: Entry, sets: list[Arguments]) -> Callable[[], None] | None:
        """Return a launch that uses the next set of operands each time; None if refused."""
        if entry.refusal is not None:
            return None
        bound: list[Bound] = [entry.contender.bind(args) for args in sets]
        entry.rotation_bytes = sum(
            arg.nbytes for args in sets for arg in args if isinstance(arg, Span)
        )
        turns = itertools.cycle([one.run for one in bound])
        return lambda: next(turns)()

    def _settle(self, launch: Callable[[], None] | None, least_s: float) -> None:
        if launch is not None:
            machine.settle(
                lambda: self._wait_for(launch), lambda: self._sensors.read().sm_mhz, least_s
            )

    def _wait_for(self, launch: Callable[[], None]) -> None:
        launch()
        self._device.stream.sync()


def _suffices(verdict: Verdict, case: Case, image: np.ndarray, job: Job) -> bool:
    """Whether a result is correct in the job's precision class."""
    return precision.suffices(precision.class_of(verdict, case, image), job.precision)


def _versions() -> dict[str, str]:
    return {"gemmlab": own_version(), "python": platform.python_version()}
