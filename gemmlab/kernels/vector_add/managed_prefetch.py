"""Unified memory, told in advance: pages move before they are touched, and nothing faults.

Against `managed`: three prefetches to the device before the kernel, one back to the host after it.
Each moves a whole vector as one transfer, as a copy would. Prefetching c moves no bytes, as nobody
has written it: it gives c its pages on the device, so that stores do not fault either.

The kernel is as fast as in `explicit` again, and the host's read finds its pages at home. Bytes by
faults vanish, bytes by prefetch appear: 8·n in and 4·n out once more.

Limited by the transfers, one direction at a time, the device idle meanwhile: prefetches, kernel and
prefetch lie end to end on one stream. `async-stream` lets them overlap.
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
    for vector in (m_a, m_b, m_c):
        stream.prefetch_in(vector)
    stream.launch(geometry(config, {"n": a.size}), m_a, m_b, m_c, a.size)
    stream.prefetch_out(m_c)
    stream.wait()
    c[:] = m_c.read()


RUNGS = (
    Rung(
        name="managed-prefetch",
        problem="vector-add",
        change="pages moved ahead of their first touch",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        flow=flow,
    ),
)
