"""What the 32 lanes of a warp ask memory for together, and what that costs.

Global memory is served in sectors of 32 bytes, shared memory in wavefronts in which each of 32
banks gives one word of 4 bytes (CUDA C++ Programming Guide, "Device Memory Accesses" and "Shared
Memory"). The costs are those of the emulator's counting rules.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gemmlab.emulator.counters import rules
from gemmlab.emulator.counters.rules import BANK_BYTES, SECTOR_BYTES
from gemmlab.emulator.counters.trace import Requests, Site, Trace

_SHOWN = 10
IRREGULAR = "different addresses"


@dataclass(frozen=True)
class Pattern:
    """One warp's request by a memory instruction, or by several that do the same elsewhere."""

    space: str  # "global" or "shared"
    operation: str  # "load", "store" or "atomic"
    target: str  # the argument in global memory, "" in shared
    width: int  # bytes per lane
    instructions: int  # of the program that have this pattern
    source: str  # file:line of one of them
    addresses: tuple[int | None, ...]  # by lane, bytes from the line of 128 that the lowest is in
    cost: int  # sectors (global) or wavefronts (shared)
    least: int  # what as many bytes cost at best
    bytes_used: int  # different bytes that the lanes ask for
    sentence: str

    @property
    def lanes(self) -> int:
        return sum(address is not None for address in self.addresses)

    @property
    def bytes_moved(self) -> int:
        """Of global memory: whole sectors."""
        return self.cost * SECTOR_BYTES


def patterns(trace: Trace, names: Mapping[int, str], warp: int = 0) -> tuple[Pattern, ...]:
    """The patterns of one warp of the first block, in the order of the program.

    names: of kernel arguments, by their number. Of an instruction that is executed several times
    the dearest execution is taken.
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
    """The same for patterns that differ in where they are, or by chance."""
    asked = [address for address in pattern.addresses if address is not None]
    if _arrangement(np.array(asked), pattern.width).endswith(IRREGULAR):
        by_chance = pattern.operation == "atomic"  # where it goes depends on the data
        return pattern.source, None if by_chance else (len(set(asked)), pattern.cost)
    relative = tuple(None if a is None else a - asked[0] for a in pattern.addresses)
    return relative, pattern.cost


def _pattern(trace: Trace, site: Site, names: Mapping[int, str], warp: int) -> Pattern | None:
    executed = [r for r in site.executions if warp < len(r.active) and r.active[warp].any()]
    if not executed:
        return None
    costs = [_cost(site, request, warp) for request in executed]
    dearest = max(range(len(costs)), key=lambda i: costs[i])
    request, (cost, least) = executed[dearest], costs[dearest]
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
    raise AssertionError("the emulator lets no access past its allocations")


def _cost(site: Site, request: Requests, warp: int) -> tuple[int, int]:
    """Sectors or wavefronts of one execution, and the least for as many bytes."""
    addresses, active = request.addresses[warp : warp + 1], request.active[warp : warp + 1]
    if site.space == "global":
        asked = addresses[active][:, None] + np.arange(site.width)
        return rules.sectors(addresses, active), -(-np.unique(asked).size // SECTOR_BYTES)
    is_load = site.operation == "load"
    cost, least = rules.wavefronts(addresses, active, site.width, is_load)
    return int(cost[0]), int(least[0])


def _changes(what: str, numbers: Sequence[int]) -> str:
    """Numbers that are not the same in every execution, as the end of a sentence."""
    if len(set(numbers)) == 1:
        return ""
    some = ", ".join(map(str, numbers[:_SHOWN]))
    return f"; {what} in turn {some}{', …' if len(numbers) > _SHOWN else ''}"


# Words


def _global_words(asked: np.ndarray, width: int, cost: int, least: int, used: int) -> str:
    where = _arrangement(asked, width)
    if used == width and len(asked) > 1:
        return f"{where}: broadcast"
    share = used / (cost * SECTOR_BYTES)
    if cost == least:
        return f"{where}: coalesced" if share == 1 else where
    if share > 0.5 and cost == least + 1:
        return f"{where}, not from a 32-byte boundary on: a sector more than {least}"
    return f"{where}: {share:.1%} of the bytes that move are used"


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
    """Where active lanes go, one after the other."""
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
    return "side by side" if step == width else f"{abs(step):,} bytes apart"
