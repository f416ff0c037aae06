"""Pinned memory, chunks and several streams: copies and kernels overlap.

Change from `managed-prefetch`: the vectors on the host are in pinned memory, which copy engines
access directly, and are divided into chunks. Streams take chunks in turn: copy a, copy b, add, copy
c out. While one stream computes or copies out, another copies in. The device has a copy engine for
each direction, so both can be busy.

The bytes are the same, in more and smaller transfers: four operations per chunk. From the second
chunk on, the 4·n bytes out overlap the 8·n bytes in; what remains is the time of the latter, and of
the last chunk's way out. Chunks consist of whole blocks, so no warp straddles a sector at a seam.

Smaller chunks leave less at the two ends, until issuing a copy takes longer than the copy itself.
Limiter: the bus, in one direction. The next step is not to cross it: keep data on the device.
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
        rule = f"chunk = {self.chunk} is not a positive multiple of threads = {self.threads}"
        common.require(whole, rule)
        common.require(1 <= self.streams <= 64, f"streams = {self.streams}, must be 1 to 64")


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
        choices={"chunk": (2**18, 2**20, 2**22), "streams": (2, 3, 4)},
        flow=flow,
    ),
)
