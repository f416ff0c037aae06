"""Unified memory: the vectors have one address on host and device, and pages migrate on access.

Change from `explicit`: there are no copy calls. The host writes a and b. When the kernel reads a
page that is not on the device, a page fault stops the warp until the driver has migrated the page.
c returns the same way when the host reads it.

The bytes are the same, 8·n in and 4·n out, but no call requested them. On the timeline they are
part of the kernel and of the host's first read. The program is shorter, but the kernel's time now
includes transfers.

Managed memory may exceed the device's memory. That is rejected here, because pages would leave the
device while the kernel still needs them. Limiter: page faults, handled a few pages at a time, each
with a round trip to the host. `managed-prefetch` announces the accesses.
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
        change="unified memory: pages migrate on first touch",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        choices={"threads": (64, 128, 256, 512, 1024)},
        flow=flow,
    ),
)
