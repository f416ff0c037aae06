"""Pinned memory, in chunks, over several streams: copies and kernels overlap.

Against `managed-prefetch`: the host's vectors lie in pinned memory, which copy engines read and
write by themselves, and are cut into chunks. A stream takes one chunk after the other in: copy a,
copy b, add, copy c out. What one stream computes or copies out, another covers with its copies in;
the device has an engine for each direction, so both can be full.

The bytes are the same, in more and smaller copies: four pieces of work for each chunk. From the
second chunk on, the 4·n bytes out cost no time of their own: what is left is the 8·n bytes in, and
the last chunk's way out. Chunks are whole blocks, so that no warp straddles a sector at their seam.

Smaller chunks leave less at the ends, until asking for a copy takes longer than the copy does.
Limited by the bus, in one direction. What is next is not to cross it: keep data on the device.
"""

from dataclasses import dataclass

import numpy as np

from gemmlab.kernels import common
from gemmlab.kernels.flow import Host
from gemmlab.kernels.rung import Rung
from gemmlab.kernels.vector_add import add
from gemmlab.kernels.vector_add.add import geometry, kernel


@dataclass(frozen=True)
class Config(add.Config):
    """Threads per block, elements per chunk, and the streams that share the chunks."""

    chunk: int = 2**20
    streams: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        whole = self.chunk > 0 and self.chunk % self.threads == 0
        rule = f"chunk = {self.chunk} is no positive multiple of threads = {self.threads}"
        common.require(whole, rule)
        common.require(self.streams > 0, f"streams = {self.streams}, must be positive")


def flow(config: Config, host: Host, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    p_a, p_b, p_c = (host.pinned_like(vector) for vector in (a, b, c))
    d_a, d_b, d_c = (host.device_like(vector) for vector in (a, b, c))
    p_a[:], p_b[:] = a, b

    streams = [host.stream() for _ in range(config.streams)]
    for number, start in enumerate(range(0, a.size, config.chunk)):
        part = slice(start, start + config.chunk)
        length = p_a[part].size
        stream = streams[number % config.streams]
        stream.copy_in(d_a[part], p_a[part])
        stream.copy_in(d_b[part], p_b[part])
        stream.launch(geometry(config, {"n": length}), d_a[part], d_b[part], d_c[part], length)
        stream.copy_out(p_c[part], d_c[part])
    for stream in streams:
        stream.wait()
    c[:] = p_c


RUNGS = (
    Rung(
        name="async-stream",
        problem="vector-add",
        change="pinned memory, chunks, overlapping streams",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        flow=flow,
    ),
)
