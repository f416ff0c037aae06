"""Operands that are packed once and multiplied many times."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from cuda.bindings import driver as cu

from gemmlab.errors import ShapeError, TierError, UnknownNameError
from gemmlab.kernels.gemm.sm90.config import SCHEMES
from gemmlab.linalg import shapes
from gemmlab.linalg.arrays import ArrayDescriptor, Framework
from gemmlab.linalg.planning import plan, tiers, times
from gemmlab.linalg.planning.packed import Packed
from gemmlab.linalg.planning.plan import STATUS_BYTES
from gemmlab.linalg.planning.program import Factor, Source
from gemmlab.linalg.runtime.driver import call
from gemmlab.linalg.runtime.workspaces import workspace

SIDES = ("left", "right")
_serials = count()


class PackedMatrix:
    """A matrix, or a stack of matrices, as 16-bit parts on a GPU; see `gemmlab.pack`.

    It takes 4 bytes per element for `fp16x3` and 6 for `bf16x6`, in addition to `array`, from which
    rows and columns that are not finite or out of range are computed.

    Attributes:
        array: the float32 array, or a copy if its strides do not suit the kernels.
        side: "left" or "right".
        precision: "fp16x3" or "bf16x6".
    """

    def __init__(
        self,
        array: Any,
        descriptor: ArrayDescriptor,
        framework: Framework,
        side: str,
        choice: tiers.Choice,
        stream: int,
        memory: Any = None,
        arrives: bool = False,
    ) -> None:
        """memory: an array of `layout_of` bytes, aligned to 128, for the parts, of which the first
        `STATUS_BYTES` are zero; None makes it. arrives: whether another GPU packs it and the parts
        are copied to `memory`, which may hold anything."""
        self.side, self.precision, self.framework = side, choice.tier, framework
        self.serial = next(_serials)  # key in planned products; Python reuses ids
        row = side == "left"
        stack = _stack(descriptor, row)
        if stack is None or (stack if row else stack.transposed).operand() is None:
            array = framework.copied(array, tuple(descriptor.shape))
            descriptor = framework.describe(array)
            stack = _stack(descriptor, row)
        assert stack is not None
        self.array, self.descriptor = array, descriptor
        factor = _factor(stack, row, choice)
        self.layout: Packed = factor.packed()
        is_clear = memory is not None
        if not is_clear:
            memory = framework.maker((-(-self.layout.nbytes // 4),), descriptor.device)()
        self._memory = memory
        self.address = framework.address(memory)
        if arrives:
            return
        launches = plan.pack(factor.operand, self.layout, Source(factor.name), self.address)
        space = workspace(framework, descriptor.device, stream)
        with space.lock:
            self._launches = space.launcher.bind(launches)
        self.fill(array, stream, is_clear)

    def fill(self, array: Any, stream: int, is_clear: bool = False) -> None:
        """Pack an array of the same form into the same memory, and refer to it from now on.

        is_clear: whether the first `STATUS_BYTES` of the memory are zero.
        """
        at = self.framework.address(array)
        if not is_clear:
            call(cu.cuMemsetD8Async, self.address, 0, STATUS_BYTES, stream)
        with workspace(self.framework, self.descriptor.device, stream).lock:
            for launch in self._launches:
                launch.launch(stream, (at, at, 0, 0))
        self.array = array

    def forget(self) -> None:
        """Refer to no array until the next `fill`, so that the last one can be freed."""
        self.array = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.descriptor.shape)

    def matcher(self) -> Callable[[Any], bool]:
        """Return a test whether an operand is this one and its array has the same form.

        The test keeps no reference to either.
        """
        serial, matches = self.serial, self.framework.matcher(self.array)
        return lambda other: (
            type(other) is PackedMatrix and other.serial == serial and matches(other.array)
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the packed data, without `array`."""
        return self.layout.nbytes

    def __dlpack_device__(self) -> tuple[int, int]:
        """The GPU it is on, as DLPack expresses it: kDLCUDA and the device number."""
        return 2, self.descriptor.device

    def __repr__(self) -> str:
        return f"PackedMatrix(shape={self.shape}, side={self.side!r}, precision={self.precision!r})"


def _stack(descriptor: ArrayDescriptor, row: bool) -> shapes.Stack | None:
    shape = descriptor.shape
    return shapes.stack_of(shape, descriptor.strides, tuple(shape[:-2]), row)


def _factor(stack: shapes.Stack, row: bool, choice: tiers.Choice) -> Factor:
    operand = (stack if row else stack.transposed).operand()
    assert operand is not None, "a factor that cannot be read in place must be copied first"
    return Factor("a" if row else "b", operand, choice.tier, arch=choice.arch)


def layout_of(shape: tuple[int, int], side: str, choice: tiers.Choice) -> Packed:
    """Return the layout of a matrix whose rows are contiguous."""
    row = side == "left"
    stack = shapes.stack_of(shape, shapes.contiguous(shape), (), row)
    assert stack is not None
    return _factor(stack, row, choice).packed()


def check(
    side: str, precision: str | None, array: ArrayDescriptor, capability: tuple[int, int]
) -> tiers.Choice:
    """Return the tier to pack for. Raises UnknownNameError, ShapeError and TierError."""
    if side not in SIDES:
        raise UnknownNameError(f"no side {side!r}; an operand is 'left' (a) or 'right' (b)")
    tiers.check_precision(precision)
    if precision is not None and precision not in SCHEMES:
        raise TierError(f"precision {precision!r} multiplies float32 operands: nothing to pack")
    if not array.shape or 0 in array.shape:
        raise ShapeError(f"a has shape {tuple(array.shape)}; an empty array cannot be packed")
    sizes = shapes.multiply(array.shape, array.shape[-1:])
    case = times.Case(sizes.m, sizes.n, sizes.k, sizes.batch, capability)
    return tiers.choose(precision if precision in SCHEMES else times.FASTEST, case)
