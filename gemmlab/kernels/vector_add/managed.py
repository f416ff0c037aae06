"""Unified memory: the vectors have one address on both sides, and pages move when touched.

Against `explicit`: no copy is asked for. The host writes a and b; when the kernel reads them, each
access to a page that is not there is a fault, which stops the warp until the driver has moved the
page. c comes back the same way, when the host reads it.

The bytes are the same, 8·n in and 4·n out, only nobody asked for them: on the time line they are
inside the kernel and inside the host's first read. The program is shorter and may touch what it
likes; the kernel's time is no longer the kernel's.

Memory that is managed may be larger than the device's; here it is refused, because then pages leave
the device while the kernel still needs them. Limited by faults: they are handled a few pages at a
time, each a trip to the host. `managed-prefetch` says beforehand what will be touched.
"""

import numpy as np

from gemmlab.kernels.flow import Host
from gemmlab.kernels.rung import Rung
from gemmlab.kernels.vector_add.add import Config, geometry, kernel


def flow(config: Config, host: Host, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    m_a, m_b, m_c = (host.managed_like(vector) for vector in (a, b, c))
    m_a.write(a)
    m_b.write(b)

    stream = host.stream()
    stream.launch(geometry(config, {"n": a.size}), m_a, m_b, m_c, a.size)
    stream.wait()
    c[:] = m_c.read()


RUNGS = (
    Rung(
        name="managed",
        problem="vector-add",
        change="unified memory: pages move when touched",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        flow=flow,
    ),
)
