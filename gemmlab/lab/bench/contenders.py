"""What takes part in a measurement: something that does a problem's work in given memory.

Kernel or library, a contender is bound to the arguments of the problem's C ABI, and is launched,
judged and timed by the same code.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from gemmlab.devices.cuda import CudaDevice
from gemmlab.devices.device import Span
from gemmlab.hardware.occupancy import occupancy
from gemmlab.lab.bench.job import Kernel
from gemmlab.lab.bench.record import IEEE
from gemmlab.lab.judge.buffers import filled
from gemmlab.problems.problem import Problem

# Instructions and types that make a product cheaper, and perhaps less exact, than float32's.
_NOT_IEEE = re.compile(r"\b(w?mma|wgmma|tcgen05)\.|\.(f16|bf16|tf32|e4m3|e5m2)")
# What the compiler says of source lines: paths of one machine.
_LINE_INFORMATION = re.compile(r"^\s*\.(?:loc|file)\b.*\n?", re.MULTILINE)

Arguments = Sequence[Any]  # in the order of the problem's C ABI: Span of a pointer, int, float


def _nothing() -> None:
    pass


class Bound(NamedTuple):
    """A contender with its operands: `run` enqueues the work, which is what is timed.

    `deliver` brings the result to the output that the judge reads, where `run` leaves it elsewhere.
    """

    run: Callable[[], None]
    deliver: Callable[[], None] = _nothing


class Contender(ABC):
    """One kernel or library in one case."""

    name: str
    title: str
    precision: str | None = IEEE  # precision class, None where it is not known
    solves = True  # False: moves as many bytes, and is not judged
    synchronizes = False  # waits for the GPU itself, so that its launch cannot be timed apart
    details: dict[str, Any]  # what a reader needs to run it again

    @abstractmethod
    def bind(self, args: Arguments) -> Bound:
        """Make ready to launch on these operands, again and again."""


class KernelContender(Contender):
    """A kernel. What it accumulates into is zeroed inside the timed work, as any caller has to, and
    arrays of its own are filled again: they carry nothing from launch to launch."""

    def __init__(self, device: CudaDevice, problem: Problem, kernel: Kernel) -> None:
        self.name, self.title = kernel.name, kernel.title
        self.precision = kernel.precision or _precision(kernel.artifact.ptx)
        self.details = _launch_details(kernel)
        self._device, self._problem, self._kernel = device, problem, kernel

    def bind(self, args: Arguments) -> Bound:
        """Raises LaunchError past a limit."""
        grid, block, smem = self._kernel.geometry
        own = [] if self._kernel.workspace is None else [self._zeros(self._kernel.workspace)]
        chosen, filled_again = self._chosen(args)
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

    def _chosen(self, args: Arguments) -> tuple[Arguments, list[tuple[Span, Span]]]:
        """The arguments that the kernel takes, by name where it says which; of those that are
        arrays of its own, a copy of what they start as."""
        names = [parameter.name for parameter in self._problem.parameters]
        given = dict(zip(names, args, strict=True))
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
        span = Span(self._device.allocate(max(nbytes, 1)), 0, nbytes)  # drivers allocate no 0 bytes
        if nbytes:
            self._device.clear(span)
        return span


class CopyContender(Contender):
    """As many bytes as the problem must move, copied within device memory: half read, half written.

    Of a problem that only reads, half of the input.
    """

    name, title = "copy", "device-to-device copy of as many bytes"
    solves = False
    details = {"call": "cuMemcpyDtoDAsync"}

    def __init__(self, device: CudaDevice) -> None:
        self._device = device

    def bind(self, args: Arguments) -> Bound:
        spans = [arg for arg in args if isinstance(arg, Span)]
        nbytes = sum(span.nbytes for span in spans) // 2
        # The larger input, where that is enough.
        source = max(spans, key=lambda span: span.nbytes)
        if source.nbytes < nbytes:
            source = Span(self._device.allocate(nbytes), 0, nbytes)
        target = Span(self._device.allocate(nbytes), 0, nbytes)
        return Bound(lambda: self._device.copy(target, source))


def _precision(ptx: str) -> str | None:
    return None if _NOT_IEEE.search(ptx) else IEEE


def _launch_details(kernel: Kernel) -> dict[str, Any]:
    """What a reader needs to launch the same code: the hashes tell whether it is the same."""
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
    if taken is not None:
        details["resources"] = asdict(taken)
        threads = block[0] * block[1] * block[2]
        found = occupancy(artifact.arch, threads, taken.registers, taken.static_smem_bytes + smem)
        details["occupancy"] = found.fraction
    return details


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
