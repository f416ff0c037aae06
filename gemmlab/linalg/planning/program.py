"""All launches of one product, in order, for a GPU or the emulator. Arithmetic alone.

| launch               | `fp16x3`, `bf16x6` | by default | returns at once unless …           |
|----------------------|--------------------|------------|------------------------------------|
| pack a, pack b       | yes                | yes        |                                    |
| multiply             | yes                | yes        | … few elements are at risk         |
| repack both          |                    | yes        | … many elements are at risk        |
| multiply in bfloat16 |                    | yes        | … many elements are at risk        |
| repair               | yes                | yes        | … some row or column is not finite |

So the GPU decides, and the host never waits for it. Packing counts the elements at risk. The counts
are zero when a product begins; repair, the last launch, reports and clears them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gemmlab.kernels.common import ceil_div
from gemmlab.kernels.gemm.sm90.config import SCHEMES, PackConfig, TileConfig
from gemmlab.linalg.arch import DEFAULT, Architecture
from gemmlab.linalg.planning import plan
from gemmlab.linalg.planning.plan import Address, Operand, Packed, PlannedLaunch, Value
from gemmlab.linalg.planning.tiers import Choice, tolerated
from gemmlab.linalg.shapes import Stack

NAMES = ("a", "b", "c")  # of the caller's arrays
_BLOCK = (256, 1, 1)  # threads of `repack`
_BLOCKS = 4  # most blocks of `repack` per multiprocessor and factor


class Source(int):
    """A placeholder for the address of a caller's array, which may differ between runs."""

    name: str

    def __new__(cls, name: str) -> Source:
        self = super().__new__(cls, 0)
        self.name = name
        return self


@dataclass(frozen=True)
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

    def packed(self, scheme: str | None = None) -> Packed:
        operand = self.operand
        sizes = (operand.vectors, operand.depth, operand.k_major, operand.batch)
        return Packed(SCHEMES[scheme or self.scheme], *sizes, self.name, self.arch)

    @property
    def elements(self) -> int:
        return self.operand.vectors * self.operand.depth * self.operand.batch

    @property
    def workspace(self) -> int:
        """Bytes for the packed operand. `repack` overwrites it unless it is kept."""
        schemes = (self.scheme if self.kept is None else None, self.fallback)
        return max((self.packed(scheme).nbytes for scheme in schemes if scheme), default=0)


@dataclass(frozen=True)
class WorkspaceAddresses:
    """Addresses of two workspaces, whose first 16 bytes are zero, the report, and totals."""

    left: Address
    right: Address
    report: Address
    totals: Address = 0


@dataclass(frozen=True)
class Job:
    """A product on tensor cores: C = alpha·left·right + beta·C; rows of C are contiguous."""

    left: Factor
    right: Factor
    c: Stack
    choice: Choice
    alpha: float = 1.0
    beta: float = 0.0
    tile: TileConfig | None = None  # None: the fastest, as predicted

    @property
    def most_risk(self) -> int:
        """The most elements at risk with which the first tier runs."""
        if self.choice.fallback is None:
            return 2**64 - 1
        return tolerated(self.left.elements + self.right.elements)

    def totals(self, sms: int) -> int:
        """Bytes of device memory for totals."""
        schemes = [x for x in (self.choice.tier, self.choice.fallback) if x is not None]
        tiles = (self._tile(scheme, sms) for scheme in schemes)
        return max(plan.totals_bytes(self._product, tile, sms) for tile in tiles)

    def launches(self, memory: WorkspaceAddresses, sms: int) -> tuple[PlannedLaunch, ...]:
        """All launches in order. `Source`s stand in for the caller's arrays."""
        factors, c = (self.left, self.right), Source("c")
        spaces = (memory.left, memory.right)
        # The packed operands with each factor's exponents, counts and first parts.
        bases = (
            memory.left if self.left.kept is None else self.left.kept,
            memory.right if self.right.kept is None else self.right.kept,
        )
        result: list[PlannedLaunch] = []
        for factor, base in zip(factors, bases, strict=True):
            if factor.kept is None:
                result += plan.pack(factor.operand, factor.packed(), Source(factor.name), base)
        most = self.most_risk
        at = memory.totals
        result += self._multiply(self.choice.tier, bases, bases, sms, (0, most), at)
        if self.choice.fallback is not None:
            result.append(self._repack(spaces, bases, sms, most + 1))
            risk = (most + 1, 2**64 - 1)
            result += self._multiply(self.choice.fallback, spaces, bases, sms, risk, at)
        addresses = (Source(self.left.name), Source(self.right.name), c)
        packed = (self.left.packed(), self.right.packed())
        report = (*bases, memory.report)
        clear = (self.left.kept is None) + 2 * (self.right.kept is None)
        operands = (self.left.operand, self.right.operand)
        result.append(plan.repair(self._product, *operands, packed, addresses, report, sms, clear))
        return tuple(result)

    @property
    def _product(self) -> plan.Product:
        c, depth = self.c, self.left.operand.depth
        return plan.Product(
            c.rows, c.columns, depth, c.row_stride, c.batch, c.step, self.alpha, self.beta
        )

    def _tile(self, scheme: str, sms: int) -> TileConfig:
        if self.tile is not None:
            return self.tile
        packed = (self.left.packed(scheme), self.right.packed(scheme))
        return plan.choose_tile(self._product, *packed, sms)

    def _multiply(
        self,
        scheme: str,
        data: tuple[Address, Address],
        bases: tuple[Address, Address],
        sms: int,
        risk: tuple[int, int],
        totals: Address,
    ) -> tuple[PlannedLaunch, ...]:
        """Multiply the packed data at `data`, with the exponents and counts at `bases`."""
        packed = (self.left.packed(scheme), self.right.packed(scheme))
        tile, addresses = self._tile(scheme, sms), (*data, Source("c"))
        return plan.multiply(self._product, tile, *packed, addresses, sms, risk, totals, bases)

    def _repack(
        self,
        spaces: tuple[Address, Address],
        bases: tuple[Address, Address],
        sms: int,
        least_risk: int,
    ) -> PlannedLaunch:
        """The launch that packs both factors again, for the fallback."""
        args: dict[str, Value] = {"least_risk": least_risk}
        blocks = batch = 1
        for side, factor, to, base in zip(
            "ab", (self.left, self.right), spaces, bases, strict=True
        ):
            operand, packed = factor.operand, factor.packed(factor.fallback)
            given = {
                "x": Source(factor.name),
                "out": to + packed.offsets["out"],
                **{name: base + packed.offsets[name] for name in ("unscale", "risk", "status")},
                "vectors": operand.vectors,
                "depth": operand.depth,
                "ldx": operand.ld,
                "batch_x": operand.batch_stride,
                "pitch": packed.pitch,
                "k_major": int(operand.k_major),
                "batch": packed.batch,
            }
            args.update({f"{name}_{side}": value for name, value in given.items()})
            blocks = max(blocks, min(packed.lines, ceil_div(_BLOCKS * sms, packed.batch)))
            batch = max(batch, packed.batch)
        config = PackConfig(packed.scheme)
        grid, arch = (blocks, batch, 2), packed.arch
        return PlannedLaunch("repack", config, grid, _BLOCK, args, arch=arch)


def placed(
    launches: Iterable[PlannedLaunch], arrays: Mapping[str, Address]
) -> tuple[PlannedLaunch, ...]:
    """The launches with the addresses of the caller's arrays, by name, instead of `Source`s."""

    def value(given: Value) -> Value:
        return arrays[given.name] if isinstance(given, Source) else given

    return tuple(
        replace(launch, args={name: value(given) for name, given in launch.args.items()})
        for launch in launches
    )
