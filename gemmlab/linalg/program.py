"""All launches of one product, in order: what a GPU or the emulator is to do. Arithmetic alone.

| launch               | `fp16x3`, `bf16x6` | by default | does nothing unless …              |
|----------------------|--------------------|------------|------------------------------------|
| split of a, of b     | yes                | yes        |                                    |
| multiply             | yes                | yes        | … few elements are at risk         |
| split again of a, b  |                    | yes        | … many are                         |
| multiply in bfloat16 |                    | yes        | … many are                         |
| fix-up               | yes                | yes        | … some row or column is not finite |

So the GPU decides, and the host never waits for it. The splits count; their counts are zero when a
product begins, and the fix-up, which comes last, reports them and clears them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gemmlab.kernels.common import ceil_div
from gemmlab.kernels.gemm.schemes import FIXUP_TILE, SCHEMES, SplitConfig
from gemmlab.linalg import plan
from gemmlab.linalg.plan import Launch, Operand, Packed
from gemmlab.linalg.shapes import Stack
from gemmlab.linalg.tiers import Choice, tolerated

REPORT_BYTES = 24  # elements at risk, vectors that are not finite, blocks of the fix-up that ended
_BLOCK = (256, 1, 1)  # threads of the fix-up and of the second split
_BLOCKS = 8  # per multiprocessor, at most, of the second split


class Source(int):
    """The address of an array of the caller, which may be another one on every run."""

    def __new__(cls, name: str, address: int = 0) -> Source:
        self = super().__new__(cls, address)
        self.name = name
        return self

    name: str


@dataclass(frozen=True)
class Factor:
    """One factor of a product: where it comes from, and how its parts lie.

    `kept` is the address of an operand that was packed before; its parts are left as they are.
    """

    name: str  # "a" or "b"
    source: Stack  # rows of A, or columns of B
    scheme: str
    fallback: str | None = None
    kept: int | None = None

    @property
    def operand(self) -> Operand:
        operand = self.source.operand()
        assert operand is not None, "a factor is copied before where it cannot be read in place"
        return operand

    def packed(self, scheme: str | None = None) -> Packed:
        operand = self.operand
        sizes = (operand.vectors, operand.depth, operand.along, operand.batch)
        return Packed(SCHEMES[scheme or self.scheme], *sizes)

    @property
    def elements(self) -> int:
        return self.operand.vectors * self.operand.depth * self.operand.batch

    @property
    def workspace(self) -> int:
        """Bytes needed for parts. The second split writes over the first."""
        schemes = {self.fallback} if self.kept else {self.scheme, self.fallback}
        return max((self.packed(scheme).nbytes for scheme in schemes if scheme), default=0)


@dataclass(frozen=True)
class Memory:
    """Addresses of the workspaces for a and b, whose first 16 bytes are zero, and of the report."""

    a: int
    b: int
    report: int


@dataclass(frozen=True)
class Job:
    """A product for tensor cores: C = alpha·A·B + beta·C, C with contiguous rows."""

    a: Factor
    b: Factor
    c: Stack
    choice: Choice
    alpha: float = 1.0
    beta: float = 0.0

    @property
    def most_risk(self) -> int:
        """Elements at risk up to which the first tier runs."""
        if self.choice.fallback is None:
            return 2**64 - 1
        return tolerated(self.a.elements + self.b.elements)

    def launches(self, memory: Memory, addresses: Sequence[Source], sms: int) -> tuple[Launch, ...]:
        """Everything in order; `addresses` are those of a, b and c."""
        at_a, at_b, at_c = addresses
        first, last = (0, self.most_risk), (self.most_risk + 1, 2**64 - 1)
        bases = [
            memory_of if factor.kept is None else factor.kept
            for factor, memory_of in ((self.a, memory.a), (self.b, memory.b))
        ]
        result: list[Launch] = []
        for factor, source, base in zip((self.a, self.b), (at_a, at_b), bases, strict=True):
            if factor.kept is None:
                result += plan.pack(factor.operand, factor.packed(), source, base)
        result.append(self._multiply(self.choice.tier, (*bases, at_c), bases, sms, first))
        if self.choice.fallback is not None:
            again = (memory.a, memory.b)
            for factor, source, to in zip((self.a, self.b), (at_a, at_b), again, strict=True):
                result.append(self._split_again(factor, source, to, bases, sms, last[0]))
            result.append(self._multiply(self.choice.fallback, (*again, at_c), bases, sms, last))
        result.append(self._fixup(addresses, bases, memory.report, sms))
        return tuple(result)

    def _multiply(
        self,
        scheme: str,
        addresses: tuple[int, int, int],
        bases: Sequence[int],
        sms: int,
        risk: tuple[int, int],
    ) -> Launch:
        """Parts lie at `addresses`, exponents and counts at `bases`."""
        a, b, c = self.a.packed(scheme), self.b.packed(scheme), self.c
        product = plan.Product(
            c.rows, c.columns, a.depth, c.row_stride, c.batch, c.step, self.alpha, self.beta
        )
        tile = plan.choose_tile(product, a, b, sms)
        launch = plan.multiply(product, tile, a, b, addresses, sms, risk)
        ends = [
            base + packed.offsets[name]
            for name in ("unscale", "status")
            for base, packed in zip(bases, (a, b), strict=True)
        ]
        return replace(launch, args=(launch.args[0], *ends, *launch.args[5:]))

    def _split_again(
        self,
        factor: Factor,
        source: Source,
        to: int,
        bases: Sequence[int],
        sms: int,
        least_risk: int,
    ) -> Launch:
        operand, packed = factor.operand, factor.packed(factor.fallback)
        base = bases[factor.name == "b"]
        args = (
            source,
            to + packed.offsets["out"],
            base + packed.offsets["unscale"],
            base + packed.offsets["risk"],
            *bases,
            *(operand.vectors, operand.depth, operand.ld, operand.batch_stride),
            packed.pitch,
            int(operand.along),
            least_risk,
        )
        blocks = min(packed.lines, _BLOCKS * sms)
        config = SplitConfig(packed.scheme)
        return Launch("resplit", config, (blocks, packed.batch, 1), _BLOCK, args)

    def _fixup(
        self, addresses: Sequence[Source], bases: Sequence[int], report: int, sms: int
    ) -> Launch:
        a, b, c = self.a.source, self.b.source.transposed, self.c
        risks = [
            base + factor.packed().offsets["risk"]
            for factor, base in zip((self.a, self.b), bases, strict=True)
        ]
        clear = (self.a.kept is None) + 2 * (self.b.kept is None)
        args = (
            *addresses,
            *risks,
            *bases,
            report,
            *(c.rows, c.columns, a.columns, c.batch),
            *(a.row_stride, a.column_stride, b.row_stride, b.column_stride, c.row_stride),
            *(a.step, b.step, c.step),
            self.alpha,
            clear,
        )
        tiles = ceil_div(c.rows, FIXUP_TILE) * ceil_div(c.columns, FIXUP_TILE) * c.batch
        return Launch("fixup", None, (min(tiles, 2 * sms), 1, 1), _BLOCK, args)

