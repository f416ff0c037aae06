"""Guarded device memory, which reveals illegal accesses.

    | guard | data | guard |

Guards and the output are filled with signaling NaNs. A kernel that loads them gets a wrong result;
missing stores and stores outside the output show in the bits. An accumulator starts as zeros, as
its contract requires.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gemmlab.devices.device import Buffer, Device, Span
from gemmlab.problems.problem import WORKSPACE, Case, Parameter, Problem

GUARD_BYTES = 4096  # a multiple of 256: preserves the alignment of the allocation
# 32-bit fill patterns
GUARD = 0x7FA5A5A5
ZEROS = 0
POISON = 0x7F8DEAD1
FINITE = 0x4B8DEAD1  # float32 1.9e7: initial output of a kernel that multiplies it by 0

CORRUPTED = 8  # elements


def filled(word: int, nbytes: int) -> np.ndarray:
    """Return uint8 (nbytes,): `word`, 32 bits, repeated."""
    return np.full(-(-nbytes // 4), word, np.uint32).view(np.uint8)[:nbytes]


def corrupted(result: np.ndarray, seed: int) -> np.ndarray:
    """Return `result`, 1-D, as uint8 with up to CORRUPTED random elements replaced.

    A kernel that skips work because the output looks complete leaves some of them in place. They
    are few, so that a kernel that checks samples of each tile misses them.
    """
    image = result.copy()
    rng = np.random.default_rng([seed, image.size])
    hit = rng.integers(0, image.size, CORRUPTED)
    image[hit] = image[hit] * 2 + 12345
    return image.view(np.uint8)


def must_write(problem: Problem) -> bool:
    """Return whether a kernel must write every output element: not if it adds to an accumulator."""
    return any(parameter.kind == "output" for parameter in problem.parameters)


class Contents(NamedTuple):
    """The contents of a guarded buffer after a launch."""

    data: np.ndarray  # uint8
    before: int = 0  # modified bytes in the guard before the data
    after: int = 0  # modified bytes in the guard after the data


@dataclass(frozen=True)
class Guarded:
    """A guarded buffer; `image`, uint8, is its initial data."""

    buffer: Buffer
    image: np.ndarray

    @classmethod
    def place(cls, device: Device, image: np.ndarray) -> Guarded:
        guarded = cls(device.allocate(image.nbytes + 2 * GUARD_BYTES), image)
        guarded.restore()
        return guarded

    def restore(self) -> None:
        """Write the guards and the initial data."""
        guard = filled(GUARD, GUARD_BYTES)
        self.buffer.write(np.concatenate([guard, self.image, guard]))

    @property
    def span(self) -> Span:
        return Span(self.buffer, GUARD_BYTES, self.image.nbytes)

    def read(self) -> Contents:
        whole = self.buffer.read()
        guard = filled(GUARD, GUARD_BYTES)
        before, data, after = np.split(whole, [GUARD_BYTES, GUARD_BYTES + self.image.nbytes])
        changed = (int(np.count_nonzero(part != guard)) for part in (before, after))
        return Contents(data, *changed)


def initial_image(parameter: Parameter, case: Case) -> np.ndarray:
    """Return the contents of an input or output before the launch, as uint8."""
    if parameter.kind == "input":
        return np.ascontiguousarray(case.buffers[parameter.name]).view(np.uint8)
    start = POISON if parameter.kind == "output" else ZEROS
    return filled(start, case.output_size * np.dtype(case.output_dtype).itemsize)


class CaseMemory:
    """The buffers of a case in device memory; `args` are the arguments of a launch.

    The arguments have the order of the problem's C ABI. If `workspace` is not None, a zeroed buffer
    of that many bytes follows them.
    """

    def __init__(
        self, device: Device, problem: Problem, case: Case, workspace: int | None = None
    ) -> None:
        self.problem, self.case = problem, case
        self.guarded: dict[str, Guarded] = {}
        self.args: list[Span | int | float] = []
        for parameter in problem.parameters:
            if parameter.kind == "scalar":
                self.args.append(case.scalars[parameter.name])
                continue
            self._place(device, parameter.name, initial_image(parameter, case))
        if workspace is not None:
            self._place(device, WORKSPACE.name, filled(ZEROS, workspace))

    def _place(self, device: Device, name: str, image: np.ndarray) -> None:
        self.guarded[name] = Guarded.place(device, image)
        self.args.append(self.guarded[name].span)

    def read(self) -> dict[str, Contents]:
        """Return the current contents of all buffers, by name."""
        return {name: guarded.read() for name, guarded in self.guarded.items()}

    def restore(self, name: str | None = None) -> None:
        """Restore the initial contents of the buffer `name`, or of all buffers."""
        for guarded in self.guarded.values() if name is None else [self.guarded[name]]:
            guarded.restore()
