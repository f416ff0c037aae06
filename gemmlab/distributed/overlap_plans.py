"""Which transfer of a plan overlaps with the product, in which pieces, and how long both take.

One transfer can: an all-gather, whose pieces multiply as they arrive, or a reduce-scatter, whose
pieces leave as they are computed. An operand that is gathered along the depth can be turned first:
shards of the depth are exchanged for shards of another axis, of which products need no sum.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from operator import itemgetter

from gemmlab.distributed import placements
from gemmlab.distributed.links import ITEM, MEMORY
from gemmlab.distributed.plans import Overlap, Plan, Transfer, check_shapes

PIECES = (1, 2, 4)  # per process, among which overlapped transfers choose
_OVERLAPPED = {"all-gather", "reduce-scatter"}
_TURN = "all-to-all"
# From traces of kernels on two and four H100, in seconds: a barrier (6 µs are its kernel, the rest
# from one stream to the next); between copies; from one product to the next one, which adds to it.
_BARRIER, _COPY, _SUM = 16e-6, 3e-6, 8e-6
SURE = 0.95  # of the time without overlap; predictions are not exact enough for smaller gains


def overlapped(found: Plan, overlap: bool | None) -> Plan:
    """The plan with the transfer overlapped that gains most; as it is if none gains.

    More pieces have to gain as surely as overlap does.
    """
    if overlap is False:
        return found
    best, fewest = found, 0
    ways = [(one.overlap.pieces, one) for one in overlapping(found) if one.overlap]
    for pieces, candidate in sorted(ways, key=itemgetter(0)):
        forced = overlap is True and best is found
        if forced or candidate.total < best.total * (SURE if pieces > fewest else 1):
            best, fewest = candidate, pieces
    return best


def plain(found: Plan) -> Plan:
    """The same way without overlap, however the plan chose."""
    if found.overlap is None:
        return found
    way = found.overlap
    memory = found.memory - _shared_memory(found, way)
    turn = way.what, _TURN, way.dimension
    moves = tuple(x for x in found.transfers if (x.what, x.kind, x.dimension) != turn)
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
    if way.turned:  # each process receives the part of its own piece that it lacks
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
        sums = max(count - 2, 1)  # my product adds one more if there is
        adding = 3 * sums * move.size / (count - 1) / MEMORY
        return max(left + link.start, steps * piece) + adding
    if way.turned:
        return _after_turn(found, move, way)
    adding, start = 0.0, link.start
    if way.axis == "k":
        adding = machine.adding(m, n, batch) + (_SUM if machine.operations is None else 0.0)
    if _pulls(found, way):  # my shard is copied first
        start, travel = start + 2 * move.size / (count - 1) / MEMORY, travel + _COPY
    if way.parts:  # and packed, as the other operand is
        m, n, k, _ = found.local
        start += pieces * machine.packing(*sizes, way.what)
        start += machine.packing(m, n, k, {"a": "b", "b": "a"}[way.what])
        piece = machine.product(*sizes, packed="ab")
    own = start if _pulls(found, way) else 0.0  # products start after the barrier
    done = own + pieces * piece + (pieces - 1) * adding
    for i in range(1, steps - pieces + 1):
        done = max(done, start + i * travel) + piece + adding
    return done


def _after_turn(found: Plan, move: Transfer, way: Overlap) -> float:
    """Seconds of an all-to-all in pieces, of which each is packed, and of what `_together` has.

    The links are used by one copy after the other: see `pulling`. So is the GPU by barriers,
    packing and products, of which two run at once if they are small; a product that has started
    ends before the others go on.
    """
    machine, count, pieces = found.machine, found.mesh[way.dimension], way.pieces
    link, sizes = machine.pieces(found.mesh, way.dimension), _piece(found, way)
    size = move.size / ((count - 1) * pieces)
    travel = _COPY + size / link.rate
    turn = (count - 1) * (_COPY + size / count / link.rate)
    piece = machine.product(*sizes, packed="ab")
    m, n, k = sizes
    two = (2 * m, n, k) if way.axis == "m" else (m, 2 * n, k)
    busy = min(machine.product(*two, packed="ab") / 2, piece)
    packing = machine.packing(*sizes, way.what)
    gpu = machine.packing(*sizes, {"a": "b", "b": "a"}[way.what])  # while blocks travel
    sent = lane = turn  # when the blocks of a piece are there; when the links are free
    mine, arrivals = 0, list[float]()  # own pieces that are packed, but not multiplied
    for j in range(pieces):
        if sent > gpu:
            gpu, mine = gpu + mine * busy, 0
        gpu = max(gpu, sent) + _BARRIER
        if j + 1 < pieces:
            sent = lane = lane + turn
        if j:
            lane = _gather(arrivals, max(lane, gpu), travel, count)
        gpu, mine = gpu + packing, mine + 1
    gpu += _BARRIER
    _gather(arrivals, max(lane, gpu), travel, count)
    gpu += mine * busy
    for ready in arrivals:
        gpu = max(gpu, ready) + busy
    return gpu + piece - busy


def _gather(arrivals: list[float], start: float, travel: float, count: int) -> float:
    """Add when pieces of the other processes arrive; return when the links are free again."""
    arrivals += [start + i * travel for i in range(1, count)]
    return arrivals[-1]
