"""What to improve first: what the counters say beyond the least that the kernel needs, ranked.

The costs are turns of the unit at fault, so that they can be compared: a wavefront of shared
memory, four sectors of the L1 (128 bytes), one branch for both its sides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from gemmlab.core.figures import digits, percent, scaled
from gemmlab.lab.metrics import (
    DIVERGENT_BRANCHES,
    GLOBAL_ATOMICS,
    GLOBAL_LOAD_REQUESTS,
    GLOBAL_LOAD_SECTORS,
    GLOBAL_STORE_REQUESTS,
    GLOBAL_STORE_SECTORS,
    PTX_INSTRUCTIONS,
    SHARED_ATOMIC_CONFLICTS,
    SHARED_EXCESSIVE,
    SHARED_LOAD_WAVEFRONTS,
    SHARED_WAVEFRONTS,
)
from gemmlab.lab.submission.steps import Judgement

SECTORS_PER_TURN = 4  # 128 bytes
LEAST_SECTORS = 4  # of a request of 32 lanes, 4 bytes each, side by side
NOTABLE = 0.02  # of all instructions; less is not worth a sentence
LOW_OCCUPANCY = 0.3
MANY_ATOMICS = 0.5  # per load; a block that combines its values first needs far fewer
TURNS_PER_BRANCH = 10  # instructions on the side that the others wait for, about


class Finding(NamedTuple):
    """A cost, in turns, and what it comes from."""

    turns: float
    sentence: str


def sentences(result: Judgement, ptx: str) -> list[str]:
    """Ranked, the costliest first; of the resources alone where nothing was counted."""
    found: list[Finding] = []
    if result.counters:
        least = NOTABLE * result.counters[PTX_INSTRUCTIONS]
        counted = [*_memory(result.counters, ptx), *_others(result.counters)]
        if result.problem == "gemm":
            counted += _reuse(result.counters)
        found = sorted((one for one in counted if one.turns > least), key=lambda one: -one.turns)
    return [one.sentence for one in found] + list(_resources(result.resources or {}))


def _memory(c: dict[str, int], ptx: str) -> Iterator[Finding]:
    """Global and shared memory."""
    for what, code, requests, sectors in (
        ("load", "ld", c[GLOBAL_LOAD_REQUESTS], c[GLOBAL_LOAD_SECTORS]),
        ("store", "st", c[GLOBAL_STORE_REQUESTS], c[GLOBAL_STORE_SECTORS]),
    ):
        least = LEAST_SECTORS * _widest(code, ptx)
        if sectors > least * requests:
            yield Finding(
                (sectors - least * requests) / SECTORS_PER_TURN,
                f"uncoalesced {what}s: {digits(sectors / requests)} sectors per request, where "
                f"{least} would do: let neighbouring threads {what} neighbouring words",
            )
    shared, atomic = c[SHARED_WAVEFRONTS], c[SHARED_ATOMIC_CONFLICTS]
    for what, repeats, remedy in (
        ("bank conflicts", c[SHARED_EXCESSIVE] - atomic, "pad or swizzle the tile"),
        ("atomics that meet", atomic, "give each warp values of its own, and add those up"),
    ):
        if repeats:
            yield Finding(
                repeats,
                f"{what}: {scaled(repeats)} of {scaled(shared)} shared-memory wavefronts "
                f"({percent(100 * repeats / shared)}) are repeats: {remedy}",
            )


def _others(c: dict[str, int]) -> Iterator[Finding]:
    local = sum(count for name, count in c.items() if re.search("t_sectors.*_mem_local_", name))
    if local:
        yield Finding(
            local / SECTORS_PER_TURN,
            f"local memory: {scaled(local)} sectors of spilled registers or indexed arrays: use "
            "fewer registers, or indices known at compile time",
        )
    if c[DIVERGENT_BRANCHES]:
        yield Finding(
            TURNS_PER_BRANCH * c[DIVERGENT_BRANCHES],
            f"divergence: {scaled(c[DIVERGENT_BRANCHES])} branches part a warp: let whole warps "
            "take the same side",
        )
    atomics, loads = sum(c.get(name, 0) for name in GLOBAL_ATOMICS), c[GLOBAL_LOAD_REQUESTS]
    if atomics > MANY_ATOMICS * loads:
        yield Finding(
            32 * atomics,  # lanes, one after the other at the worst
            f"{scaled(atomics)} atomic instructions on global memory, for {scaled(loads)} loads: "
            "combine values in a block first",
        )


def _reuse(c: dict[str, int]) -> Iterator[Finding]:
    """Of a product, whose every input is used again and again."""
    loads, instructions = c[GLOBAL_LOAD_REQUESTS], c[PTX_INSTRUCTIONS]
    if not c[SHARED_LOAD_WAVEFRONTS]:
        yield Finding(
            loads,
            f"no reuse: {percent(100 * loads / instructions)} of all instructions load from global "
            "memory: stage tiles in shared memory, and keep a tile of results in registers",
        )


def _widest(code: str, ptx: str) -> int:
    """Elements of 4 bytes that its widest access of global memory has per lane."""
    return max((int(n) for n in re.findall(rf"\b{code}\.global[\w.:]*\.v(\d)", ptx)), default=1)


def _resources(taken: dict[str, object]) -> Iterator[str]:
    spilled, fraction = taken.get("spill_bytes"), taken.get("fraction")
    if spilled:
        yield f"registers: {spilled} bytes per thread are spilled or on the stack"
    if isinstance(fraction, float) and fraction < LOW_OCCUPANCY:
        yield (
            f"occupancy: {percent(100 * fraction)} of the warps that fit, limited by "
            f"{taken['limiter']}: independent work in each thread must hide the latency"
        )
