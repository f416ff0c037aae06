"""A product bound to arrays of one kind, shape and place: planned once, run at any addresses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemmlab.errors import ArrayError
from gemmlab.linalg import cublas, execution, operands, shapes, tiers
from gemmlab.linalg.frameworks import (
    Facts,
    Framework,
    carrier,
    find,
    is_on_host,
    stream_handle,
)
from gemmlab.linalg.operands import Scalars
from gemmlab.linalg.packed import PackedMatrix
from gemmlab.linalg.planned import Plan
from gemmlab.linalg.tiers import Choice

_MOST_CALLS = 256  # planned products that are remembered


class Call:
    """A product on one stream. `kept` are the packed operands among "a" and "b"."""

    def __init__(
        self,
        framework: Framework,
        arrays: dict[str, Facts],
        kept: dict[str, Any],
        scalars: Scalars,
        precision: str | None,
        stream: int,
    ) -> None:
        self._framework, self._kept, self._beta = framework, kept, scalars.beta
        tiers.check_precision(precision)
        self.device = operands.check_arrays(arrays)
        sizes = operands.check_sizes(arrays)
        self._shape = sizes.result
        # Bytes that each array reaches, from its address.
        self._reach = [
            tuple(4 * end for end in shapes.extent(arrays[x].shape, arrays[x].strides))
            if x in arrays
            else None
            for x in _ARRAYS
        ]
        self._layout = layout = operands.lay_out(arrays, sizes, kept)
        gpu = execution.gpu(self.device)
        choice = tiers.choose(precision, operands.case_of(layout, gpu, kept))
        self._takes_more = bool(layout.copies or layout.through or scalars.beta)
        self._run: Any = None
        workspace, tolerated = 0, None
        if not sizes.k or 0 in sizes.result:
            choice = Choice("ieee", "nothing to multiply: an axis is empty")
        elif choice.tier == "ieee":
            a, b = layout.left.operand(), layout.right.operand()
            assert a is not None and b is not None
            sgemm = cublas.Sgemm(a, b, layout.c, scalars.alpha, scalars.beta)
            place = (framework, self.device, stream)
            self._run = execution.SgemmRun(sgemm, layout.names, *place)
            workspace = cublas.WORKSPACE
        else:
            job = operands.job_of(layout, choice, scalars, kept)
            self._run = execution.TensorCoreRun(job, framework, self.device, stream)
            workspace = job.left.workspace + job.right.workspace
            tolerated = job.most_risk if choice.fallback else None
        self.plan = Plan(
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

    def __call__(self, arrays: Sequence[Any], addresses: Sequence[int]) -> Any:
        """Enqueue the product of a, b, c and out; the GPU's context is current.

        Returns the result, or `out`.
        """
        if self._run is None or self._takes_more:
            return self._prepared(*arrays)
        a, b, _, to = addresses
        out = arrays[3]
        if out is None:
            out = self._framework.empty(self._shape, self.device)
            to = self._framework.address(out)
        self._run.enqueue((a, b, to))
        return out

    def writes_apart(self, addresses: Sequence[int], c_is_out: bool) -> bool:
        """Whether `out` ends before each other array begins, or begins after it."""
        assert self._reach[3] is not None
        low, high = (addresses[3] + end for end in self._reach[3])
        for i in (0, 1) if c_is_out else (0, 1, 2):
            reach = self._reach[i]
            if reach and addresses[i] + reach[0] < high and low < addresses[i] + reach[1]:
                return False
        return True

    def _prepared(self, a: Any, b: Any, c: Any, out: Any) -> Any:
        """The general case: with copies of arrays, with c, with nothing to multiply."""
        framework, layout = self._framework, self._layout
        factors = [
            framework.copied(x, layout.copies[name]) if name in layout.copies else x
            for name, x in (("a", a), ("b", b))
        ]
        target = out
        if out is None or layout.through:
            target = framework.empty(self._shape, self.device)
        if self._beta and target is not c:
            framework.assign(target, c)
        if self._run is not None:
            at = [framework.address(x) for x in (*factors, target)]
            self._run.enqueue((at[0], at[1], at[2]))
        else:
            framework.scale(target, self._beta)
        if target is not out and out is not None:
            framework.assign(out, target)
            return out
        return target


class Bound:
    """A planned product and the arrays that it is to run with."""

    __slots__ = ("_addresses", "_arrays", "_framework", "_given", "call")

    def __init__(
        self,
        a: Any,
        b: Any,
        c: Any,
        out: Any,
        scalars: Scalars,
        precision: str | None,
        stream: Any,
    ) -> None:
        if precision is not None:
            tiers.check_precision(precision)
        framework = framework_of(a)
        arrays: tuple[Any, ...] = (a, b, c, out)
        kept: dict[str, PackedMatrix] = {}
        kind = type(a)
        alike = type(b) is kind and (c is None or type(c) is kind)
        if not alike or not (out is None or type(out) is kind) or find(a) is None:
            arrays, kept = _adopted(framework, arrays)
        forms = [None if x is None else framework.form(x) for x in arrays]
        assert forms[0] is not None
        device = forms[0][-1]
        self._given = None if stream is None else stream_handle(stream)
        handle = framework.stream(device) if self._given is None else self._given
        packed = tuple(map(id, kept.values())) if kept else None
        key = (*forms, packed, scalars, precision, handle, framework)
        call = _calls.get(key)
        addresses = [0 if x is None else framework.address(x) for x in arrays]
        if call is None or (out is not None and not call.writes_apart(addresses, c is out)):
            named = {
                name: framework.facts(x)
                for name, x in zip(_ARRAYS, arrays, strict=True)
                if x is not None
            }
            operands.check_overlap(named)
            if call is None:
                with framework.entered(device, self._given):
                    call = Call(framework, named, kept, scalars, precision, handle)
                if len(_calls) >= _MOST_CALLS:
                    _calls.pop(next(iter(_calls)), None)
                _calls[key] = call
        self.call, self._arrays, self._framework = call, arrays, framework
        self._addresses = addresses

    def run(self) -> Any:
        """Enqueue the product; the result, or `out`."""
        call = self.call
        if self._given is None and execution.is_current(call.device):
            return call(self._arrays, self._addresses)
        with self._framework.entered(call.device, self._given), execution.current(call.device):
            return call(self._arrays, self._addresses)


_ARRAYS = ("a", "b", "c", "out")
_calls: dict[Any, Call] = {}


def framework_of(a: Any) -> Framework:
    """What computes products of an array, or of a packed operand, on a GPU."""
    return find(a) or (a.framework if isinstance(a, PackedMatrix) else carrier())


def is_foreign(a: Any) -> bool:
    """Whether results for this operand go back to another library."""
    return find(a) is None and not isinstance(a, PackedMatrix)


def _adopted(
    framework: Framework, arrays: tuple[Any, ...]
) -> tuple[tuple[Any, ...], dict[str, PackedMatrix]]:
    """Packed operands, and arrays of other libraries as ones of this framework."""
    kept, own = {}, []
    for name, array in zip(_ARRAYS, arrays, strict=True):
        if isinstance(array, PackedMatrix):
            if (name, array.side) not in (("a", "left"), ("b", "right")):
                raise ArrayError(f"{name} is packed for the {array.side} side of a product")
            kept[name], array = array, array.array
        elif array is not None and find(array) is not framework:
            if is_on_host(array, name):
                rule = "both must be on one device"
                raise ArrayError(f"a is on a GPU and {name} is on the host: {rule}")
            if name == "out" and find(array) is None:
                rule = "out must be an array of PyTorch or CuPy, whose memory may be written"
                raise ArrayError(f"out is a {type(array).__name__}: {rule}")
            array = framework.from_dlpack(array)
        own.append(array)
    return tuple(own), kept
