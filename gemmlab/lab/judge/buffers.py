"""Device memory laid out so that a kernel cannot misbehave unseen.

    | guard | data | guard |

Guards and the output start as signalling NaNs: loaded by mistake they spoil the result, and a
store that was never made, or made next to the output, shows bit for bit. An accumulator starts as
zeros, which is its contract.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gemmlab.devices.device import Buffer, Device, Span
from gemmlab.problems.problem import WORKSPACE, Case, Parameter, Problem

GUARD_BYTES = 4096  # a multiple of 256, so that data stays as aligned as the allocation
# Words that fill memory.
GUARD = 0x7FA5A5A5
ZEROS = 0
POISON = 0x7F8DEAD1

SPOILT = 8  # elements


def filled(word: int, nbytes: int) -> np.ndarray:
    """`nbytes` bytes of one 32-bit word over and over."""
    return np.full(-(-nbytes // 4), word, np.uint32).view(np.uint8)[:nbytes]


def spoilt(result: np.ndarray, seed: int) -> np.ndarray:
    """A result as bytes, with a few elements replaced at random places: a kernel that looks whether
    its work is done already, and so skips it, leaves some of them. Few, because one that looks at
    samples of each tile would come upon many."""
    image = result.copy()
    rng = np.random.default_rng([seed, image.size])
    hit = rng.integers(0, image.size, SPOILT)
    image[hit] = image[hit] * 2 + 12345
    return image.view(np.uint8)


class Held(NamedTuple):
    """What a guarded buffer holds after a launch."""

    data: np.ndarray  # bytes
    before: int = 0  # bytes changed in the guard before it
    after: int = 0


@dataclass(frozen=True)
class Guarded:
    """One guarded buffer; `image` is the data it started with, as bytes."""

    buffer: Buffer
    image: np.ndarray

    @classmethod
    def place(cls, device: Device, image: np.ndarray) -> Guarded:
        guarded = cls(device.allocate(image.nbytes + 2 * GUARD_BYTES), image)
        guarded.restore()
        return guarded

    def restore(self) -> None:
        """Write guards and data as they were at the start."""
        guard = filled(GUARD, GUARD_BYTES)
        self.buffer.write(np.concatenate([guard, self.image, guard]))

    @property
    def span(self) -> Span:
        return Span(self.buffer, GUARD_BYTES, self.image.nbytes)

    def read(self) -> Held:
        held = self.buffer.read()
        guard = filled(GUARD, GUARD_BYTES)
        before, data, after = np.split(held, [GUARD_BYTES, GUARD_BYTES + self.image.nbytes])
        changed = (int(np.count_nonzero(part != guard)) for part in (before, after))
        return Held(data, *changed)


def first_image(parameter: Parameter, case: Case) -> np.ndarray:
    """What an input or output holds before the launch, as bytes."""
    if parameter.kind == "input":
        return np.ascontiguousarray(case.buffers[parameter.name]).view(np.uint8)
    start = POISON if parameter.kind == "output" else ZEROS
    return filled(start, case.output_size * np.dtype(case.output_dtype).itemsize)


class Stage:
    """A case in device memory, ready to launch: `args` in the order of the problem's C ABI.

    Behind them comes a workspace of that many bytes, zero, where the kernel takes one.
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
            self._place(device, parameter.name, first_image(parameter, case))
        if workspace is not None:
            self._place(device, WORKSPACE.name, filled(ZEROS, workspace))

    def _place(self, device: Device, name: str, image: np.ndarray) -> None:
        self.guarded[name] = Guarded.place(device, image)
        self.args.append(self.guarded[name].span)

    def read(self) -> dict[str, Held]:
        """What all of its buffers hold now, by name."""
        return {name: guarded.read() for name, guarded in self.guarded.items()}

    def restore(self, name: str | None = None) -> None:
        """Write the buffer of that parameter, or all of them, as they were at the start."""
        for guarded in self.guarded.values() if name is None else [self.guarded[name]]:
            guarded.restore()
