"""All launches of one product, in order: what a GPU or the emulator is to do. Arithmetic alone.

| launch               | `fp16x3`, `bf16x6` | by default | does nothing unless …              |
|----------------------|--------------------|------------|------------------------------------|
| split of a, of b     | yes                | yes        |                                    |
| multiply             | yes                | yes        | … few elements are at risk         |
| split again of both  |                    | yes        | … many are                         |
| multiply in bfloat16 |                    | yes        | … many are                         |
| fix-up               | yes                | yes        | … some row or column is not finite |

So the GPU decides, and the host never waits for it. The splits count; their counts are zero when a
product begins, and the fix-up, which comes last, reports them and clears them again.
"""

from __future__ import annotations

from dataclasses import dataclass

from gemmlab.kernels.common import ceil_div
from gemmlab.kernels.gemm.sm90.config import SCHEMES, PackConfig, TileConfig
from gemmlab.linalg.planning import plan
from gemmlab.linalg.planning.plan import Address, Launch, Operand, Packed, Value
from gemmlab.linalg.planning.tiers import Choice, tolerated
from gemmlab.linalg.shapes import Stack

NAMES = ("a", "b", "c")  # of the caller's arrays
_BLOCK = (256, 1, 1)  # threads of the second split
_BLOCKS = 4  # per multiprocessor and factor, at most, of the second split


class Source(int):
    """In place of the address of one of the caller's arrays, which may differ from run to run."""

    name: str

    def __new__(cls, name: str) -> Source:
        self = super().__new__(cls, 0)
        self.name = name
        return self


@dataclass(frozen=True)
class Factor:
    """One factor of a product: whose it is, and how its parts lie.

    `name` is the caller's array, "a" or "b". `kept` is the address of an operand that was packed
    before; its parts are left as they are.
    """

    name: str
    source: Stack  # rows of the left factor, or columns of the right one
    scheme: str
    fallback: str | None = None
    kept: int | None = None

    @property
    def operand(self) -> Operand:
        operand = self.source.operand()
        assert operand is not None, "a factor that cannot be read in place is copied before"
        return operand

    def packed(self, scheme: str | None = None) -> Packed:
        operand = self.operand
        sizes = (operand.vectors, operand.depth, operand.along, operand.batch)
        return Packed(SCHEMES[scheme or self.scheme], *sizes, self.name)

    @property
    def elements(self) -> int:
        return self.operand.vectors * self.operand.depth * self.operand.batch

    @property
    def workspace(self) -> int:
        """Bytes for parts. The second split writes over the first, unless that is kept."""
        schemes = (self.scheme if self.kept is None else None, self.fallback)
        return max((self.packed(scheme).nbytes for scheme in schemes if scheme), default=0)


@dataclass(frozen=True)
class Memory:
    """Addresses of two workspaces, whose first 16 bytes are zero, of the report, and of totals."""

    left: Address
    right: Address
    report: Address
    totals: Address = 0


@dataclass(frozen=True)
class Job:
    """A product for tensor cores: C = alpha·left·right + beta·C, C with contiguous rows."""

    left: Factor
    right: Factor
    c: Stack
    choice: Choice
    alpha: float = 1.0
    beta: float = 0.0

    @property
    def most_risk(self) -> int:
        """Elements at risk up to which the first tier runs."""
        if self.choice.fallback is None:
            return 2**64 - 1
        return tolerated(self.left.elements + self.right.elements)

    def totals(self, sms: int) -> int:
        """Bytes for totals."""
        schemes = [x for x in (self.choice.tier, self.choice.fallback) if x is not None]
        tiles = (self._tile(scheme, sms) for scheme in schemes)
        return max(plan.totals_bytes(self._product, tile, sms) for tile in tiles)

    def launches(self, memory: Memory, sms: int) -> tuple[Launch, ...]:
        """Everything in order. The caller's arrays are `Source`s of their names."""
        factors, c = (self.left, self.right), Source("c")
        spaces = (memory.left, memory.right)
        # Where the exponents and counts of each factor are, and its first parts.
        bases = (
            memory.left if self.left.kept is None else self.left.kept,
            memory.right if self.right.kept is None else self.right.kept,
        )
        result: list[Launch] = []
        for factor, base in zip(factors, bases, strict=True):
            if factor.kept is None:
                result += plan.pack(factor.operand, factor.packed(), Source(factor.name), base)
        most = self.most_risk
        at = memory.totals
        result += self._multiply(self.choice.tier, bases, bases, sms, (0, most), at)
        if self.choice.fallback is not None:
            result.append(self._split_again(spaces, bases, sms, most + 1))
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
        packed = (self.left.packed(scheme), self.right.packed(scheme))
        return plan.choose_tile(self._product, *packed, sms)

    def _multiply(
        self,
        scheme: str,
        parts: tuple[Address, Address],
        bases: tuple[Address, Address],
        sms: int,
        risk: tuple[int, int],
        totals: Address,
    ) -> tuple[Launch, ...]:
        """Packed operands have their parts at `parts`, exponents and counts at `bases`."""
        packed = (self.left.packed(scheme), self.right.packed(scheme))
        tile, addresses = self._tile(scheme, sms), (*parts, Source("c"))
        return plan.multiply(self._product, tile, *packed, addresses, sms, risk, totals, bases)

    def _split_again(
        self,
        spaces: tuple[Address, Address],
        bases: tuple[Address, Address],
        sms: int,
        least_risk: int,
    ) -> Launch:
        """The splits of both factors for the fallback."""
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
                "k_major": int(operand.along),
                "batch": packed.batch,
            }
            args.update({f"{name}_{side}": value for name, value in given.items()})
            blocks = max(blocks, min(packed.lines, ceil_div(_BLOCKS * sms, packed.batch)))
            batch = max(batch, packed.batch)
        config = PackConfig(packed.scheme)
        return Launch("repack", config, (blocks, batch, 2), _BLOCK, args)
