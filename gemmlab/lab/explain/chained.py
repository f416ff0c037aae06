"""The traced launches of a rung that takes several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from gemmlab.compile.artifact import Artifact
from gemmlab.devices.device import Argument, Dim3, Launched, Span
from gemmlab.devices.emulated import EmulatedDevice
from gemmlab.emulator import Run, Trace
from gemmlab.kernels.rung import Rung
from gemmlab.lab.explain import counted
from gemmlab.linalg.runtime.executor import chained
from gemmlab.problems.problem import WORKSPACE, Problem

_LARGEST = {"m": 128, "n": 128, "k": 384}  # one block of C and a few tiles

Traced = tuple[Artifact, Trace, Run]


class _Tracing(EmulatedDevice):
    """A device that fills the traces that `trace` returns for kernels; None: no trace."""

    def __init__(self, arch: str, trace: Callable[[Artifact], Trace | None]) -> None:
        super().__init__(arch)
        self.trace, self.made = trace, list[Traced]()

    def launch(
        self,
        artifact: Artifact,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Argument],
        dynamic_smem: int = 0,
        cluster: Dim3 | None = None,
    ) -> Launched:
        trace = self.trace(artifact)
        if trace is None:
            return super().launch(artifact, grid, block, args, dynamic_smem, cluster)
        run = self.traced(artifact, grid, block, args, dynamic_smem, cluster, trace)
        self.made.append((artifact, trace, run))
        return Launched(counters=run.counters)


def launches(
    problem: Problem, rung: Rung, artifact: Artifact, shape: Mapping[str, int]
) -> tuple[counted.Launched, ...]:
    """Emulate and trace all launches; return that of the rung's kernel first.

    Raises EmulationError.
    """
    made = _emulated(problem, rung, artifact, shape, lambda kernel: Trace())
    return tuple(sorted(made, key=lambda one: one.artifact is not artifact))


def launch(
    problem: Problem, rung: Rung, artifact: Artifact, shape: Mapping[str, int], trace: Trace
) -> counted.Launched:
    """Emulate all launches at a shape that is small enough, and trace that of the rung's kernel.

    Raises EmulationError.
    """
    small = {axis: min(size, _LARGEST[axis]) for axis, size in shape.items()}

    def of_own(kernel: Artifact) -> Trace | None:
        return trace if kernel is artifact else None

    [made] = _emulated(problem, rung, artifact, small, of_own)
    return made


def _emulated(
    problem: Problem,
    rung: Rung,
    artifact: Artifact,
    shape: Mapping[str, int],
    trace: Callable[[Artifact], Trace | None],
) -> list[counted.Launched]:
    """Emulate all launches; return those that are traced.

    A kernel reads its operands where the launches before have put them, in the workspace.
    """
    assert rung.workspace is not None
    case = problem.case(shape, rung.layout, problem.families[0], seed=0)
    given = dict(case.buffers) | dict(case.scalars)
    given[case.output] = np.zeros(case.output_size, case.output_dtype)
    device = _Tracing(artifact.arch, trace)
    args: list[Argument] = []
    for parameter in problem.parameters:
        value = given[parameter.name]
        if not isinstance(value, np.ndarray):
            args.append(value)
            continue
        buffer = device.allocate(value.nbytes)
        buffer.data[:] = value.reshape(-1).view(np.uint8)
        args.append(Span(buffer, 0, value.nbytes))
    nbytes = rung.workspace(rung.config, shape)
    args.append(Span(device.allocate(nbytes), 0, nbytes))
    chained(device, rung, shape).launch(artifact, *rung.geometry(rung.config, shape)[:2], args)
    kept = {name for name in given if name not in case.buffers}

    def names(kernel: Artifact) -> tuple[str, ...]:
        return tuple(one.name if one.name in kept else WORKSPACE.name for one in kernel.parameters)

    return [counted.Launched(case, names(x), x, trace, run) for x, trace, run in device.made]
