"""Products on GPUs, planned once per form of their operands and run at any addresses."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmlab.errors import CompileError, MissingDependencyError
from gemmlab.linalg import cublas, execution, operands, shapes
from gemmlab.linalg.execution import PER_THREAD
from gemmlab.linalg.operands import NAMES, Arrays, Operands, Scalars
from gemmlab.linalg.packed import PackedMatrix
from gemmlab.linalg.planned import ProductPlan
from gemmlab.linalg.planning import tiers
from gemmlab.linalg.planning.tiers import Choice
from gemmlab.linalg.recent import Repeat

_MOST_PRODUCTS = 256  # planned products that are kept
_CONSTANT = (type(None), int, float, np.floating)  # types of immutable scalars


class PlannedProduct:
    """A product of operands with given forms on one stream.

    It does not keep packed operands alive.
    """

    def __init__(
        self, described: Operands, scalars: Scalars, precision: str | None, stream: int
    ) -> None:
        framework, arrays, packed = described.framework, described.named, described.packed
        assert framework is not None
        self.framework, self.stream, self._beta = framework, stream, scalars.beta
        self.device = operands.check_arrays(arrays)
        sizes = operands.check_sizes(arrays)
        self._make = framework.maker(sizes.result, self.device)
        self._make_on_stream = framework.maker(sizes.result, self.device, stream)
        # Index, first byte and end of each operand, relative to its address.
        self._extents = [
            (i, *(4 * end for end in shapes.extent(arrays[name].shape, arrays[name].strides)))
            for i, name in enumerate(NAMES)
            if name in arrays
        ]
        self._layout = layout = operands.lay_out(arrays, sizes, packed)
        gpu = execution.gpu(self.device)
        choice = tiers.choose(precision, operands.case_of(layout, gpu, packed))
        self._run: Any = None
        workspace, tolerated = 0, None
        if not sizes.k or 0 in sizes.result:
            choice = Choice("ieee", "nothing to multiply: an axis is empty")
        else:
            try:
                self._run, workspace, tolerated = self._runner(choice, scalars, packed)
            except (CompileError, MissingDependencyError) as error:
                if choice.tier == "ieee" or precision is not None or packed:
                    raise
                choice = tiers.without_kernels(error)
                self._run, workspace, tolerated = self._runner(choice, scalars, packed)
        self._needs_no_copy = self._run is not None and not (layout.copies or layout.through_copy)
        self.plan = ProductPlan(
            m=layout.c.rows,
            n=layout.c.columns,
            k=sizes.k,
            batch=layout.c.batch,
            device=f"GPU {self.device} {gpu.name}",
            tier=choice.tier,
            reason=choice.reason,
            fallback=choice.fallback,
            tolerated=tolerated,
            copies=tuple(layout.copies),
            workspace=workspace,
            counts=(lambda: None) if self._run is None else self._run.counts,
        )

    def _runner(
        self, choice: Choice, scalars: Scalars, packed: dict[str, PackedMatrix]
    ) -> tuple[Any, int, int | None]:
        """Return the run of the product in a tier, its workspace in bytes, and the number of
        elements at risk that it tolerates. Raises CompileError and MissingDependencyError."""
        layout, place = self._layout, (self.framework, self.device, self.stream)
        if choice.tier == "ieee":
            a, b = layout.left.operand(), layout.right.operand()
            assert a is not None and b is not None
            sgemm = cublas.Sgemm(a, b, layout.c, scalars.alpha, scalars.beta)
            return execution.SgemmRun(sgemm, layout.names, *place), cublas.WORKSPACE, None
        job = operands.job_of(layout, choice, scalars, packed)
        run = execution.TensorCoreRun(job, *place)
        totals = job.totals(execution.gpu(self.device).multiprocessors)
        workspace = job.left.workspace + job.right.workspace + totals
        return run, workspace, job.most_risk if choice.fallback else None

    def __call__(self, arrays: Arrays, addresses: Sequence[int], given_stream: int | None) -> Any:
        """Enqueue the product of a, b, c and out, at these addresses, on its stream.

        `given_stream` is that stream if the caller gave it, or None if it is the current stream.
        Returns `out`, or a new array.
        """
        _, _, c, out = arrays
        device_is_current = execution.is_current(self.device)
        # Without work by the framework, the product's stream need not be the current one.
        if device_is_current and self._needs_no_copy and (c is out or not self._beta):
            if out is not None:
                self._run.enqueue((addresses[0], addresses[1], addresses[3]))
                return out
            out = self._make() if given_stream is None else self._make_on_stream()
            self._run.enqueue((addresses[0], addresses[1], self.framework.address(out)))
            return out
        if device_is_current and given_stream is None:
            return self._copy_and_run(arrays, addresses)
        with self.framework.entered(self.device, given_stream), execution.current(self.device):
            return self._copy_and_run(arrays, addresses)

    def writes_apart(self, addresses: Sequence[int], c_is_out: bool) -> bool:
        """Whether the address range of `out` intersects no other operand's; c may be `out`."""
        *others, (_, first, end) = self._extents
        low, high = addresses[3] + first, addresses[3] + end
        for i, first, end in others:
            at = addresses[i]
            if at + first < high and low < at + end and not (c_is_out and i == 2):
                return False
        return True

    def _copy_and_run(self, arrays: Arrays, addresses: Sequence[int]) -> Any:
        """Enqueue the product in the general case: copied operands, a separate c, an empty k."""
        framework, layout = self.framework, self._layout
        a, b, c, out = arrays
        at_a, at_b = addresses[0], addresses[1]
        if "a" in layout.copies:
            a = framework.copied(a, layout.copies["a"])
            at_a = framework.address(a)
        if "b" in layout.copies:
            b = framework.copied(b, layout.copies["b"])
            at_b = framework.address(b)
        is_new = out is None or layout.through_copy
        target = self._make() if is_new else out
        if self._beta and target is not c:
            framework.assign(target, c)
        if self._run is not None:
            self._run.enqueue((at_a, at_b, framework.address(target)))
        else:
            framework.scale(target, self._beta)
        if layout.through_copy and out is not None:
            framework.assign(out, target)
            return out
        return target


class BoundProduct:
    """A planned product together with the operands that it runs with."""

    __slots__ = ("_addresses", "_operands", "_place", "planned")

    def __init__(self, described: Operands, scalars: Scalars, precision: str | None) -> None:
        _, (_, _, c, out), descriptors, framework, packed, given_stream, _ = described
        assert framework is not None and descriptors[0] is not None
        device = descriptors[0].device
        stream = framework.stream(device) if given_stream is None else given_stream
        place = stream if stream != PER_THREAD else (stream, threading.get_ident())
        serials = tuple(operand.serial for operand in packed.values()) if packed else None
        forms = [None if x is None else x[1:] for x in descriptors]
        key = (*forms, serials, scalars, precision, place, framework)
        planned = _planned.get(key)
        addresses = [0 if x is None else x[0] for x in descriptors]
        if planned is None or (out is not None and not planned.writes_apart(addresses, c is out)):
            operands.check_overlap(described.named)
            if planned is None:
                with framework.entered(device, given_stream):
                    planned = PlannedProduct(described, scalars, precision, stream)
                _keep(key, planned)
        self.planned, self._operands = planned, described
        self._addresses, self._place = addresses, place

    @property
    def plan(self) -> ProductPlan:
        return self.planned.plan

    def is_current(self) -> bool:
        """Whether the product runs on the stream that a new one would run on."""
        if self._operands.stream is not None:
            return True
        stream = self.planned.framework.stream(self.planned.device)
        return stream == self._place or (stream, threading.get_ident()) == self._place

    def repeat(self, alpha: Any, beta: Any, precision: str | None) -> Repeat | None:
        """Return the short path for products like this one.

        None if a scalar is mutable, an operand was imported from another library, or the address
        range of `out` intersects another operand's.
        """
        if not (isinstance(alpha, _CONSTANT) and isinstance(beta, _CONSTANT)):
            return None
        given, packed = self._operands.given, self._operands.packed
        _, _, c, out = given
        if out is not None and not self.planned.writes_apart(self._addresses, c is out):
            return None
        matcher = self.planned.framework.matcher
        matchers: list[Any] = []
        for name, x, array in zip(NAMES, given, self._operands.arrays, strict=True):
            if array is not (x.array if name in packed else x):
                return None
            if x is None:
                matchers.append(None)
            elif name in packed:
                matchers.append(packed[name].matcher())
            else:  # the shapes of a and b are the key of the lookup
                matchers.append(matcher(x, shaped=name not in ("a", "b")))
        is_packed = "a" in packed, "b" in packed
        return Repeat(self.planned, matchers, is_packed, alpha, beta, precision)

    def run(self) -> Any:
        """Enqueue the product. Returns `out`, or a new array of the library of a."""
        planned, (_, arrays, _, _, _, stream, restore) = self.planned, self._operands
        if restore is None:
            return planned(arrays, self._addresses, stream)
        with planned.framework.entered(planned.device, stream), execution.current(planned.device):
            return restore(planned(arrays, self._addresses, None))


_planned: dict[Any, PlannedProduct] = {}
_keeping = threading.Lock()


def _keep(key: Any, planned: PlannedProduct) -> None:
    with _keeping:
        if len(_planned) >= _MOST_PRODUCTS:
            del _planned[next(iter(_planned))]
        _planned[key] = planned
