"""The model of a machine: how long communication and a product take.

A transfer of b bytes into each process takes start + b / rate seconds. `gemmlab distributed
measure` fits both numbers on the machine at hand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from gemmlab.errors import DTypeError, InputError
from gemmlab.linalg.arch import DEFAULT
from gemmlab.linalg.planning import times

ITEM = 4  # bytes of a float32
MEMORY = 2.5e12  # bytes that an H100 reads and writes per second
STORED = 6e12  # bytes of C per second, behind the products of an H200 at its sustained rate
Point = tuple[float, float]  # bytes into each process, and seconds


@dataclass(frozen=True)
class Link:
    """What connects processes.

    `start` is in seconds, `rate` in bytes per second into each process, `source` says where both
    numbers come from.
    """

    name: str
    start: float
    rate: float
    source: str

    def seconds(self, size: float) -> float:
        """Return the time in which `size` bytes arrive at each process."""
        return self.start + size / self.rate if size else 0.0


@dataclass(frozen=True)
class Machine:
    """Nodes of GPUs: the links inside a node and between nodes, and the speed of a product.

    `inside` and `between` are for collectives; `copies`, for pieces that GPUs of a node copy out of
    each other's memory; None: pieces are sent. `per_node` is the number of GPUs in a node.
    `operations` is the rate of products in operations per second; None uses the predicted times of
    `gemmlab.matmul` on an H200, but no more than `sustained` operations per second once operands
    are packed: under long load, GPUs lower their clocks.

    The host takes `call` seconds for a product of DTensors like one before. A product that the GPUs
    run in less time waits for the host.
    """

    name: str
    inside: Link
    between: Link
    copies: Link | None = None
    per_node: int = 8
    operations: float | None = None
    sustained: float = 222e12  # measured on an H200 at 16384³
    call: float = 0.0

    def links(self, mesh: Sequence[int]) -> tuple[Link, ...]:
        """Return the link along each dimension of a mesh whose last dimensions are in a node."""
        found: list[Link] = []
        together = 1
        for size in reversed(mesh):
            together *= size
            found.append(self.inside if together <= self.per_node else self.between)
        return tuple(reversed(found))

    def pieces(self, mesh: Sequence[int], dimension: int) -> Link:
        """Return the link of pieces along a dimension of a mesh."""
        link = self.links(mesh)[dimension]
        return self.copies if self.copies is not None and link is self.inside else link

    def product(self, m: int, n: int, k: int, batch: int = 1, packed: str = "") -> float:
        """Return the seconds of a product on one GPU; `packed` are operands that are packed."""
        if 0 in (m, n, k, batch):
            return 0.0
        work = 2 * m * n * k * batch
        if self.operations is not None:
            return work / self.operations
        alone, whole, plain = _on_h200(m, n, k, batch, packed)
        limited = work / self.sustained + ITEM * m * n * batch / STORED
        return min(whole + max(limited - alone, 0), plain)

    def packs(self, m: int, n: int, k: int) -> bool:
        """Whether a product multiplies packed parts of 4 bytes per element."""
        return self.operations is None and _on_h200(m, n, k, 1, "").is_packed

    def packing(self, m: int, n: int, k: int, what: str) -> float:
        """Return the seconds in which one operand of a product is packed."""
        return _on_h200(m, n, k, 1, "").whole - _on_h200(m, n, k, 1, what).whole

    def copying(self, items: int) -> float:
        """Return the seconds in which one GPU copies so many elements; on the host, no time."""
        return 2 * ITEM * items / MEMORY if self.operations is None else 0.0

    def adding(self, m: int, n: int, batch: int = 1) -> float:
        """Return the seconds in which a product also reads the sum that it adds to."""
        return ITEM * m * n * batch / STORED

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")


class _Seconds(NamedTuple):
    """Of a product of packed parts, without and with packing; and of one that packs nothing."""

    alone: float
    whole: float
    plain: float

    @property
    def is_packed(self) -> bool:
        return self.whole < self.plain


@lru_cache(4096)
def _on_h200(m: int, n: int, k: int, batch: int, packed: str) -> _Seconds:
    def case(names: str) -> times.Case:
        schemes = (times.FASTEST if "a" in names else None, times.FASTEST if "b" in names else None)
        return times.Case(m, n, k, batch, DEFAULT.capability, packed=schemes)

    alone, whole = times.fp16x3_time(case("ab")), times.fp16x3_time(case(packed))
    plain = math.inf if packed else min(times.sgemm_time(case("")), times.direct_time(case("")))
    return _Seconds(alone, whole, plain)


def load(path: str | Path) -> Machine:
    """Read a machine that `Machine.save` or `gemmlab distributed measure` wrote.

    Raises:
        InputError: the file has no machine.
    """
    try:
        return from_json(json.loads(Path(path).read_text()))
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path} is no model of links: {error}") from None


def from_json(data: dict[str, Any]) -> Machine:
    """Return the machine of `asdict`. Raises ValueError, TypeError and KeyError."""
    if set(data) != {field.name for field in fields(Machine)}:
        raise ValueError(f"it has the fields {', '.join(sorted(data)) or '(none)'}")
    given = {name: data[name] and Link(**data[name]) for name in ("inside", "between", "copies")}
    return Machine(**{**data, **given})


def fit(name: str, measured: Sequence[Point], source: str) -> Link:
    """Fit a link to pairs of bytes into each process and seconds, with the least relative error.

    Raises InputError for fewer than two sizes.
    """
    if len({size for size, _ in measured}) < 2:
        raise InputError(f"a link is fitted to two sizes or more, not to {len(measured)}")
    # Minimise Σ ((start + size·slope - seconds) / seconds)²: two normal equations.
    rows = [(1 / t, size / t) for size, t in measured]
    aa, ab, bb = (sum(r[i] * r[j] for r in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a1, b1 = (sum(r[i] for r in rows) for i in (0, 1))
    determinant = aa * bb - ab * ab
    start, slope = (a1 * bb - b1 * ab) / determinant, (b1 * aa - a1 * ab) / determinant
    if start < 0 or slope <= 0:  # noise: the line through the origin
        start, slope = 0.0, b1 / bb
    return Link(name, start, 1 / slope, source)


Times = Sequence[tuple[int, float]]


def _on_four(name: str, times: Times, source: str) -> Link:
    """The link by which each of 4 GPUs gets the other rows of n×n matrices, in pairs of n, s."""
    return fit(name, [(ITEM * n * n * 3 / 4, seconds) for n, seconds in times], source)


_NETWORK = Link("InfiniBand NDR", 30e-6, 45e9, "nominal: 400 Gb/s per GPU; not measured")
_COPIED = _on_four(
    "NVLink, copied",
    ((4096, 175e-6), (8192, 588e-6), (16384, 2.251e-3)),
    "fitted to copies on 4 H100",
)
# All-gathers by NCCL on 4 H100 with NVLink (NV18 between all); copies of all pieces from symmetric
# memory, with a barrier; and the host beside them.
H100 = Machine(
    "H100",
    _on_four(
        "NVLink",
        ((4096, 200e-6), (8192, 667e-6), (16384, 2.500e-3), (32768, 9.518e-3)),
        "fitted to all-gathers on 4 H100",
    ),
    _NETWORK,
    _COPIED,
    sustained=212e12,  # 224 at 16384³, 200 at 32768³
    call=200e-6,
)
# On 4 H200; the host as beside the H100.
ALL_GATHERS = ((4096, 0.23e-3), (8192, 0.68e-3), (16384, 2.6e-3), (32768, 9.5e-3))
H200 = replace(
    H100,
    name="H200",
    inside=_on_four("NVLink", ALL_GATHERS, "fitted to all-gathers on 4 H200"),
    copies=replace(_COPIED, source="assumed, as on H100"),
    sustained=222e12,  # at 16384³
)
_LOOPBACK = Link("loopback", 200e-6, 1e9, "assumed")
HOST = Machine("CPUs of one host, gloo", _LOOPBACK, _LOOPBACK, per_node=1 << 20, operations=5e10)

_chosen: Machine | None = None


def use(machine: Machine | None) -> None:
    """Plan the products of this process for a machine; None restores the built-in ones.

    All processes of a mesh need the same one.

    Raises:
        DTypeError: not a `Machine`.
    """
    global _chosen
    if machine is not None and not isinstance(machine, Machine):
        raise DTypeError(f"machine is a {type(machine).__name__}; it must be a Machine or None")
    _chosen = machine


def current(gpu: str) -> Machine:
    """The machine for meshes of GPUs of this name, or of CPUs if it is empty."""
    return _chosen or ((H100 if "H100" in gpu else H200) if gpu else HOST)
