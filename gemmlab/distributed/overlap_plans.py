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

from gemmlab.distributed import placements
from gemmlab.distributed.links import ITEM
from gemmlab.distributed.plans import Overlap, Plan, Transfer, check_shapes

PIECES = (1, 2, 4)  # per process, among which overlapped transfers choose
_OVERLAPPED = {"all-gather", "reduce-scatter"}
_TURN = "all-to-all"
# On four H100, in seconds: a barrier; what a copy takes besides its bytes; what the product of a
# piece takes besides, and more if the next one adds to the same result.
_BARRIER, _COPY, _PIECE, _TAIL = 16e-6, 1e-6, 5e-6, 28e-6
SURE = 0.95  # of the time without overlap; predictions are not exact enough for smaller gains


def overlapped(found: Plan, overlap: bool | None) -> Plan:
    """The plan with the transfer overlapped that gains most; as it is if none gains."""
    if overlap is False:
        return found
    best = found
    for candidate in overlapping(found):
        forced = overlap is True and best.overlap is None
        if forced or candidate.total < best.total * (SURE if best is found else 1):
            best = candidate
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
    adding = 0.0
    if way.axis == "k":
        adding = machine.adding(m, n, batch) + (_TAIL if machine.operations is None else 0.0)
    if way.turned:
        return _after_turn(found, move, way)
    start, own = link.start, pieces * piece
    if way.parts:  # mine are packed before any travels; meanwhile, the other operand
        start += pieces * machine.packing(*sizes, way.what)
        m, n, k, _ = found.local
        other = machine.packing(m, n, k, {"a": "b", "b": "a"}[way.what])
        travel, piece = travel + _COPY, machine.product(*sizes, packed="ab")
        own = max(start, other) + pieces * piece
    done = own + (pieces - 1) * adding  # while the first of the others travel
    for i in range(1, steps - pieces + 1):
        done = max(done, start + i * travel) + piece + adding
    return done


def _after_turn(found: Plan, move: Transfer, way: Overlap) -> float:
    """Seconds of an all-to-all in pieces, of which each is packed, and of what `_together` has."""
    machine, count, pieces = found.machine, found.mesh[way.dimension], way.pieces
    link, sizes = machine.pieces(found.mesh, way.dimension), _piece(found, way)
    travel = move.size / ((count - 1) * pieces) / link.rate
    turn = travel * (count - 1) / count + (count - 1) * _COPY
    piece = machine.product(*sizes, packed="ab") + _PIECE
    packing = machine.packing(*sizes, way.what)
    other = {"a": "b", "b": "a"}[way.what]
    now, done = 0.0, machine.packing(*sizes, other)  # meanwhile
    for _ in range(pieces):
        now += turn + _BARRIER + packing
        done = max(done, now) + piece
    now += _BARRIER
    for i in range(1, (count - 1) * pieces + 1):
        done = max(done, now + i * (travel + _COPY)) + piece
    return done + _TAIL
