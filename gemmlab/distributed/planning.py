"""Which way a product on a mesh takes, and what that moves and costs: without processes, PyTorch.

Along each dimension of the mesh, processes share the rows of the result, its columns, the depth,
the matrices of a stack, or nothing (`placements.ways`). Each combination needs its operands placed
in one way, and each change of placement is a transfer. The plan is the combination that moves
least, with what it takes to reduce a result that is left as a sum; if the result's placement is
given, the one that ends first.

One transfer can overlap with the product: an all-gather, whose pieces multiply as they arrive, or a
reduce-scatter, whose pieces leave as they are computed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from gemmlab.core import figures
from gemmlab.distributed import placements
from gemmlab.distributed.links import ITEM, Link, Machine
from gemmlab.distributed.placements import PARTIAL, REPLICATE, Placement, Placements, Way
from gemmlab.errors import ShapeError

PIECES = (1, 2, 4)  # per process, among which overlapped transfers choose
_OVERLAPPED = {"all-gather", "reduce-scatter"}
_TURN = "all-to-all, pieces"


@dataclass(frozen=True)
class Transfer:
    """A change of placement of a, b or c along one dimension of the mesh."""

    what: str
    kind: str
    dimension: int
    size: int  # bytes that arrive at each process
    seconds: float


@dataclass(frozen=True)
class Overlap:
    """The transfer that overlaps with the product, in pieces along its axis m, n or k.

    `parts`: the owner of a piece packs it, and the float16 parts travel with their exponents, if
    the GPUs can read each other's memory. `turned`: the operand is cut along k; its shards are
    first exchanged for shards of the axis, an all-to-all. Their products have the whole depth: they
    need no sum, and one exponent per row or column.
    """

    what: str
    dimension: int
    axis: str
    pieces: int  # per process
    parts: bool = False
    turned: bool = False


@dataclass(frozen=True)
class Plan:
    """How a product on a mesh runs, and what that takes by prediction.

    `a`, `b` and `c` are the placements of the operands given and of the result; `at_a`, `at_b` and
    `at_c` those in which each process multiplies its shards. Times are in seconds, `memory` in
    bytes for each process.
    """

    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    mesh: tuple[int, ...]
    machine: Machine
    ways: tuple[str, ...]
    a: Placements
    b: Placements
    c: Placements
    at_a: Placements
    at_b: Placements
    at_c: Placements
    transfers: tuple[Transfer, ...]
    local: tuple[int, int, int, int]  # m, n, k and stack of the largest product of one process
    communication: float
    product: float
    overlap: Overlap | None
    total: float
    memory: int
    reason: str

    @property
    def moved(self) -> int:
        """Bytes that arrive at each process."""
        return sum(transfer.size for transfer in self.transfers)

    @property
    def speed(self) -> float:
        """Operations per second of all processes together."""
        m, n, k, batch = _sizes(*self.shapes)
        return 2 * m * n * k * batch / self.total if self.total else 0.0

    @property
    def efficiency(self) -> float:
        """The speed relative to as many times one GPU's on the whole product."""
        alone = self.machine.product(*_sizes(*self.shapes))
        return alone / (math.prod(self.mesh) * self.total) if self.total else 1.0

    def __str__(self) -> str:
        a, b = ("×".join(map(str, shape)) for shape in self.shapes)
        links = self.machine.links(self.mesh)
        m, n, k, batch = self.local
        each = f"{batch} × {m}×{n}×{k}" if batch > 1 else f"{m}×{n}×{k}"
        at = f"({placements.text(self.at_a)}) · ({placements.text(self.at_b)})"
        lines = [
            f"{a} · {b} on {'×'.join(map(str, self.mesh))} processes of {self.machine.name}",
            f"  a {placements.text(self.a)}; b {placements.text(self.b)}; "
            f"c {placements.text(self.c)}",
            f"  algorithm      {self.algorithm}: {self.reason}",
            f"  each process   {each}, from {at}; {figures.scaled(self.memory)}B of memory",
        ]
        for move in self.transfers:
            link = links[move.dimension]
            lines.append(
                f"  {move.kind:<14} of {move.what} along dimension {move.dimension} over "
                f"{link.name}: {figures.scaled(move.size)}B into each, "
                f"{figures.seconds(move.seconds)}"
            )
        overlapped = "nothing overlaps" if self.overlap is None else _in_pieces(self.overlap)
        lines += [
            f"  communication  {figures.seconds(self.communication)}",
            f"  product        {figures.seconds(self.product)}",
            f"  together       {figures.seconds(self.total)}, {overlapped}",
            f"  speed          {figures.scaled(self.speed)}FLOPS, "
            f"{100 * self.efficiency:.0f}% of {math.prod(self.mesh)} × one GPU",
        ]
        lines += [f"  {link.name}: {_described(link)}" for link in dict.fromkeys(links)]
        return "\n".join(lines)

    @property
    def algorithm(self) -> str:
        """The usual name of the way."""
        gathered = {move.what for move in self.transfers if move.kind == "all-gather"}
        if {"rows", "columns"} <= set(self.ways) and {"a", "b"} <= gathered:
            return "2-D SUMMA"
        name = " × ".join(dict.fromkeys(self.ways))
        return f"{name}, in a ring" if self.overlap else name


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


def check_shapes(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of the product of two stacks of matrices. Raises ShapeError."""
    names = f"a has shape {tuple(a)} and b {tuple(b)}"
    if len(a) < 2 or len(b) < 2:
        raise ShapeError(f"{names}; both must be matrices or stacks of matrices")
    if a[-1] != b[-2]:
        raise ShapeError(f"{names}: {a[-1]} columns of a do not meet {b[-2]} rows of b")
    stack = []
    for x, y in itertools.zip_longest(reversed(a[:-2]), reversed(b[:-2]), fillvalue=1):
        if x != y and 1 not in (x, y):
            raise ShapeError(f"{names}: stacks of {x} and {y} matrices do not broadcast")
        stack.append(y if x == 1 else x)
    return (*reversed(stack), a[-2], b[-1])


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
            candidate = candidate if wanted is None else _overlapped(candidate, overlap)
            found[candidate.ways] = candidate

    def rank(candidate: Plan) -> tuple[float, ...]:
        changed = sum(
            x != y for x, y in zip(at_a + at_b, candidate.at_a + candidate.at_b, strict=True)
        )
        if wanted is None:
            return candidate.communication + _pending(candidate), changed, candidate.product
        # Small products all take the time of the host.
        return candidate.total, candidate.communication + candidate.product, changed

    ranked = sorted(found.values(), key=rank)[:2]
    best, *others = [_overlapped(plan, overlap) if wanted is None else plan for plan in ranked]
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
    c, links = wanted or made, machine.links(mesh)
    result = check_shapes(a, b)
    moves = [
        transfers(name, shape, source, target, mesh, links)
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
    local = _sizes(shard_a, shard_b)
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
    links: Sequence[Link],
) -> list[Transfer] | None:
    """What a change of placements moves; None if a matrix would have to become a sum."""
    found, at = [], list(source)
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
        found.append(Transfer(what, kind, i, size, links[i].seconds(size)))
    return found


def _sizes(a: Sequence[int], b: Sequence[int]) -> tuple[int, int, int, int]:
    """m, n, k and the number of matrices of a product of stacks."""
    stack = itertools.zip_longest(reversed(a[:-2]), reversed(b[:-2]), fillvalue=1)
    # Shards of an axis that is cut in both have equal sizes; else one is 1.
    return a[-2], b[-1], a[-1], math.prod(max(x, y) for x, y in stack)


# -- overlapping


def _overlapped(found: Plan, overlap: bool | None) -> Plan:
    """The plan with the transfer overlapped that gains most; as it is if none gains."""
    if overlap is False:
        return found
    best = found
    for candidate in overlapping(found):
        forced = overlap is True and best.overlap is None
        if candidate.total < best.total or forced:
            best = candidate
    return best


def plain(found: Plan) -> Plan:
    """The same way without overlap, however the plan chose."""
    if found.overlap is None:
        return found
    memory = found.memory - _shared_memory(found, found.overlap)
    moves = tuple(move for move in found.transfers if move.kind != _TURN)
    communication = sum(move.seconds for move in moves)
    total = max(communication + found.product, found.machine.call)
    return replace(
        found,
        overlap=None,
        transfers=moves,
        communication=communication,
        total=total,
        memory=memory,
    )


def overlapping(found: Plan) -> Iterator[Plan]:
    """Yield a plan for each way in which a transfer of this one, without overlap, may overlap."""
    for move in found.transfers:
        axis = _axis(found, move)
        if axis is None:
            continue
        for pieces, parts in itertools.product(PIECES, (False, True)):
            way = Overlap(move.what, move.dimension, axis, pieces, parts)
            if not parts or _may_pack(found, way):
                yield _with(found, move, way)
            if parts and axis == "k":
                way = replace(way, axis={"a": "m", "b": "n"}[move.what], turned=True)
                if _may_pack(found, way):
                    yield _with(found, move, way)


def _with(found: Plan, move: Transfer, way: Overlap) -> Plan:
    memory = found.memory + _shared_memory(found, way)
    if way.turned:  # each process receives its own piece, but for what it has
        size = move.size // found.mesh[way.dimension]
        seconds = found.machine.pieces(found.mesh, way.dimension).seconds(size)
        turn = Transfer(move.what, _TURN, move.dimension, size, seconds)
        moves, communication = (turn, *found.transfers), found.communication + seconds
    else:
        moves, communication = found.transfers, found.communication
    total = max(
        found.communication - move.seconds + _together(found, move, way), found.machine.call
    )
    return replace(
        found,
        overlap=way,
        transfers=moves,
        communication=communication,
        total=total,
        memory=memory,
    )


def _shared_memory(found: Plan, way: Overlap) -> int:
    """Bytes that an overlap takes in addition: two halves of symmetric memory.

    Received parts are counted as those of the whole operand, which itself is then not there.
    """
    if not _pulls(found, way):
        return 0
    mesh = found.mesh
    if way.what == "c":  # the blocks for the others
        result = check_shapes(*found.shapes)
        block = ITEM * math.prod(placements.local_shape(result, found.at_c, mesh))
        count = mesh[way.dimension]
        return 2 * block * (count - 1) // count
    shape = found.shapes["ab".index(way.what)]
    before, after = (found.a, found.at_a) if way.what == "a" else (found.b, found.at_b)
    shard, whole = (
        ITEM * math.prod(placements.local_shape(shape, at, mesh)) for at in (before, after)
    )
    return 4 * shard - whole if way.parts else 2 * shard


def _pulls(found: Plan, way: Overlap) -> bool:
    """Whether pieces are copied out of the memory of other GPUs."""
    machine = found.machine
    link = machine.pieces(found.mesh, way.dimension)
    return machine.copies is not None and link is machine.copies


def _may_pack(found: Plan, way: Overlap) -> bool:
    """Whether packed parts of an operand can travel: between GPUs that read each other's memory."""
    machine = found.machine
    if way.what == "c" or not _pulls(found, way):
        return False
    sizes = _piece(found, way)
    return machine.packs(*sizes) and all(len(shape) == 2 for shape in found.shapes)


def _piece(found: Plan, way: Overlap) -> tuple[int, int, int]:
    """m, n and k of the product of a piece."""
    steps = found.mesh[way.dimension] * way.pieces
    m, n, k, _ = found.local
    m, n, k = (
        -(-x // steps) if way.axis == axis else x for axis, x in zip("mnk", (m, n, k), strict=True)
    )
    return m, n, k


def _axis(found: Plan, move: Transfer) -> str | None:
    """The axis of the product along which a transfer comes in pieces; None if it cannot overlap.

    It cannot if another dimension of the mesh cuts the same axis: pieces would not be contiguous.
    """
    if move.kind not in _OVERLAPPED:
        return None
    i = move.dimension
    cut, others, names = {
        "a": (found.a[i], found.at_a, "mk"),
        "b": (found.b[i], found.at_b, "kn"),
        "c": (found.c[i], found.at_c + found.c[:i] + found.c[i + 1 :], "mn"),
    }[move.what]
    rank = {"a": len(found.shapes[0]), "b": len(found.shapes[1])}.get(
        move.what, max(map(len, found.shapes))
    )
    if not isinstance(cut, int) or cut < rank - 2 or cut in others:
        return None
    return names[cut - rank]


def _together(found: Plan, move: Transfer, way: Overlap) -> float:
    """Seconds of a transfer and the product of its pieces."""
    machine, count, pieces = found.machine, found.mesh[way.dimension], way.pieces
    link = machine.pieces(found.mesh, way.dimension)
    m, n, _, batch = found.local
    steps, sizes = count * pieces, _piece(found, way)
    piece = machine.product(*sizes, batch)
    travel = move.size / (steps - pieces) / link.rate
    if way.what == "c":  # own pieces last; the sum of all processes' blocks at the end
        left = 0.0
        for i in range(1, steps - pieces + 1):
            left = max(left, i * piece) + travel
        shard = sizes[0] * sizes[1] * pieces
        done = max(left + link.start, steps * piece) + machine.adding(shard, count, batch)
        return done
    adding = machine.adding(m, n, batch) if way.axis == "k" else 0.0
    if way.turned:
        return _after_turn(found, move, way)
    start, own = link.start, pieces * piece
    if way.parts:  # mine are packed before any travels
        packing = pieces * machine.packing(*sizes, way.what)
        start, piece = start + packing, _of_parts(machine, way, sizes)
        own = packing + pieces * piece
    done = own + (pieces - 1) * adding  # while the first of the others travel
    for i in range(1, steps - pieces + 1):
        done = max(done, start + i * travel) + piece + adding
    return done


def _after_turn(found: Plan, move: Transfer, way: Overlap) -> float:
    """Seconds of an all-to-all in pieces, of which each is packed, and of what `_together` has."""
    machine, count, pieces = found.machine, found.mesh[way.dimension], way.pieces
    link, sizes = machine.pieces(found.mesh, way.dimension), _piece(found, way)
    travel = move.size / ((count - 1) * pieces) / link.rate
    piece, packing = _of_parts(machine, way, sizes), machine.packing(*sizes, way.what)
    other = {"a": "b", "b": "a"}[way.what]
    now, done = 0.0, machine.packing(*sizes, other)  # meanwhile
    for _ in range(pieces):
        now += link.start + travel * (count - 1) / count + packing
        done = max(done, now) + piece
    now += link.start
    for i in range(1, (count - 1) * pieces + 1):
        done = max(done, now + i * travel) + piece
    return done


def _of_parts(machine: Machine, way: Overlap, sizes: tuple[int, int, int]) -> float:
    """Seconds of the product of a piece that was packed; the other operand is packed once.

    Unless the pieces cut the depth: then so is the other operand.
    """
    return machine.product(*sizes, packed=way.what if way.axis == "k" else "ab")


# -- words


def _reason(best: Plan, others: Sequence[Plan]) -> str:
    moved = f"{figures.scaled(best.moved)}B into each" if best.moved else "nothing moves"
    if not others:
        return f"{moved}; there is no other way"
    other = others[0]
    name = " × ".join(dict.fromkeys(other.ways))
    return (
        f"{moved}, {figures.seconds(best.total)}; next is {name}: "
        f"{figures.scaled(other.moved)}B, {figures.seconds(other.total)}"
    )


def _in_pieces(overlap: Overlap) -> str:
    pieces = f"{overlap.pieces} piece{'s' * (overlap.pieces > 1)}"
    verb = "leave as they are computed" if overlap.what == "c" else "multiply as they arrive"
    kind = "float16 parts" if overlap.parts else "float32"
    along = overlap.axis + ", turned first" * overlap.turned
    return f"{overlap.what} overlaps: {pieces} of each process along {along}, of {kind}, {verb}"


def _described(link: Link) -> str:
    rate = f"{figures.scaled(link.rate)}B/s into each"
    return f"{figures.seconds(link.start)} + bytes / ({rate}); {link.source}"
