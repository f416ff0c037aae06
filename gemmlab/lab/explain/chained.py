"""The traced launch of a rung of several launches: its own kernel, after those that come before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gemmlab.compile.artifact import Artifact
from gemmlab.devices.device import Argument, Dim3, Launched, Span
from gemmlab.devices.emulated import EmulatedDevice
from gemmlab.emulator import Run, Trace
from gemmlab.kernels.rung import Rung
from gemmlab.lab.explain import counted
from gemmlab.linalg.runtime.executor import chained
from gemmlab.problems.problem import WORKSPACE, Problem

_LARGEST = {"m": 128, "n": 128, "k": 384}  # one block of C and a few tiles: seconds to emulate


class _Traced(EmulatedDevice):
    """A device that traces the launch of one kernel."""

    def __init__(self, artifact: Artifact, trace: Trace) -> None:
        super().__init__(artifact.arch)
        self.artifact, self.trace = artifact, trace
        self.run: Run

    def launch(
        self,
        artifact: Artifact,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Argument],
        dynamic_smem: int = 0,
        cluster: Dim3 | None = None,
    ) -> Launched:
        if artifact is not self.artifact:
            return super().launch(artifact, grid, block, args, dynamic_smem, cluster)
        self.run = self.traced(artifact, grid, block, args, dynamic_smem, cluster, self.trace)
        return Launched(counters=self.run.counters)


def launch(
    problem: Problem, rung: Rung, artifact: Artifact, shape: Mapping[str, int], trace: Trace
) -> counted.Launched:
    """Emulate all launches at a shape that is small enough, and trace that of the rung's kernel.

    The kernel reads its operands where the launches before have put them, in the workspace. Raises
    EmulationError.
    """
    assert rung.workspace is not None
    small = {axis: min(size, _LARGEST[axis]) for axis, size in shape.items()}
    case = problem.case(small, rung.layout, problem.families[0], seed=0)
    given = dict(case.buffers) | dict(case.scalars)
    given[case.output] = np.zeros(case.output_size, case.output_dtype)
    device = _Traced(artifact, trace)
    args: list[Argument] = []
    for parameter in problem.parameters:
        value = given[parameter.name]
        if not isinstance(value, np.ndarray):
            args.append(value)
            continue
        buffer = device.allocate(value.nbytes)
        buffer.data[:] = value.reshape(-1).view(np.uint8)
        args.append(Span(buffer, 0, value.nbytes))
    nbytes = rung.workspace(rung.config, small)
    args.append(Span(device.allocate(nbytes), 0, nbytes))
    chained(device, rung, small).launch(artifact, *rung.geometry(rung.config, small)[:2], args)
    kept = {name for name in given if name not in case.buffers}
    names = tuple(one.name if one.name in kept else WORKSPACE.name for one in artifact.parameters)
    return counted.Launched(case, names, artifact, trace, device.run)
