"""Contenders: the kernels and libraries that a measurement compares.

A contender is bound to the arguments of the problem's C interface. The same code launches, judges
and times all contenders.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np

from gemmlab.core.tensor_map import TensorMap
from gemmlab.devices.cuda import CudaDevice
from gemmlab.devices.device import Span
from gemmlab.hardware.occupancy import occupancy
from gemmlab.lab.bench.job import Kernel, Place
from gemmlab.lab.bench.record import IEEE
from gemmlab.lab.judge.buffers import filled
from gemmlab.problems.problem import WORKSPACE, Problem

# Line information contains paths of the machine that compiled the PTX.
_LINE_INFORMATION = re.compile(r"^\s*\.(?:loc|file)\b.*\n?", re.MULTILINE)

Arguments = Sequence[Any]  # in the order of the C interface: Span for a pointer, int, float


def _nothing() -> None:
    pass


class Bound(NamedTuple):
    """A contender with its operands.

    `run` enqueues the work; it is timed. `deliver` copies the result to the output that the judge
    reads, if `run` leaves it elsewhere; it is not timed.
    """

    run: Callable[[], None]
    deliver: Callable[[], None] = _nothing


class Contender(ABC):
    """One kernel or library in one case."""

    name: str
    title: str
    precision: str | None = IEEE  # precision class; None if unknown
    solves = True  # False: only moves as many bytes, and is not judged
    synchronizes = False  # waits for the GPU, so NVBench cannot use its blocking kernel
    details: dict[str, Any]  # what a reader needs to reproduce the run

    @abstractmethod
    def bind(self, args: Arguments) -> Bound:
        """Prepare repeated launches on these operands."""


class KernelContender(Contender):
    """A kernel.

    The timed work includes clearing its accumulators, as any caller must, and restoring the arrays
    that its directive declares, so that no data carries over between launches.
    """

    def __init__(self, device: CudaDevice, problem: Problem, kernel: Kernel) -> None:
        self.name, self.title = kernel.name, kernel.title
        self.precision = kernel.precision
        self.details = _launch_details(kernel)
        self._device, self._problem, self._kernel = device, problem, kernel

    def bind(self, args: Arguments) -> Bound:
        """Raises LaunchError if the launch exceeds a limit of the GPU."""
        grid, block, smem = self._kernel.geometry
        own = [] if self._kernel.workspace is None else [self._zeros(self._kernel.workspace)]
        chosen, filled_again = self._chosen(args)
        if self._kernel.calls:
            launch = self._all_calls(dict(zip(self._names, [*args, *own], strict=True)))
        else:
            launch = self._device.prepare(self._kernel.artifact, grid, block, [*chosen, *own], smem)
        sums = [
            arg
            for parameter, arg in zip(self._problem.parameters, args, strict=True)
            if parameter.kind == "accumulator"
        ]

        def run() -> None:
            for span in sums:
                self._device.clear(span)
            for target, source in filled_again:
                self._device.copy(target, source)
            launch()

        return Bound(run if sums or filled_again else launch)

    @property
    def _names(self) -> list[str]:
        """Names of the problem's arguments and of the workspace."""
        return [parameter.name for parameter in (*self._problem.parameters, WORKSPACE)]

    def _all_calls(self, given: Mapping[str, Any]) -> Callable[[], None]:
        """Prepare all launches; the returned function enqueues them in order."""
        launches = [
            self._device.prepare(
                *(call.artifact, call.grid, call.block),
                *([_located(arg, given) for arg in call.args], call.dynamic_smem, call.cluster),
            )
            for call in self._kernel.calls
        ]

        def run() -> None:
            for launch in launches:
                launch()

        return run

    def _chosen(self, args: Arguments) -> tuple[Arguments, list[tuple[Span, Span]]]:
        """Return the kernel's arguments, and (array, copy of its initial content) for each array
        that its directive declares."""
        given = dict(zip(self._names, args, strict=False))
        if self._kernel.output_word is not None:
            for parameter in self._problem.parameters:
                if parameter.kind == "output":
                    span = given[parameter.name]
                    span.buffer.write(filled(self._kernel.output_word, span.nbytes), span.offset)
        if self._kernel.args is None:
            return args, []
        chosen: list[Any] = []
        filled_again: list[tuple[Span, Span]] = []
        for arg in self._kernel.args:
            if isinstance(arg, np.ndarray):
                target, source = self._uploaded(arg), self._uploaded(arg)
                filled_again.append((target, source))
                chosen.append(target)
            else:
                chosen.append(given[arg] if isinstance(arg, str) else arg)
        return chosen, filled_again

    def _uploaded(self, array: np.ndarray) -> Span:
        span = Span(self._device.allocate(max(array.nbytes, 1)), 0, array.nbytes)
        span.buffer.write(array)
        return span

    def _zeros(self, nbytes: int) -> Span:
        # The driver rejects allocations of 0 bytes.
        span = Span(self._device.allocate(max(nbytes, 1)), 0, nbytes)
        if nbytes:
            self._device.clear(span)
        return span


class CopyContender(Contender):
    """A copy within device memory that moves as many bytes as the problem must: half of them read,
    half written. For a problem that mostly reads, it copies half of the input."""

    name, title = "copy", "device-to-device copy of as many bytes"
    solves = False
    details = {"call": "cuMemcpyDtoDAsync"}

    def __init__(self, device: CudaDevice) -> None:
        self._device = device

    def bind(self, args: Arguments) -> Bound:
        spans = [arg for arg in args if isinstance(arg, Span)]
        nbytes = sum(span.nbytes for span in spans) // 2
        # Read the largest operand if it is large enough.
        source = max(spans, key=lambda span: span.nbytes)
        if source.nbytes < nbytes:
            source = Span(self._device.allocate(nbytes), 0, nbytes)
        target = Span(self._device.allocate(nbytes), 0, nbytes)
        return Bound(lambda: self._device.copy(target, source))


def _located(arg: Any, given: Mapping[str, Any]) -> Any:
    """An argument of a planned launch with memory in place of Places."""
    if isinstance(arg, TensorMap):
        return replace(arg, array=_located(arg.array, given))
    return given[arg.name] + arg.offset if isinstance(arg, Place) else arg


def _launch_details(kernel: Kernel) -> dict[str, Any]:
    """Return what a reader needs to repeat the launch. The hashes identify the code."""
    artifact, (grid, block, smem) = kernel.artifact, kernel.geometry
    details: dict[str, Any] = {
        "entry": artifact.entry,
        "compiler": artifact.versions,
        "options": artifact.options,
        "ptx_sha256": _sha256(_LINE_INFORMATION.sub("", artifact.ptx).encode()),
        "cubin_sha256": artifact.cubin and _sha256(artifact.cubin),
        "launch": {"grid": list(grid), "block": list(block), "dynamic_smem_bytes": smem},
    }
    taken = artifact.resources
    if kernel.calls:
        details["launches"] = [
            {
                "entry": call.artifact.entry,
                "cubin_sha256": call.artifact.cubin and _sha256(call.artifact.cubin),
                "grid": list(call.grid),
                "block": list(call.block),
                "dynamic_smem_bytes": call.dynamic_smem,
            }
            for call in kernel.calls
        ]
    if taken is not None:
        details["resources"] = asdict(taken)
        threads = block[0] * block[1] * block[2]
        found = occupancy(artifact.arch, threads, taken.registers, taken.static_smem_bytes + smem)
        details["occupancy"] = found.fraction
    return details


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
