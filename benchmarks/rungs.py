"""The rungs of the ladders, each launched once under a profiler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.gpu import Gpu, Work
from benchmarks.record import Row
from gemmlab import problems
from gemmlab.compile.artifact import Artifact
from gemmlab.compile.cute import compile_rung
from gemmlab.kernels import ladder
from gemmlab.kernels.rung import Rung
from gemmlab.linalg.runtime import executor
from gemmlab.linalg.runtime.executor import Call
from gemmlab.problems.problem import WORKSPACE, Case, Problem


@dataclass(frozen=True)
class Launch:
    """A launch of one rung; of several, that of the rung's own kernel."""

    problem: Problem
    rung: Rung
    family: str
    sizes: tuple[int, ...]

    @property
    def shape(self) -> dict[str, int]:
        return dict(zip(self.problem.axes, self.sizes, strict=True))

    @property
    def name(self) -> str:
        return ladder.label(self.rung)

    def row(self) -> Row:
        """What identifies the launch in a record."""
        own = {"problem": self.problem.name, "rung": self.name, "layout": self.rung.layout}
        return {**own, "family": self.family, "shape": self.shape}


def launches(
    sizes: Mapping[str, Sequence[tuple[int, ...]]],
    layouts: Sequence[str],
    all_families: bool,
    word: str = "",
) -> Iterator[Launch]:
    """Yield the launches of every rung at the sizes of its problem, in the same order each time.

    all_families: of the inputs of histograms, whose counters depend on them. word: only rungs whose
    names contain it, or one of several words separated by commas.
    """
    for name, chosen in sizes.items():
        problem = problems.find(name)
        several = problem.families if all_families and name == "histogram" else problem.families[:1]
        for layout in (layout for layout in problem.layouts if layout in layouts):
            for rung in (ladder.in_layout(rung, layout) for rung in ladder.rungs(name)):
                wanted = any(part in f"{name}:{ladder.label(rung)}" for part in word.split(","))
                for family in several if wanted else ():
                    for own in chosen:
                        launch = Launch(problem, rung, family, own)
                        if not rung.requires(rung.config, launch.shape):
                            yield launch


def run(gpu: Gpu, chosen: Iterator[Launch]) -> None:
    """Launch each once for the profiler, which does not see the other kernels of a rung."""
    for launch in chosen:
        case = launch.problem.case(launch.shape, launch.rung.layout, launch.family, 0)
        artifact = compile_rung(launch.rung, gpu.device.arch)
        given = placed(gpu, launch.problem, case)
        for call in calls(gpu, launch.rung, launch.shape, given, artifact):
            enqueue = gpu.device.prepare(*call)
            if call.artifact is artifact:
                profile(gpu, enqueue)
            else:
                enqueue()


def profile(gpu: Gpu, enqueue: Work) -> None:
    """Run work to its end under the profiler."""
    device = gpu.device
    device.stream.sync()
    device.call("cuProfilerStart")
    enqueue()
    device.stream.sync()
    device.call("cuProfilerStop")


def placed(gpu: Gpu, problem: Problem, case: Case) -> dict[str, Any]:
    """The arguments of a case by name, in device memory; the output is zeros."""
    output = np.zeros(case.output_size, case.output_dtype)
    arrays = {**case.buffers, case.output: output}
    return {
        parameter.name: case.scalars[parameter.name]
        if parameter.kind == "scalar"
        else gpu.placed(arrays[parameter.name])
        for parameter in problem.parameters
    }


def calls(
    gpu: Gpu, rung: Rung, shape: Mapping[str, int], given: Mapping[str, Any], artifact: Artifact
) -> list[Call]:
    """All launches of a rung, in order, on placed arguments and a workspace of zeros."""
    if rung.workspace:
        zeros = np.zeros(rung.workspace(rung.config, shape), np.uint8)
        given = {**given, WORKSPACE.name: gpu.placed(zeros)}
    if rung.launches:
        return list(executor.calls(rung, shape, given, artifact))
    grid, block, smem = rung.geometry(rung.config, shape)
    return [Call(artifact, grid, block, list(given.values()), smem, None)]
