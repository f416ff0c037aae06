"""Copy in, launch, copy out: every step of a kernel's host side, one after the other.

The starting point: memory on the device, two vectors copied there, the kernel, one vector copied
back. 8·n bytes go in and 4·n come out, over a bus that is tens of times slower than the device's
memory: the time line is copies, with the kernel a sliver between them.

The host's arrays are pageable: the operating system may move them, so no copy engine may read them.
The driver copies each piece into a pinned buffer of its own first, and the host's processor is part
of every transfer.

A block has at most 1024 threads. A launch with 5,000, as beginners write it for 50,000 elements,
is refused before anything runs, here and by CUDA; unchecked, it leaves garbage in c.
Limited by the copies. `managed` does not ask for any.
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
        flow=flow,
    ),
)
