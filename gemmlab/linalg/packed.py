"""Operands that are split once and multiplied many times."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from cuda.bindings import driver as cu

from gemmlab.errors import ShapeError, TierError, UnknownNameError
from gemmlab.kernels.gemm.sm90.config import SCHEMES
from gemmlab.linalg import shapes
from gemmlab.linalg.frameworks import Facts, Framework
from gemmlab.linalg.planning import plan, tiers
from gemmlab.linalg.planning.plan import STATUS_BYTES, Packed
from gemmlab.linalg.planning.program import Factor
from gemmlab.linalg.runtime.driver import call
from gemmlab.linalg.runtime.graph import Node

SIDES = ("left", "right")
_serials = count()


class PackedMatrix:
    """A matrix, or a stack of matrices, as 16-bit parts on a GPU; see `gemmlab.pack`.

    Takes 4 bytes per element for `fp16x3`, 6 for `bf16x6`, besides `array`, which it keeps: what
    is not finite or out of range is computed from there.
    """

    def __init__(
        self, array: Any, facts: Facts, framework: Framework, side: str, precision: str, stream: int
    ) -> None:
        self.side, self.precision, self.framework = side, precision, framework
        self.serial = next(_serials)  # planned products know it by this: ids are given again
        row = side == "left"
        stack = shapes.stack_of(facts.shape, facts.strides, tuple(facts.shape[:-2]), row)
        if stack is None or (stack if row else stack.transposed).operand() is None:
            array = framework.copied(array, tuple(facts.shape))
            facts = framework.facts(array)
            stack = shapes.stack_of(facts.shape, facts.strides, tuple(facts.shape[:-2]), row)
        assert stack is not None
        self.array, self.facts = array, facts
        source = stack if row else stack.transposed
        factor = Factor("a" if row else "b", source, precision)
        self.layout: Packed = factor.packed()
        self._memory = framework.maker((-(-self.layout.nbytes // 4),), facts.device)()
        self.address = framework.facts(self._memory).address
        call(cu.cuMemsetD8Async, self.address, 0, STATUS_BYTES, stream)
        launches = plan.pack(factor.operand, self.layout, facts.address, self.address)
        for launch in launches:
            Node(launch).launch(stream)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.facts.shape)

    def alike(self) -> Callable[[Any], bool]:
        """What tells whether an operand is this one, its array as it was; it does not keep them."""
        serial, as_it_was = self.serial, self.framework.alike(self.array)
        return lambda other: (
            type(other) is PackedMatrix and other.serial == serial and as_it_was(other.array)
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the parts."""
        return self.layout.nbytes

    def __dlpack_device__(self) -> tuple[int, int]:
        """Where it lies, as DLPack says it: on a CUDA GPU."""
        return 2, self.facts.device

    def __repr__(self) -> str:
        return f"PackedMatrix(shape={self.shape}, side={self.side!r}, precision={self.precision!r})"


def check(side: str, precision: str | None, facts: Facts, capability: tuple[int, int]) -> str:
    """The scheme to pack for. Raises UnknownNameError, ShapeError and TierError."""
    if side not in SIDES:
        raise UnknownNameError(f"no side {side!r}; an operand is 'left' (a) or 'right' (b)")
    tiers.check_precision(precision)
    if precision == "ieee":
        raise TierError("precision 'ieee' multiplies float32 numbers as they are: nothing to pack")
    if not facts.shape or 0 in facts.shape:
        raise ShapeError(f"a has shape {tuple(facts.shape)}; only what has elements can be packed")
    sizes = shapes.multiply(facts.shape, facts.shape[-1:])
    case = tiers.Case(sizes.m, sizes.n, sizes.k, sizes.batch, capability)
    return tiers.choose(precision if precision in SCHEMES else "fp16x3", case).tier
