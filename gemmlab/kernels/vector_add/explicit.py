"""Copy in, launch, copy out: the host side of a kernel, step by step.

The baseline: allocate device memory, copy two vectors to it, run the kernel, copy one vector back.
8·n bytes go in and 4·n come out, over a bus tens of times slower than the device's memory. Copies
fill the timeline; the kernel is a sliver between them.

The host's arrays are pageable: the operating system may move them, so copy engines cannot access
them. The driver first copies each piece to a pinned buffer, which occupies the CPU during every
transfer.

A block has at most 1024 threads. A launch with 5,000, a common first attempt at 50,000 elements, is
rejected before anything runs, here and by CUDA; if the error goes unchecked, c holds garbage.
Limiter: the copies. `managed` requests none.
"""

import numpy as np

from gemmlab.kernels.flow import Host
from gemmlab.kernels.rung import Rung
from gemmlab.kernels.vector_add.add import Config, geometry, kernel


def flow(config: Config, host: Host, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    d_a, d_b, d_c = (host.device_like(vector) for vector in (a, b, c))

    stream = host.stream()
    stream.copy_in(d_a, a)
    stream.copy_in(d_b, b)
    stream.launch(geometry(config, {"n": a.size}), d_a, d_b, d_c, a.size)
    stream.copy_out(c, d_c)
    stream.wait()


RUNGS = (
    Rung(
        name="explicit",
        problem="vector-add",
        change="allocate, copy in, launch, copy out",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        choices={"threads": (64, 128, 256, 512, 1024)},
        flow=flow,
    ),
)
