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
from gemmlab.problems.problem import Case, Parameter, Problem

GUARD_BYTES = 4096  # a multiple of 256, so that data stays as aligned as the allocation
GUARD = np.frombuffer(np.uint32(0x7FA5A5A5).tobytes(), np.uint8)
ZEROS = np.zeros(4, np.uint8)
POISON = np.frombuffer(np.uint32(0x7F8DEAD1).tobytes(), np.uint8)


def filled(pattern: np.ndarray, nbytes: int) -> np.ndarray:
    """A pattern of bytes, over and over."""
    return np.tile(pattern, -(-nbytes // pattern.size))[:nbytes]


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
        guard = filled(GUARD, GUARD_BYTES)
        data = np.concatenate([guard, image, guard])
        buffer = device.allocate(data.nbytes)
        buffer.write(data)
        return cls(buffer, image)

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
    """A case in device memory, ready to launch: `args` in the order of the problem's C ABI."""

    def __init__(self, device: Device, problem: Problem, case: Case) -> None:
        self.guarded: dict[str, Guarded] = {}
        self.args: list[Span | int | float] = []
        for parameter in problem.parameters:
            if parameter.kind == "scalar":
                self.args.append(case.scalars[parameter.name])
                continue
            guarded = Guarded.place(device, first_image(parameter, case))
            self.guarded[parameter.name] = guarded
            self.args.append(guarded.span)
