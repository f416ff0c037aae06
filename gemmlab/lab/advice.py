"""Advice on what to improve first, ranked by the counters' excess over an ideal kernel.

Costs are estimated in issue slots of the unit that limits the kernel, so that they are comparable:
one slot is a shared-memory wavefront, four L1 sectors (128 bytes), or an instruction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gemmlab.core.figures import digits, percent, scaled
from gemmlab.lab.metrics import (
    DIVERGENT_BRANCHES,
    GLOBAL_ATOMICS,
    GLOBAL_LOAD_REQUESTS,
    GLOBAL_LOAD_SECTORS,
    GLOBAL_STORE_REQUESTS,
    GLOBAL_STORE_SECTORS,
    MATRIX_PRODUCTS,
    PTX_INSTRUCTIONS,
    SHARED_ATOMIC_CONFLICTS,
    SHARED_EXCESSIVE,
    SHARED_LOAD_WAVEFRONTS,
    SHARED_WAVEFRONTS,
)

SECTORS_PER_SLOT = 4  # 128 bytes
LEAST_SECTORS = 4  # of a coalesced request of 32 lanes, 4 bytes each
NOTABLE = 0.02  # cost relative to all instructions below which there is no advice
LOW_OCCUPANCY = 0.3
MANY_ATOMICS = 0.5  # per load; combining values in a block first takes far fewer
SLOTS_PER_BRANCH = 10  # typical number of instructions on one side of a divergent branch


class Finding(NamedTuple):
    """A cost, in issue slots, and the advice on it."""

    slots: float
    sentence: str


def sentences(
    counters: Mapping[str, int] | None, resources: Mapping[str, object], problem: str, ptx: str
) -> list[str]:
    """Return advice, the costliest first, then on resources; only that without counters.

    problem: its name, "" if unknown. resources: `spill_bytes`, `fraction` (the occupancy) and its
    `limiter`; each may be missing.
    """
    found: list[Finding] = []
    if counters:
        least = NOTABLE * counters[PTX_INSTRUCTIONS]
        counted = [*_memory(counters, ptx), *_others(counters)]
        if problem == "gemm":
            counted += _reuse(counters)
        found = sorted((f for f in counted if f.slots > least), key=lambda f: -f.slots)
    return [finding.sentence for finding in found] + list(_resources(resources))


def _memory(c: Mapping[str, int], ptx: str) -> Iterator[Finding]:
    """Yield findings on global and shared memory; `c` are the counters by name."""
    for what, code, requests, sectors in (
        ("load", "ld", c[GLOBAL_LOAD_REQUESTS], c[GLOBAL_LOAD_SECTORS]),
        ("store", "st", c[GLOBAL_STORE_REQUESTS], c[GLOBAL_STORE_SECTORS]),
    ):
        least = LEAST_SECTORS * _widest(code, ptx)
        if sectors > least * requests:
            yield Finding(
                (sectors - least * requests) / SECTORS_PER_SLOT,
                f"uncoalesced {what}s: {digits(sectors / requests)} sectors per request instead of "
                f"{least}: let adjacent threads {what} adjacent words",
            )
    shared, atomic = c[SHARED_WAVEFRONTS], c[SHARED_ATOMIC_CONFLICTS]
    for what, repeats, remedy in (
        ("bank conflicts", c[SHARED_EXCESSIVE] - atomic, "pad or swizzle the tile"),
        ("atomic conflicts", atomic, "accumulate per warp, then add up the partial results"),
    ):
        if repeats:
            yield Finding(
                repeats,
                f"{what}: {scaled(repeats)} of {scaled(shared)} shared-memory wavefronts "
                f"({percent(100 * repeats / shared)}) are replays: {remedy}",
            )


def _others(c: Mapping[str, int]) -> Iterator[Finding]:
    local = sum(count for name, count in c.items() if re.search("t_sectors.*_mem_local_", name))
    if local:
        yield Finding(
            local / SECTORS_PER_SLOT,
            f"local memory: {scaled(local)} sectors of spilled registers or indexed arrays: use "
            "fewer registers, or compile-time indices",
        )
    if c[DIVERGENT_BRANCHES]:
        yield Finding(
            SLOTS_PER_BRANCH * c[DIVERGENT_BRANCHES],
            f"divergence: {scaled(c[DIVERGENT_BRANCHES])} divergent branches: let all threads of a "
            "warp take the same side",
        )
    atomics, loads = sum(c.get(name, 0) for name in GLOBAL_ATOMICS), c[GLOBAL_LOAD_REQUESTS]
    if atomics > MANY_ATOMICS * loads:
        yield Finding(
            32 * atomics,  # in the worst case, the lanes are serialized
            f"{scaled(atomics)} atomic instructions on global memory for {scaled(loads)} loads: "
            "combine values in a block first",
        )


def _reuse(c: Mapping[str, int]) -> Iterator[Finding]:
    """Yield findings on data reuse of a matrix product, which uses every input many times."""
    loads, instructions = c[GLOBAL_LOAD_REQUESTS], c[PTX_INSTRUCTIONS]
    if not c[SHARED_LOAD_WAVEFRONTS] and not c.get(MATRIX_PRODUCTS):
        yield Finding(
            loads,
            f"no reuse: {percent(100 * loads / instructions)} of all instructions load from global "
            "memory: stage tiles in shared memory, and keep a tile of results in registers",
        )


def _widest(code: str, ptx: str) -> int:
    """Return the 4-byte elements per lane of the widest global `code` instruction, ld or st.

    An asynchronous copy is a load.
    """
    found = [int(n) for n in re.findall(rf"\b{code}\.global[\w.:]{{0,60}}\.v(\d)", ptx)]
    if code == "ld":
        copies = r"\bcp\.async\.c[ag]\.shared[\w.:]{0,60} \[[^\]]{1,60}\], ?\[[^\]]{1,60}\], ?(\d+)"
        found += [int(nbytes) // 4 for nbytes in re.findall(copies, ptx)]
    return max(found, default=1)


def _resources(taken: Mapping[str, object]) -> Iterator[str]:
    spilled, fraction = taken.get("spill_bytes"), taken.get("fraction")
    if spilled:
        yield f"registers: {spilled} bytes of local memory per thread for spills and the stack"
    if isinstance(fraction, float) and fraction < LOW_OCCUPANCY:
        yield (
            f"occupancy: {percent(100 * fraction)} of the warps that an SM supports, limited by "
            f"{taken['limiter']}: independent work in each thread must hide the latency"
        )
