"""Compile, run, judge and count every rung of a ladder; one record per rung."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np

from gemmlab.compile.artifact import Artifact
from gemmlab.compile.cute import compile_rung
from gemmlab.devices import flow
from gemmlab.devices.cuda import CudaDevice
from gemmlab.devices.device import Device
from gemmlab.devices.emulated import EmulatedDevice
from gemmlab.devices.flow import Operation
from gemmlab.emulator import tiers
from gemmlab.errors import GemmlabError
from gemmlab.hardware.occupancy import occupancy
from gemmlab.kernels.ladder import label
from gemmlab.kernels.rung import Geometry, Rung
from gemmlab.lab import judge, predicted
from gemmlab.lab.ahead import Ahead
from gemmlab.lab.environment import own_version
from gemmlab.lab.from_last import FromLast, take_steps
from gemmlab.lab.judge import Examination, Verdict
from gemmlab.lab.records import Json, Record
from gemmlab.linalg.runtime.executor import chained
from gemmlab.problems.problem import Case, Problem
from gemmlab.ptx.parser import parse
from gemmlab.timing import Model

Progress = Callable[[str, str], None]  # rung, current activity


def climb(
    problem: Problem,
    case: Case,
    rungs: Iterable[Rung],
    device: Device,
    progress: Progress = lambda rung, doing: None,
    model: Model | None = None,
) -> Iterator[Record]:
    """Yield one record per rung, in order. The record of a rung that cannot run has the reason.

    model: of the GPU on which to predict times.
    """
    rungs = list(rungs)
    if isinstance(device, EmulatedDevice):
        device = EmulatedDevice(device.arch, device.tier, device.check, machine_code=True)
        with FromLast(problem, case, rungs, device, model, __name__) as others:
            for index, rung in enumerate(rungs):
                step = _Step(problem, case, rung, device, progress, model)
                record = others.record(index, partial(progress, label(rung), "running"))
                yield step.take() if record is None else record
    else:
        with Ahead(rungs, case.shape, device.arch) as compiler:
            for rung in rungs:
                wait = partial(compiler.wait, rung)
                yield _Step(problem, case, rung, device, progress, model, wait).take()


@dataclass(frozen=True)
class _Step:
    """Runs one rung on one case."""

    problem: Problem
    case: Case
    rung: Rung
    device: Device
    progress: Progress
    model: Model | None
    wait: Callable[[], None] = lambda: None  # until no other process compiles the rung

    def take(self) -> Record:
        start = time.perf_counter()
        try:
            record = self._run()
        except GemmlabError as error:
            record = replace(self._record("not run"), message=str(error))
        return replace(record, host_s=time.perf_counter() - start)

    def _run(self) -> Record:
        rung, shape = self.rung, self.case.shape
        broken = rung.lacks(self.device.arch) or rung.requires(rung.config, shape)
        if broken:
            return replace(self._record("skipped"), message=broken)
        geometry = rung.geometry(rung.config, shape)
        self._say("preparing")
        self.wait()
        artifact = compile_rung(rung, self.device.arch)
        record = self._with_artifact(self._record("not run"), artifact, geometry)
        try:
            return self._judged(record, artifact, geometry)
        except GemmlabError as error:
            return replace(record, message=str(error))

    def _judged(self, record: Record, artifact: Artifact, geometry: Geometry) -> Record:
        self._say("running")
        found = self._examine(self.device, artifact, geometry)
        record = _with_verdict(record, found.verdict)
        if found.launched is None:
            return record
        record = replace(record, counters=found.launched.counters, timeline=_lines(found.timeline))
        if 0 in geometry.grid:
            return replace(record, message=f"{record.message}; nothing to launch")
        if self.model is not None:
            self._say("predicting")
            prediction = predicted.as_json(self.rung, self.case, self.model)
            record = replace(record, prediction=prediction)
        if isinstance(self.device, CudaDevice):
            record = self._timed(record, self.device, artifact, geometry)
            record = self._counted(record, found, artifact, geometry)
        return record

    def _examine(self, device: Device, artifact: Artifact, geometry: Geometry) -> Examination:
        """Run the rung's kernel, or its host flow if it has one, and judge the result."""
        program = self.rung.program
        if isinstance(device, EmulatedDevice):
            # One thread-instruction per multiply-add is the least that the kernel executes.
            work = self.problem.flops(self.case.shape) // 2
            tiers.expect(parse(artifact.ptx).digest, artifact.entry, work)
        if program is None:
            workspace, own = self._workspace(), chained(device, self.rung, self.case.shape)
            return judge.examine(own, artifact, geometry, self.problem, self.case, workspace)
        return judge.examine_flow(device, artifact, program, self.problem, self.case)

    def _workspace(self) -> int | None:
        needed = self.rung.workspace
        return None if needed is None else needed(self.rung.config, self.case.shape)

    def _timed(
        self, record: Record, device: CudaDevice, artifact: Artifact, geometry: Geometry
    ) -> Record:
        if record.verdict != "pass":
            return record
        self._say("timing")
        if self.rung.program is None:
            memory = judge.CaseMemory(device, self.problem, self.case, self._workspace())
            grid, block, dynamic_smem = geometry
            own = chained(device, self.rung, self.case.shape)
            seconds = own.measure(artifact, grid, block, memory.args, dynamic_smem)
        else:
            arrays = list(judge.arrays(self.problem, self.case).values())
            run = flow.measure_flow(device, artifact, self.rung.program, arrays)
            seconds = run.time_s
            record = replace(record, timeline=_lines(run.timeline))
        return replace(record, time_s=seconds, tflops=record.flops / seconds / 1e12)

    def _counted(
        self, record: Record, found: Examination, artifact: Artifact, geometry: Geometry
    ) -> Record:
        """Add counters by emulating the same artifact on the same inputs, and compare the bits."""
        if not self._countable():
            return record
        self._say("counting")
        emulated = EmulatedDevice(self.device.arch, machine_code=True)
        try:
            twin = self._examine(emulated, artifact, geometry)
        except GemmlabError as error:
            return replace(record, message=f"{record.message}; not emulated: {error}")
        if twin.launched is None or twin.image is None or found.image is None:
            return replace(record, message=f"{record.message}; emulator: {twin.verdict.message}")
        record = replace(record, counters=twin.launched.counters)
        if not self.rung.reproducible or has_undocumented_bits(artifact.ptx):
            return record
        equal = bool(np.array_equal(twin.image.view(np.uint8), found.image.view(np.uint8)))
        return replace(record, emulator_bits_equal=equal)

    def _countable(self) -> bool:
        """Whether the case is small enough to be emulated in about a minute."""
        most = self.problem.emulated_size ** len(self.problem.axes)
        return bool(math.prod(self.case.shape.values()) <= most)

    def _record(self, verdict: str) -> Record:
        case, problem = self.case, self.problem
        return Record(
            rung=label(self.rung),
            problem=problem.name,
            shape=dict(case.shape),
            layout=case.layout,
            family=case.family,
            seed=case.seed,
            device=self.device.name,
            arch=self.device.arch,
            verdict=verdict,
            message="",
            bound_u=problem.bound_u(case.shape),
            flops=problem.flops(case.shape),
            min_bytes=problem.min_bytes(case.shape),
            versions={**_versions(), **self.device.versions()},
        )

    def _with_artifact(self, record: Record, artifact: Artifact, geometry: Geometry) -> Record:
        grid, block, dynamic_smem = geometry
        launch = dict(grid=list(grid), block=list(block), dynamic_smem_bytes=dynamic_smem)
        record = replace(record, launch=launch, versions=record.versions | artifact.versions)
        taken = artifact.resources
        if taken is None:
            return record
        smem = taken.static_smem_bytes + dynamic_smem
        threads = block[0] * block[1] * block[2]
        found = occupancy(artifact.arch, threads, taken.registers, smem)
        return replace(record, resources=asdict(taken), occupancy=asdict(found))

    def _say(self, doing: str) -> None:
        self.progress(label(self.rung), doing)


def _with_verdict(record: Record, verdict: Verdict) -> Record:
    return replace(
        record,
        verdict=verdict.status,
        message=verdict.message,
        max_error_u=verdict.max_error_u,
        wrong_count=verdict.wrong_count,
        worst=asdict(verdict.worst) if verdict.worst else None,
    )


def has_undocumented_bits(ptx: str) -> bool:
    """Whether the code has an approximate instruction: PTX bounds the error of these, no more."""
    return any(
        not {"approx", "full"}.isdisjoint(instruction.modifiers)
        for function in parse(ptx).functions.values()
        for instruction in function.instructions
    )


def _lines(timeline: Iterable[Operation] | None) -> list[Json] | None:
    return None if timeline is None else [asdict(operation) for operation in timeline]


def _versions() -> dict[str, str]:
    return {"gemmlab": own_version(), "python": platform.python_version()}


def _taken(
    problem: Problem, case: Case, rung: Rung, device: EmulatedDevice, model: Model | None
) -> Record:
    return _Step(problem, case, rung, device, lambda rung, doing: None, model).take()


if __name__ == "__main__":
    take_steps(_taken)
