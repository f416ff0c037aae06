"""The rungs of the ladders, each launched once under a profiler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.gpu import Gpu
from benchmarks.record import Row
from gemmlab import problems
from gemmlab.compile.cute import compile_rung
from gemmlab.kernels import ladder
from gemmlab.kernels.rung import Rung
from gemmlab.problems.problem import Problem


@dataclass(frozen=True)
class Launch:
    """A launch of one rung. Rungs of several launches have none."""

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
    names contain it.
    """
    for name, chosen in sizes.items():
        problem = problems.find(name)
        several = problem.families if all_families and name == "histogram" else problem.families[:1]
        for layout in (layout for layout in problem.layouts if layout in layouts):
            for rung in (ladder.in_layout(rung, layout) for rung in ladder.rungs(name)):
                single = rung.launches is None and word in f"{name}:{ladder.label(rung)}"
                for family in several if single else ():
                    for own in chosen:
                        launch = Launch(problem, rung, family, own)
                        if not rung.requires(rung.config, launch.shape):
                            yield launch


def run(gpu: Gpu, chosen: Iterator[Launch]) -> None:
    """Launch each once for the profiler, with outputs and workspaces of zeros."""
    device = gpu.device
    for launch in chosen:
        problem, rung = launch.problem, launch.rung
        case = problem.case(launch.shape, rung.layout, launch.family, 0)
        args: list[Any] = []
        for parameter in problem.parameters:
            if parameter.kind == "scalar":
                args.append(case.scalars[parameter.name])
            else:
                output = np.zeros(case.output_size, case.output_dtype)
                args.append(gpu.placed(case.buffers.get(parameter.name, output)))
        if rung.workspace:
            args.append(gpu.placed(np.zeros(rung.workspace(rung.config, launch.shape), np.uint8)))
        grid, block, smem = rung.geometry(rung.config, launch.shape)
        run = device.prepare(compile_rung(rung, device.arch), grid, block, args, smem)
        device.call("cuProfilerStart")
        run()
        device.stream.sync()
        device.call("cuProfilerStop")
