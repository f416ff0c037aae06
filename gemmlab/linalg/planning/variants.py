"""All kernels that products on an architecture may launch. Arithmetic alone, no GPU."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, product

from gemmlab.kernels.gemm.sm90.config import SCHEMES
from gemmlab.linalg.arch import Architecture
from gemmlab.linalg.planning import plan
from gemmlab.linalg.planning.again import again
from gemmlab.linalg.planning.launch import Code, WorkspaceAddresses
from gemmlab.linalg.planning.program import Factor, Job
from gemmlab.linalg.planning.tiers import Choice
from gemmlab.linalg.planning.times import DIRECT, LEAST_DEPTH, ROUTED, STREAMED
from gemmlab.linalg.shapes import Operand, Stack


def kernels(arch: Architecture) -> list[Code]:
    """Return what the code of each kernel depends on: each kernel once, in a fixed order.

    That is the scheme, which axis of each operand is contiguous, and k. The list comes from plans
    of products with k on both sides of each limit at which a plan changes, with every tile.
    """
    launches = (
        launch
        for job in chain(_jobs(arch), _direct_jobs(arch))
        for launch in job.launches(WorkspaceAddresses(0, 0, 0), arch.multiprocessors)
    )
    return list(dict.fromkeys(launch.code for launch in launches))


def _jobs(arch: Architecture) -> Iterator[Job]:
    orders = product((True, False), repeat=2)
    for scheme, depth, k_major in product(SCHEMES.values(), _depths(arch), orders):
        left, right = (
            Factor(name, Operand(1, depth, major, depth), scheme.name, scheme.fallback, arch=arch)
            for name, major in zip("ab", k_major, strict=True)
        )
        c = Stack(1, 1, 1, 1)
        yield Job(left, right, c, Choice(scheme.name, "", scheme.fallback, arch))
        for tile in plan.tiles(left.packed(), right.packed(), depth):
            if arch.again and scheme.fallback:
                tile = plan.with_again(tile, again(arch, depth, (k_major[0], k_major[1])))
            yield Job(left, right, c, Choice(scheme.name, "", arch=arch), tile=tile)


def _direct_jobs(arch: Architecture) -> Iterator[Job]:
    """A product for each route, at each depth from which other routes are taken."""
    shallow = sorted({tile.config.least_k for tile in arch.direct})
    depths = [(tier, k) for tier in ROUTED for k in shallow]
    if arch.streamed:  # an operand is packed
        depths += [(STREAMED, k) for k in _depths(arch) if k >= LEAST_DEPTH]
    for (tier, k), *k_major in product(depths, (True, False), (True, False)):
        for route in ROUTED[tier].routes(arch, (k_major[0], k_major[1]), k):
            left, right = (
                Factor(name, Operand(1, k, major, k), tier, arch=arch)
                for name, major in zip("ab", k_major, strict=True)
            )
            fallback = DIRECT if tier == STREAMED else None
            choice = Choice(tier, "", fallback, arch)
            yield Job(left, right, Stack(1, 1, 1, 1), choice, route=route)


def _depths(arch: Architecture) -> list[int]:
    """Return the last k before each limit, and the first one after it."""
    limits = {arch.short, arch.long, *(config.deepest for config in arch.clusters)}
    limits |= {config.least_k - 1 for config in arch.again}
    limits |= {scheme.short_k for scheme in SCHEMES.values() if scheme.short_k is not None}
    return sorted({depth for limit in limits for depth in (limit, limit + 1)})
