"""How matrices lie on a mesh, without PyTorch: names, local shapes, and the ways to multiply.

A placement per dimension of the mesh, as in DTensor: the axis that is cut into shards (a number),
`REPLICATE`, or `PARTIAL` (the sum over the processes is the matrix).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gemmlab.errors import PlacementError

REPLICATE, PARTIAL = "R", "P"
Placement = int | str
Placements = tuple[Placement, ...]


def text(placements: Sequence[Placement]) -> str:
    """Format as PyTorch does: S(0), R."""
    return ", ".join(f"S({p})" if isinstance(p, int) else p for p in placements)


def parse(words: str, rank: int, mesh: Sequence[int], name: str) -> Placements:
    """Read placements of a tensor with `rank` axes: "S(0),R", "S0,R" or "S(-1),P".

    Raises PlacementError.
    """
    found: list[Placement] = []
    for word in words.replace(" ", "").split(","):
        match = re.fullmatch(r"S\(?(-?\d+)\)?", word.upper())
        if match:
            found.append(int(match[1]))
        elif word.upper() in (REPLICATE, PARTIAL):
            found.append(word.upper())
        else:
            raise PlacementError(
                f"{name}: no placement {word!r}; it must be S(axis), R or P, one per dimension of "
                "the mesh, separated by commas"
            )
    return checked(found, rank, mesh, name)


def checked(given: Sequence[Placement], rank: int, mesh: Sequence[int], name: str) -> Placements:
    """Return the placements with axes counted from 0.

    Raises PlacementError unless there is one per dimension of the mesh, for an axis that exists.
    """
    if len(given) != len(mesh):
        raise PlacementError(
            f"{name} has {len(given)} placements ({text(given)}) on a mesh with {len(mesh)} "
            f"dimensions ({'×'.join(map(str, mesh))}); it needs {len(mesh)}"
        )
    for p in given:
        if isinstance(p, int) and not -rank <= p < rank:
            axes = ", ".join(f"S({axis})" for axis in range(rank))
            raise PlacementError(f"{name} has {rank} axes, so S({p}) cannot be; {axes}, R, P can")
    return tuple(p % rank if isinstance(p, int) else p for p in given)


def local_shape(
    shape: Sequence[int], placements: Placements, mesh: Sequence[int]
) -> tuple[int, ...]:
    """The shape of the largest shard."""
    sizes = list(shape)
    for p, count in zip(placements, mesh, strict=True):
        if isinstance(p, int):
            sizes[p] = -(-sizes[p] // count)
    return tuple(sizes)


@dataclass(frozen=True)
class Way:
    """A way to share a product along one dimension of the mesh."""

    name: str
    a: Placement
    b: Placement
    c: Placement  # of the result


def ways(a: Sequence[int], b: Sequence[int]) -> Iterator[Way]:
    """All ways to multiply stacks of shapes a and b without communication.

    A single row or column is not shared.
    """
    rank_a, rank_b = len(a), len(b)
    rank = max(rank_a, rank_b)
    if a[-2] != 1:
        yield Way("rows", rank_a - 2, REPLICATE, rank - 2)
    if b[-1] != 1:
        yield Way("columns", REPLICATE, rank_b - 1, rank - 1)
    yield Way("depth", rank_a - 1, rank_b - 2, PARTIAL)
    yield Way("everything", REPLICATE, REPLICATE, REPLICATE)
    yield Way("terms of a", PARTIAL, REPLICATE, PARTIAL)
    yield Way("terms of b", REPLICATE, PARTIAL, PARTIAL)
    for axis in range(rank - 2):
        of_a, of_b = (_stack_axis(shape, axis - rank + len(shape)) for shape in (a, b))
        if (of_a, of_b) != (REPLICATE, REPLICATE):
            yield Way("matrices of the stack", of_a, of_b, axis)


def broadcast(placements: Placements, rank: int, shape: Sequence[int]) -> Placements:
    """Where an operand of `shape` must be, to be added to a result with `rank` axes."""
    return tuple(
        _stack_axis(shape, p - rank + len(shape)) if isinstance(p, int) else p for p in placements
    )


def _stack_axis(shape: Sequence[int], axis: int) -> Placement:
    """The axis, or replicated if the shape lacks it or broadcasts along it."""
    return axis if axis >= 0 and shape[axis] > 1 else REPLICATE
