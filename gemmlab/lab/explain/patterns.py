"""The access patterns of a warp's 32 lanes, and their cost.

Global memory is accessed in sectors of 32 bytes, shared memory in wavefronts, in which each of 32
banks serves one 4-byte word (CUDA C++ Programming Guide, "Device Memory Accesses" and "Shared
Memory"). The emulator's counting rules give the costs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gemmlab.emulator.counters import rules
from gemmlab.emulator.counters.rules import BANK_BYTES, SECTOR_BYTES
from gemmlab.emulator.trace import Requests, Site, Trace

_SHOWN = 10  # executions whose costs are listed
IRREGULAR = "different addresses"


@dataclass(frozen=True)
class Pattern:
    """One warp's request by a memory instruction, or by several with the same pattern."""

    space: str  # "global" or "shared"
    operation: str  # "load", "store" or "atomic"
    target: str  # name of the argument in global memory; "" for shared memory
    width: int  # bytes per lane
    instructions: int  # instructions of the program with this pattern
    source: str  # file:line of one of them
    addresses: tuple[
        int | None, ...
    ]  # by lane, bytes from the lowest 128-byte line; None: inactive
    cost: int  # sectors (global) or wavefronts (shared)
    least: int  # the minimum cost for as many bytes
    bytes_used: int  # distinct bytes requested
    sentence: str

    @property
    def lanes(self) -> int:
        return sum(address is not None for address in self.addresses)

    @property
    def bytes_moved(self) -> int:
        """Bytes of the sectors; for global memory."""
        return self.cost * SECTOR_BYTES


def patterns(trace: Trace, names: Mapping[int, str], warp: int = 0) -> tuple[Pattern, ...]:
    """Return the patterns of one warp of the first block, in program order.

    names: names of the kernel arguments by index. An instruction that is executed several times is
    represented by its most expensive execution.
    """
    found: dict[tuple[object, ...], Pattern] = {}
    for site in sorted(trace.sites.values(), key=lambda site: site.instruction):
        pattern = _pattern(trace, site, names, warp)
        if pattern is None:
            continue
        key = (site.space, site.operation, pattern.target, site.width, _shape(pattern))
        known = found.get(key, pattern)
        count = 1 if key not in found else known.instructions + 1
        found[key] = replace(max(known, pattern, key=lambda p: p.cost), instructions=count)
    return tuple(found.values())


def _shape(pattern: Pattern) -> object:
    """Return a key that is equal for patterns that differ only in their position or by the data."""
    asked = [address for address in pattern.addresses if address is not None]
    if _arrangement(np.array(asked), pattern.width).endswith(IRREGULAR):
        by_data = pattern.operation == "atomic"  # its addresses depend on the data
        return pattern.source, None if by_data else (len(set(asked)), pattern.cost)
    relative = tuple(None if a is None else a - asked[0] for a in pattern.addresses)
    return relative, pattern.cost


def _pattern(trace: Trace, site: Site, names: Mapping[int, str], warp: int) -> Pattern | None:
    executed = [r for r in site.executions if warp < len(r.active) and r.active[warp].any()]
    if not executed:
        return None
    costs = [_cost(site, request, warp) for request in executed]
    worst = max(range(len(costs)), key=lambda i: costs[i])
    request, (cost, least) = executed[worst], costs[worst]
    active = request.active[warp]
    asked = request.addresses[warp][active]
    base = int(asked.min()) // 128 * 128
    lanes = zip(request.addresses[warp].tolist(), active.tolist(), strict=True)
    used = np.unique(asked[:, None] + np.arange(site.width)).size
    words = _global_words if site.space == "global" else _shared_words
    sentence = words(asked, site.width, cost, least, used)
    return Pattern(
        site.space,
        site.operation,
        _argument(trace, int(asked[0]), names) if site.space == "global" else "",
        site.width,
        1,
        trace.program.function.instructions[site.instruction].source or "",
        tuple(address - base if on else None for address, on in lanes),
        cost,
        least,
        used,
        sentence
        + _changes("sectors" if site.space == "global" else "wavefronts", [c for c, _ in costs])
        + _changes("lanes", [int(request.active[warp].sum()) for request in executed]),
    )


def _argument(trace: Trace, address: int, names: Mapping[int, str]) -> str:
    for allocation in trace.allocations:
        if 0 <= address - allocation.address < allocation.nbytes:
            kind, _, number = allocation.name.partition(" ")
            return names[int(number)] if kind == "argument" else number
    raise AssertionError("the emulator rejects accesses outside allocations")


def _cost(site: Site, request: Requests, warp: int) -> tuple[int, int]:
    """Return the sectors or wavefronts of one execution, and the minimum for as many bytes."""
    addresses, active = request.addresses[warp : warp + 1], request.active[warp : warp + 1]
    if site.space == "global":
        asked = addresses[active][:, None] + np.arange(site.width)
        return rules.sectors(addresses, active), -(-np.unique(asked).size // SECTOR_BYTES)
    is_load = site.operation == "load"
    cost, least = rules.wavefronts(addresses, active, site.width, is_load)
    return int(cost[0]), int(least[0])


def _changes(what: str, numbers: Sequence[int]) -> str:
    """Return the end of a sentence: the numbers per execution; "" if all are equal."""
    if len(set(numbers)) == 1:
        return ""
    some = ", ".join(map(str, numbers[:_SHOWN]))
    return f"; {what} per execution: {some}{', …' if len(numbers) > _SHOWN else ''}"


# Words


def _global_words(asked: np.ndarray, width: int, cost: int, least: int, used: int) -> str:
    where = _arrangement(asked, width)
    if used == width and len(asked) > 1:
        return f"{where}: broadcast"
    share = used / (cost * SECTOR_BYTES)
    if cost == least:
        return f"{where}: coalesced" if share == 1 else where
    if share > 0.5 and cost == least + 1:
        return f"{where}, not aligned to 32 bytes: one sector more than {least}"
    return f"{where}: {share:.1%} of the bytes moved are used"


def _shared_words(asked: np.ndarray, width: int, cost: int, least: int, used: int) -> str:
    where = _arrangement(asked, width)
    if used == width and len(asked) > 1:
        return f"{where}: broadcast"
    steps = np.diff(asked)
    degree = 1
    if width == BANK_BYTES and len(steps) and (steps == steps[0]).all():
        stride = abs(int(steps[0])) // BANK_BYTES
        degree = math.gcd(stride, 32)
        if stride > 1:
            where = f"stride {stride} words: gcd({stride}, 32) = {degree}"
    if cost == least:
        few = f" among {len(asked)} lanes" if degree > 1 else ""
        return f"{where}, no conflict{few}"
    return f"{where}, {cost / least:.3g}-way conflict"


def _arrangement(asked: np.ndarray, width: int) -> str:
    """Describe the distances between the addresses of consecutive active lanes."""
    if len(asked) == 1:
        return "one lane"
    steps = np.diff(asked)
    if (steps == steps[0]).all():
        return f"lanes {_apart(int(steps[0]), width)}"
    for group in (2, 4, 8, 16):
        rows = asked.reshape(-1, group) if len(asked) % group == 0 else asked[None]
        inner, outer = np.diff(rows, axis=1), np.diff(rows[:, 0])
        if len(rows) > 1 and (inner == inner[0, 0]).all() and (outer == outer[0]).all():
            inside, between = _apart(int(inner[0, 0]), width), _apart(int(outer[0]), 0)
            return f"groups of {group} lanes {inside}, groups {between}"
    return f"{np.unique(asked).size} {IRREGULAR}"


def _apart(step: int, width: int) -> str:
    if step == 0:
        return "at one address"
    return "adjacent" if step == width else f"{abs(step):,} bytes apart"
