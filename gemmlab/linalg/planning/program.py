"""All launches of one product, in order, for a GPU or the emulator. Arithmetic alone.

| launch               | by name | by default | large | returns at once unless … |
|----------------------|---------|------------|-------|--------------------------|
| pack a, pack b       | yes     | yes        | yes   |                          |
| multiply             | yes     | yes        | yes   | … few vectors are wide   |
| finish, if k ≥ 4096  | yes     | yes        | yes   | … some sums are doubtful |
| repack both          |         |            | yes   | … many are wide          |
| multiply in bfloat16 |         |            | yes   | … many are wide          |
| finish, if k ≥ 4096  |         |            | yes   | … some sums are doubtful |

The GPU decides which launches return at once, so the host never waits for it. Packing counts the
elements at risk, and the vectors with many of them, which are wide. The counts are zero when a
product begins; the last launch that multiplies reports and clears them. Doubtful elements of C, and
those of rows and columns that are not finite, are computed again in float32, by the block that
holds them or, in deep products, by all blocks of `finish`. By default, `multiply` computes all of C
in TF32, without packing, if many vectors are wide (`tiers.TOLERATED`). Only in large products
(`tiers.fallback_of`) it returns at once, and they run again in bfloat16.

Products without packing take one or two launches (`planning.direct`, `planning.fma`), those with
one packed operand two to four (`planning.streamed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from gemmlab.kernels.common import ceil_div
from gemmlab.kernels.gemm.sm90.config import NO_LIMIT, SCHEMES, WIDE_COUNT, TileConfig
from gemmlab.linalg.arch import DEFAULT, Architecture
from gemmlab.linalg.planning import direct, fma, gemv, plan, streamed
from gemmlab.linalg.planning.again import again
from gemmlab.linalg.planning.formulas import least, most
from gemmlab.linalg.planning.launch import (
    Address,
    PlannedLaunch,
    Value,
    WorkspaceAddresses,
)
from gemmlab.linalg.planning.packed import Packed
from gemmlab.linalg.planning.plan import Added, Reporting
from gemmlab.linalg.planning.tiers import TOLERATED, Choice
from gemmlab.linalg.planning.times import DIRECT, ROUTED
from gemmlab.linalg.shapes import Operand, Stack

NAMES = ("a", "b", "c", "d")  # of the caller's arrays
_BLOCK = (256, 1, 1)  # threads of `repack`
_BLOCKS = 2  # most blocks of `repack` per multiprocessor and factor


class Source(int):
    """A placeholder for the address of a caller's array, which may differ between runs."""

    name: str
    index: int  # in NAMES

    def __new__(cls, name: str) -> Source:
        self = super().__new__(cls, 0)
        self.name, self.index = name, NAMES.index(name)
        return self


_SOURCES = {name: Source(name) for name in NAMES}


@dataclass(slots=True)
class Factor:
    """One factor of a product: the caller's array, and how it is packed.

    name: the caller's array, "a" or "b". operand: rows of the left factor, or columns of the right
    one. kept: the address of an operand packed earlier, which is not modified. arch: the
    architecture whose kernels pack it.
    """

    name: str
    operand: Operand
    scheme: str
    fallback: str | None = None
    kept: int | None = None
    arch: Architecture = DEFAULT
    _packed: dict[str, Packed] = field(default_factory=dict, init=False, repr=False, compare=False)

    def packed(self, scheme: str | None = None) -> Packed:
        name = scheme or self.scheme
        if name not in self._packed:
            x = self.operand
            sizes = (x.vectors, x.depth, x.k_major, x.batch)
            self._packed[name] = Packed(SCHEMES[name], *sizes, self.name, self.arch)
        return self._packed[name]

    @property
    def elements(self) -> int:
        return self.operand.vectors * self.operand.depth * self.operand.batch

    @property
    def workspace(self) -> int:
        """Bytes for the packed operand. `repack` overwrites it unless it is kept."""
        first = self.packed().nbytes if self.kept is None else 0
        if self.fallback not in SCHEMES:
            return first
        nbytes: int = most(first, self.packed(self.fallback).nbytes)
        return nbytes


Route = direct.Route | fma.Route | gemv.Route | streamed.Route


@dataclass(slots=True)
class Job:
    """A product on tensor cores: C = alpha·left·right + beta·D; rows of C are contiguous.

    d: the matrix D, of the shape of C, with any strides; None: C itself.
    """

    left: Factor
    right: Factor
    c: Stack
    choice: Choice
    alpha: float = 1.0
    beta: float = 0.0
    tile: TileConfig | None = None  # None: the one predicted to be fastest; likewise for `route`
    route: Route | None = None
    d: Stack | None = None
    _product: plan.Product = field(init=False, repr=False, compare=False)
    _routes: dict[int, Route] = field(default_factory=dict, init=False, repr=False, compare=False)
    _tiles: dict[tuple[str, int], TileConfig] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        c, depth = self.c, self.left.operand.depth
        self._product = plan.Product(
            c.rows, c.columns, depth, c.row_stride, c.batch, c.step, self.alpha, self.beta
        )

    @property
    def most_wide(self) -> int | None:
        """The largest number of vectors that are wide or not finite with which the first tier runs;
        None: any number."""
        if self.choice.fallback is None:
            return None
        return TOLERATED[self.choice.tier]

    @property
    def _checks(self) -> bool:
        """Whether doubtful elements are computed again; not in a tier requested by name."""
        return self.choice.fallback is not None

    def totals(self, sms: int) -> int:
        """Bytes of device memory for totals, or for slices of k."""
        if self.choice.routed:
            return self.sizes(sms)[2]
        tiles = self._packed_tiles(sms)
        return reduce(most, (plan.totals_bytes(self._product, tile, sms) for tile in tiles))

    def notes(self, sms: int) -> int:
        """Bytes of device memory for notes of doubtful sums."""
        tiles = self._packed_tiles(sms)
        return reduce(most, (plan.notes_bytes(self._product, x, self.left.arch) for x in tiles))

    def sizes(self, sms: int) -> tuple[int, int, int, int]:
        """Bytes of device memory for the left and the right factor, totals, and notes."""
        if self.choice.routed:
            found: tuple[int, int, int, int]
            operands = self.left.operand, self.right.operand
            found = self._ways.sizes(self._product, operands, self._route(sms), sms)
            return found
        return self.left.workspace, self.right.workspace, self.totals(sms), self.notes(sms)

    def tiles(self, sms: int) -> Sequence[TileConfig | Route]:
        """The tile of each tier that may run, or the route of a product without packing."""
        return [self._route(sms)] if self.choice.routed else self._packed_tiles(sms)

    def _packed_tiles(self, sms: int) -> list[TileConfig]:
        return [self._tile(scheme, sms) for scheme in self._schemes]

    def tile_choices(self) -> list[Sequence[TileConfig | Route]]:
        """For each of `tiles`: all choices."""
        if self.choice.routed:
            return [self._routes_of_tier]
        rest = self._product, self.left.arch
        return [plan.choices(*rest, SCHEMES[name], self._majors) for name in self._schemes]

    @property
    def _schemes(self) -> list[str]:
        schemes = (self.choice.tier, self.choice.fallback)
        return [scheme for scheme in schemes if scheme in SCHEMES]

    @property
    def _majors(self) -> tuple[bool, bool]:
        return self.left.operand.k_major, self.right.operand.k_major

    def with_tiles(self, other: Job, sms: int) -> Job:
        """Use the tiles of another product."""
        other.tiles(sms)
        self._tiles, self._routes = other._tiles, other._routes
        return self

    def launches(self, memory: WorkspaceAddresses, sms: int) -> tuple[PlannedLaunch, ...]:
        """All launches in order. `Source`s stand in for the caller's arrays."""
        if self.choice.routed:
            return self._direct(memory, sms)
        factors = self.left, self.right
        spaces = (memory.left, memory.right)
        # The packed operands with each factor's exponents, counts and first parts.
        bases = (
            memory.left if self.left.kept is None else self.left.kept,
            memory.right if self.right.kept is None else self.right.kept,
        )
        statuses = self._statuses(memory.report)
        result: list[PlannedLaunch] = []
        for factor, base, status in zip(factors, bases, statuses, strict=True):
            if factor.kept is None:
                source, beside = _SOURCES[factor.name], bool(result)
                result += plan.pack(factor.operand, factor.packed(), source, base, beside, status)
        wide, at = self.most_wide, (memory.totals, memory.notes)
        most = NO_LIMIT if wide is None else (wide + 1) * WIDE_COUNT - 1
        clear = (self.left.kept is None) + 2 * (self.right.kept is None)
        reporting = Reporting(memory.report, statuses, clear)
        tier, fallback = self.choice.tier, self.choice.fallback
        if fallback in SCHEMES:
            first, last = reporting._replace(last=False), reporting._replace(first=False)
            result += self._multiply(tier, bases, bases, first, sms, (0, most), at)
            result.append(self._repack(spaces, bases, statuses, most + 1, sms))
            risk = (most + 1, NO_LIMIT)
            result += self._multiply(fallback, spaces, bases, last, sms, risk, at)
        else:
            result += self._multiply(tier, bases, bases, reporting, sms, (0, most), at)
        return tuple(result)

    def _statuses(self, report: Address) -> tuple[Address, Address]:
        """Addresses of the statuses: of an operand packed for this product, in the report."""
        found = (
            report + offset if x.kept is None else x.kept + x.packed().offsets["status"]
            for x, offset in zip((self.left, self.right), plan.STATUSES, strict=True)
        )
        left, right = found
        return left, right

    def _direct(self, memory: WorkspaceAddresses, sms: int) -> tuple[PlannedLaunch, ...]:
        left, right = self.left, self.right
        addresses = _SOURCES[left.name], _SOURCES[right.name]
        factors = direct.Factors(left.operand, right.operand, *addresses)
        rest = self._added, self._route(sms), memory, self.most_wide, self.choice.arch, sms
        found: tuple[PlannedLaunch, ...]
        found = self._ways.launches(self._product, factors, _SOURCES["c"], *rest)
        return found

    @property
    def _ways(self) -> Any:
        """The module that plans the tier's routes."""
        return ROUTED[self.choice.tier]

    def _route(self, sms: int) -> Route:
        if self.route is not None:
            return self.route
        if sms not in self._routes:
            self._routes[sms] = self._routes_of_tier[self._route_index(sms)]
        return self._routes[sms]

    @property
    def _routes_of_tier(self) -> tuple[Route, ...]:
        found: tuple[Route, ...]
        found = self._ways.routes(self.choice.arch, self._majors, self._product.k)
        return found

    def _route_index(self, sms: int) -> int:
        x, choice = self._product, self.choice
        rest = self._majors, choice.arch, sms
        index: int = self._ways.least_seconds(x.m, x.n, x.k, x.batch, *rest)[0]
        return index

    @property
    def _added(self) -> Added | None:
        d = self.d
        return d and Added(_SOURCES["d"], d.row_stride, d.column_stride, d.step)

    def _tile(self, scheme: str, sms: int) -> TileConfig:
        if self.tile is not None:
            return self.tile
        key = scheme, sms
        if key not in self._tiles:
            rest = self.left.arch, SCHEMES[scheme], self._majors, sms
            _, self._tiles[key] = plan.fastest(self._product, *rest)
        return self._tiles[key]

    def _multiply(
        self,
        scheme: str,
        data: tuple[Address, Address],
        bases: tuple[Address, Address],
        reporting: Reporting,
        sms: int,
        risk: tuple[int, int],
        memory: tuple[Address, Address],
    ) -> tuple[PlannedLaunch, ...]:
        """Multiply the packed data at `data`, with the exponents and counts at `bases`.

        memory: for totals and for notes.
        """
        packed = (self.left.packed(scheme), self.right.packed(scheme))
        tile, product, arch = self._tile(scheme, sms), self._product, self.left.arch
        if self.tile is None and arch.again and SCHEMES[scheme].fallback:
            tile = plan.with_again(tile, again(arch, product.k, self._majors))
        sources = _SOURCES[self.left.name], _SOURCES[self.right.name], _SOURCES["c"]
        operands = self.left.operand, self.right.operand
        checks, instead = self._checks, self.choice.fallback == DIRECT
        rest = sms, risk, *memory, bases, checks, instead, self._added
        return plan.multiply(product, tile, operands, packed, sources, data, reporting, *rest)

    def _repack(
        self,
        spaces: tuple[Address, Address],
        bases: tuple[Address, Address],
        statuses: tuple[Address, Address],
        least_risk: int,
        sms: int,
    ) -> PlannedLaunch:
        """The launch that packs both factors again, for the fallback."""
        args: dict[str, Value] = {"least_risk": least_risk}
        blocks = batch = 1
        factors = self.left, self.right
        for side, factor, to, base, status in zip(
            "ab", factors, spaces, bases, statuses, strict=True
        ):
            operand, packed = factor.operand, factor.packed(factor.fallback)
            offsets = packed.offsets
            args[f"x_{side}"] = _SOURCES[factor.name]
            args[f"out_{side}"] = to + offsets["out"]
            args[f"unscale_{side}"] = base + offsets["unscale"]
            args[f"risk_{side}"] = base + offsets["risk"]
            args[f"status_{side}"] = status
            args[f"vectors_{side}"] = operand.vectors
            args[f"depth_{side}"] = operand.depth
            args[f"ldx_{side}"] = operand.ld
            args[f"batch_x_{side}"] = operand.batch_stride
            args[f"pitch_{side}"] = packed.pitch
            args[f"k_major_{side}"] = int(operand.k_major)
            args[f"batch_{side}"] = packed.batch
            blocks = most(blocks, least(packed.lines, ceil_div(_BLOCKS * sms, packed.batch)))
            batch = most(batch, packed.batch)
        config = plan.pack_config(packed.scheme.name)
        grid, arch = (blocks, batch, 2), packed.arch
        return PlannedLaunch("repack", config, grid, _BLOCK, args, arch=arch)


def placed(
    launches: Iterable[PlannedLaunch], arrays: Mapping[str, Address]
) -> tuple[PlannedLaunch, ...]:
    """The launches with the addresses of the caller's arrays, by name, instead of `Source`s."""

    def value(given: Value) -> Value:
        return arrays[given.name] if isinstance(given, Source) else given

    return tuple(
        replace(
            launch,
            args={name: value(given) for name, given in launch.args.items()},
            maps=tuple(replace(x, address=value(x.address)) for x in launch.maps),
        )
        for launch in launches
    )
