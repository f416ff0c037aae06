"""Unified memory with prefetching: pages migrate before they are accessed, without faults.

Change from `managed`: three prefetches to the device precede the kernel, one to the host follows
it. Each moves a whole vector in one transfer, as a copy would. Prefetching c moves no bytes, as no
page of it has been written. It places the pages on the device, so stores do not fault either.

The kernel is as fast as in `explicit` again, and the host's read finds its pages in place. Bytes
migrated by faults drop to zero; prefetches move 8·n in and 4·n out.

Limiter: the transfers, one direction at a time while the device idles. Prefetches and kernel run in
sequence on one stream. `async-stream` overlaps them.
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
        change="pages prefetched before their first use",
        kernel=kernel,
        config=Config(),
        geometry=geometry,
        choices={"threads": (64, 128, 256, 512, 1024)},
        flow=flow,
    ),
)
