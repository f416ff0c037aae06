"""A plan: how a product on a mesh runs, and what that takes by prediction."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from gemmlab.core import figures
from gemmlab.distributed import placements
from gemmlab.distributed.links import Link, Machine
from gemmlab.distributed.placements import Placements
from gemmlab.errors import ShapeError


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
        m, n, k, batch = sizes(*self.shapes)
        return 2 * m * n * k * batch / self.total if self.total else 0.0

    @property
    def efficiency(self) -> float:
        """The speed relative to as many times one GPU's on the whole product."""
        alone = self.machine.product(*sizes(*self.shapes))
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


def sizes(a: Sequence[int], b: Sequence[int]) -> tuple[int, int, int, int]:
    """m, n, k and the number of matrices of a product of stacks."""
    stack = itertools.zip_longest(reversed(a[:-2]), reversed(b[:-2]), fillvalue=1)
    # Shards of an axis that is cut in both have equal sizes; else one is 1.
    return a[-2], b[-1], a[-1], math.prod(max(x, y) for x, y in stack)


def _in_pieces(overlap: Overlap) -> str:
    pieces = f"{overlap.pieces} piece{'s' * (overlap.pieces > 1)}"
    verb = "leave as they are computed" if overlap.what == "c" else "multiply as they arrive"
    kind = "float16 parts" if overlap.parts else "float32"
    along = overlap.axis + ", turned first" * overlap.turned
    return f"{overlap.what} overlaps: {pieces} of each process along {along}, of {kind}, {verb}"


def _described(link: Link) -> str:
    rate = f"{figures.scaled(link.rate)}B/s into each"
    return f"{figures.seconds(link.start)} + bytes / ({rate}); {link.source}"
