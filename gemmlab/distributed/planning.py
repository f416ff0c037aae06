"""Which way a product on a mesh takes, and what that moves and costs: without processes, PyTorch.

Along each dimension of the mesh, processes share the rows of the result, its columns, the depth,
the matrices of a stack, or nothing (`placements.ways`). Each combination needs its operands placed
in one way, and each change of placement is a transfer. The plan is the combination that moves
least, with what it takes to reduce a result that is left as a sum; if the result's placement is
given, the one that ends first.

One transfer can overlap with the product; see `overlap_plans`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from gemmlab.core import figures
from gemmlab.distributed import placements
from gemmlab.distributed.links import ITEM, Machine
from gemmlab.distributed.overlap_plans import SURE, overlapped
from gemmlab.distributed.placements import PARTIAL, REPLICATE, Placement, Placements, Way
from gemmlab.distributed.plans import Plan, Transfer, check_shapes, sizes


def plan(
    a: Sequence[int],
    b: Sequence[int],
    mesh: Sequence[int],
    at: tuple[Sequence[Placement], Sequence[Placement]],
    wanted: Sequence[Placement] | None,
    machine: Machine,
    overlap: bool | None = None,
) -> Plan:
    """Plan the product of stacks of matrices of these shapes and placements.

    `wanted` are the placements of the result; None leaves them to the plan. `overlap` None overlaps
    if that is predicted to be faster. Raises ShapeError and PlacementError.
    """
    result = check_shapes(a, b)
    at_a, at_b = (
        placements.checked(given, len(shape), mesh, name)
        for given, shape, name in zip(at, (a, b), "ab", strict=True)
    )
    at_c = None if wanted is None else placements.checked(wanted, len(result), mesh, "the result")
    return _plan(tuple(a), tuple(b), tuple(mesh), at_a, at_b, at_c, machine, overlap)


@lru_cache(1024)
def _plan(
    a: tuple[int, ...],
    b: tuple[int, ...],
    mesh: tuple[int, ...],
    at_a: Placements,
    at_b: Placements,
    wanted: Placements | None,
    machine: Machine,
    overlap: bool | None,
) -> Plan:
    found: dict[tuple[str, ...], Plan] = {}
    for chosen in itertools.product(placements.ways(a, b), repeat=len(mesh)):
        candidate = _candidate(a, b, mesh, at_a, at_b, wanted, machine, chosen)
        if candidate is not None:
            # Without a wanted placement, overlapping does not affect the choice.
            candidate = candidate if wanted is None else overlapped(candidate, overlap)
            found[candidate.ways] = candidate

    least = min(candidate.total for candidate in found.values())

    def rank(candidate: Plan) -> tuple[float, ...]:
        changed = sum(
            x != y for x, y in zip(at_a + at_b, candidate.at_a + candidate.at_b, strict=True)
        )
        if wanted is None:
            return candidate.communication + _pending(candidate), changed, candidate.product
        if candidate.total * SURE < least:  # nothing moves for a gain that is not sure
            return 0, candidate.communication + candidate.product, changed
        return 1, candidate.total, changed

    ranked = sorted(found.values(), key=rank)[:2]
    best, *others = [overlapped(plan, overlap) if wanted is None else plan for plan in ranked]
    return replace(best, reason=_reason(best, others))


def _pending(found: Plan) -> float:
    """Seconds that the result still takes before its elements can be read: its reduce-scatters."""
    result, links = check_shapes(*found.shapes), found.machine.links(found.mesh)
    size = ITEM * math.prod(placements.local_shape(result, found.c, found.mesh))
    return sum(
        link.seconds(size * (count - 1) / count)
        for link, count, p in zip(links, found.mesh, found.c, strict=True)
        if p == PARTIAL
    )


def _candidate(
    a: tuple[int, ...],
    b: tuple[int, ...],
    mesh: tuple[int, ...],
    at_a: Placements,
    at_b: Placements,
    wanted: Placements | None,
    machine: Machine,
    chosen: tuple[Way, ...],
) -> Plan | None:
    """The plan of one way for each dimension; None if a placement cannot be reached."""
    to_a, to_b, made = (tuple(getattr(way, name) for way in chosen) for name in "abc")
    c = wanted or made
    result = check_shapes(a, b)
    moves = [
        transfers(name, shape, source, target, mesh, machine)
        for name, shape, source, target in (
            ("a", a, at_a, to_a),
            ("b", b, at_b, to_b),
            ("c", result, made, c),
        )
    ]
    if any(found is None for found in moves):
        return None
    moved = tuple(itertools.chain.from_iterable(found for found in moves if found))
    shard_a, shard_b = (
        placements.local_shape(shape, at, mesh) for shape, at in ((a, to_a), (b, to_b))
    )
    local = sizes(shard_a, shard_b)
    communication = sum(move.seconds for move in moved)
    product = machine.product(*local)
    given = (placements.local_shape(s, p, mesh) for s, p in ((a, at_a), (b, at_b)))
    held = [
        *given,
        *(s for s, old, new in ((shard_a, at_a, to_a), (shard_b, at_b, to_b)) if old != new),
    ]
    held += [shard_a, shard_b]  # their parts: as many bytes as float32
    held.append(placements.local_shape(result, made, mesh))
    if c != made:
        held.append(placements.local_shape(result, c, mesh))
    return Plan(
        shapes=(a, b),
        mesh=mesh,
        machine=machine,
        ways=tuple(way.name for way in chosen),
        a=at_a,
        b=at_b,
        c=c,
        at_a=to_a,
        at_b=to_b,
        at_c=made,
        transfers=moved,
        local=local,
        communication=communication,
        product=product,
        overlap=None,
        total=max(communication + product, machine.call),
        memory=ITEM * sum(math.prod(shape) for shape in held),
        reason="",
    )


def transfers(
    what: str,
    shape: Sequence[int],
    source: Placements,
    target: Placements,
    mesh: Sequence[int],
    machine: Machine,
) -> list[Transfer] | None:
    """What a change of placements moves; None if a matrix would have to become a sum."""
    found, at, links = [], list(source), machine.links(mesh)
    for i, (old, new, count) in enumerate(zip(source, target, mesh, strict=True)):
        before = math.prod(placements.local_shape(shape, tuple(at), mesh))
        at[i] = new
        if old == new:
            continue
        if new == PARTIAL:
            return None
        after = math.prod(placements.local_shape(shape, tuple(at), mesh))
        share = (count - 1) / count
        if old == REPLICATE or count == 1:
            continue  # each process cuts its own shard out
        if old == PARTIAL:
            kind, items = (
                ("all-reduce", 2 * after) if new == REPLICATE else ("reduce-scatter", before)
            )
        else:
            kind, items = ("all-gather", after) if new == REPLICATE else ("all-to-all", before)
        size = round(ITEM * items * share)
        # Collectives move whole rows; PyTorch copies what is cut along another axis into place.
        cuts = [p for p in (old, new) if isinstance(p, int) and p > 0]
        copying = len(cuts) * machine.copying(items)
        found.append(Transfer(what, kind, i, size, links[i].seconds(size) + copying))
    return found


def _reason(best: Plan, others: Sequence[Plan]) -> str:
    moved = f"{figures.scaled(best.moved)}B into each" if best.moved else "nothing moves"
    if not others:
        return f"{moved}; there is no other way"
    other = others[0]
    name = " × ".join(dict.fromkeys(other.ways))
    left = _pending(other) - _pending(best)
    more = f", and {figures.seconds(left)} to add up the result later" if left > 0 else ""
    return (
        f"{moved}, {figures.seconds(best.total)}; next is {name}: "
        f"{figures.scaled(other.moved)}B, {figures.seconds(other.total)}{more}"
    )
