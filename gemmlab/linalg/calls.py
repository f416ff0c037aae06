"""A product bound to arrays of one kind, shape and place: planned once, run at any addresses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gemmlab.errors import ArrayError, CompileError, DTypeError, MissingDependencyError
from gemmlab.linalg import cublas, execution, operands, shapes
from gemmlab.linalg.execution import PER_THREAD
from gemmlab.linalg.frameworks import (
    Facts,
    Framework,
    carrier,
    check_form,
    find,
    is_on_host,
    stream_handle,
)
from gemmlab.linalg.operands import Scalars
from gemmlab.linalg.packed import PackedMatrix
from gemmlab.linalg.planned import Plan
from gemmlab.linalg.planning import tiers
from gemmlab.linalg.planning.tiers import Choice
from gemmlab.linalg.recent import Repeat

Arrays = tuple[Any, Any, Any, Any]  # a, b, c and out
_MOST_CALLS = 256  # planned products that are remembered
_CONSTANT = (type(None), int, float, np.floating)  # whose value cannot change


class Call:
    """A product on one stream. `kept` are the packed operands among "a" and "b", which the caller
    keeps alive."""

    def __init__(
        self,
        framework: Framework,
        arrays: dict[str, Facts],
        kept: dict[str, Any],
        scalars: Scalars,
        precision: str | None,
        stream: int,
    ) -> None:
        self.framework, self.stream, self._beta = framework, stream, scalars.beta
        tiers.check_precision(precision)
        self.device = operands.check_arrays(arrays)
        sizes = operands.check_sizes(arrays)
        self._make = framework.maker(sizes.result, self.device)
        self._make_there = framework.maker(sizes.result, self.device, stream)
        # Number, first byte and end of each array, from its address.
        self._reaches = [
            (i, *(4 * end for end in shapes.extent(arrays[name].shape, arrays[name].strides)))
            for i, name in enumerate(_ARRAYS)
            if name in arrays
        ]
        self._layout = layout = operands.lay_out(arrays, sizes, kept)
        gpu = execution.gpu(self.device)
        choice = tiers.choose(precision, operands.case_of(layout, gpu, kept))
        self._run: Any = None
        workspace, tolerated = 0, None
        if not sizes.k or 0 in sizes.result:
            choice = Choice("ieee", "nothing to multiply: an axis is empty")
        else:
            try:
                self._run, workspace, tolerated = self._runner(choice, scalars, kept)
            except (CompileError, MissingDependencyError) as error:
                if choice.tier == "ieee" or precision is not None or kept:
                    raise
                choice = tiers.without_kernels(error)
                self._run, workspace, tolerated = self._runner(choice, scalars, kept)
        self._is_plain = self._run is not None and not (layout.copies or layout.through)
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

    def _runner(
        self, choice: Choice, scalars: Scalars, kept: dict[str, Any]
    ) -> tuple[Any, int, int | None]:
        """What runs the product in that tier, its workspace in bytes, and how many elements at risk
        it tolerates. Raises CompileError and MissingDependencyError."""
        layout, place = self._layout, (self.framework, self.device, self.stream)
        if choice.tier == "ieee":
            a, b = layout.left.operand(), layout.right.operand()
            assert a is not None and b is not None
            sgemm = cublas.Sgemm(a, b, layout.c, scalars.alpha, scalars.beta)
            return execution.SgemmRun(sgemm, layout.names, *place), cublas.WORKSPACE, None
        job = operands.job_of(layout, choice, scalars, kept)
        run = execution.TensorCoreRun(job, *place)
        totals = job.totals(execution.gpu(self.device).multiprocessors)
        workspace = job.left.workspace + job.right.workspace + totals
        return run, workspace, job.most_risk if choice.fallback else None

    def __call__(self, arrays: Arrays, addresses: Sequence[int], given: int | None) -> Any:
        """Enqueue the product of a, b, c and out on its stream: that was given, or is current.

        Returns the result, or `out`.
        """
        _, _, c, out = arrays
        is_here = execution.is_current(self.device)
        # What takes nothing from the framework needs no stream to be current.
        if is_here and self._is_plain and (c is out or not self._beta):
            if out is not None:
                self._run.enqueue((addresses[0], addresses[1], addresses[3]))
                return out
            out = self._make() if given is None else self._make_there()
            self._run.enqueue((addresses[0], addresses[1], self.framework.address(out)))
            return out
        if is_here and given is None:
            return self._prepare(arrays, addresses)
        with self.framework.entered(self.device, given), execution.current(self.device):
            return self._prepare(arrays, addresses)

    def writes_apart(self, addresses: Sequence[int], c_is_out: bool) -> bool:
        """Whether `out` ends before each other array begins, or begins after it."""
        *others, (_, first, end) = self._reaches
        low, high = addresses[3] + first, addresses[3] + end
        for i, first, end in others:
            at = addresses[i]
            if at + first < high and low < at + end and not (c_is_out and i == 2):
                return False
        return True

    def _prepare(self, arrays: Arrays, addresses: Sequence[int]) -> Any:
        """The general case: with copies of arrays, another c, nothing to multiply."""
        framework, layout = self.framework, self._layout
        a, b, c, out = arrays
        at_a, at_b = addresses[0], addresses[1]
        if "a" in layout.copies:
            a = framework.copied(a, layout.copies["a"])
            at_a = framework.address(a)
        if "b" in layout.copies:
            b = framework.copied(b, layout.copies["b"])
            at_b = framework.address(b)
        is_new = out is None or layout.through
        target = self._make() if is_new else out
        if self._beta and target is not c:
            framework.assign(target, c)
        if self._run is not None:
            self._run.enqueue((at_a, at_b, framework.address(target)))
        else:
            framework.scale(target, self._beta)
        if layout.through and out is not None:
            framework.assign(out, target)
            return out
        return target


class Bound:
    """A planned product and the arrays that it is to run with."""

    __slots__ = (
        *("_addresses", "_arrays", "_given", "_kept", "_place", "_taker"),
        "call",
    )

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
        given = None if stream is None else stream_handle(stream)
        arrays: Arrays = (a, b, c, out)
        kept: dict[str, PackedMatrix] = {}
        self._taker = None
        kind, framework = type(a), find(a)
        alike = type(b) is kind and (c is None or type(c) is kind)
        if framework is None or not alike or not (out is None or type(out) is kind):
            framework = framework_of(a)
            arrays, kept = _adopted(framework, arrays, given)
            if arrays[3] is not out or is_foreign(a):
                self._taker = _taker(a, out)
        form = framework.form
        try:
            forms: list[Any] = [None if x is None else form(x) for x in arrays]
        except ArrayError:
            _name_the_culprit(framework, arrays)
            raise
        device = forms[0][-1]
        handle = framework.stream(device) if given is None else given
        place = handle if handle != PER_THREAD else (handle, threading.get_ident())
        packed = tuple(operand.serial for operand in kept.values()) if kept else None
        key = (*forms, packed, scalars, precision, place, framework)
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
                with framework.entered(device, given):
                    call = Call(framework, named, kept, scalars, precision, handle)
                _remember(key, call)
        self.call, self._arrays, self._kept = call, arrays, kept
        self._addresses, self._given, self._place = addresses, given, place

    def is_current(self) -> bool:
        """Whether its work goes where it would go if it were bound now."""
        if self._given is not None:
            return True
        handle = self.call.framework.stream(self.call.device)
        return handle == self._place or (handle, threading.get_ident()) == self._place

    def repeat(self, given: Arrays, alpha: Any, beta: Any, precision: str | None) -> Repeat | None:
        """For products like this one, which those were given for; None where an array has come
        from another library, or `out` lies between parts of another."""
        if not (isinstance(alpha, _CONSTANT) and isinstance(beta, _CONSTANT)):
            return None
        _, _, c, out = given
        if out is not None and not self.call.writes_apart(self._addresses, c is out):
            return None
        kept, alike = self._kept, self.call.framework.alike
        looks: list[Any] = []
        for name, x, own in zip(_ARRAYS, given, self._arrays, strict=True):
            if own is not (x.array if name in kept else x):
                return None
            if x is None:
                looks.append(None)
            elif name in kept:
                looks.append(kept[name].alike())
            else:  # a and b are found by their shapes
                looks.append(alike(x, shaped=name not in ("a", "b")))
        packed = "a" in kept, "b" in kept
        return Repeat(self.call, looks, packed, alpha, beta, precision)

    def run(self) -> Any:
        """Enqueue the product; the result, an array of the library of `a`, or `out`."""
        call = self.call
        if self._taker is None:
            return call(self._arrays, self._addresses, self._given)
        with call.framework.entered(call.device, self._given), execution.current(call.device):
            return self._taker(call(self._arrays, self._addresses, None))


_ARRAYS = ("a", "b", "c", "out")
_calls: dict[Any, Call] = {}
_remembering = threading.Lock()


def _remember(key: Any, call: Call) -> None:
    with _remembering:
        if len(_calls) >= _MOST_CALLS:
            del _calls[next(iter(_calls))]
        _calls[key] = call


def _name_the_culprit(framework: Framework, arrays: Arrays) -> None:
    """Raise ArrayError with the name of the array that has no form."""
    for name, array in zip(_ARRAYS, arrays, strict=True):
        if array is not None:
            check_form(framework, array, name)


def framework_of(a: Any) -> Framework:
    """What computes products of an array, or of a packed operand, on a GPU."""
    return find(a) or (a.framework if isinstance(a, PackedMatrix) else carrier())


def is_foreign(a: Any) -> bool:
    """Whether results for this operand go back to another library."""
    return find(a) is None and not isinstance(a, PackedMatrix)


def _taker(a: Any, out: Any) -> Callable[[Any], Any] | None:
    """What makes of a result the caller's `out`, or an array of the library of the caller's `a`.

    Raises DTypeError where there is no such library.
    """
    if out is not None:
        return lambda result: out
    if not is_foreign(a):
        return None
    if not hasattr(a, "__array_namespace__"):
        raise DTypeError(f"a is a {type(a).__name__}, of no library that could take the result")
    take: Callable[[Any], Any] = a.__array_namespace__().from_dlpack
    return take


def _adopted(
    framework: Framework, arrays: Arrays, stream: int | None
) -> tuple[Arrays, dict[str, PackedMatrix]]:
    """Packed operands, and arrays of other libraries as ones of this framework.

    DLPack lets the stream of the product wait for those of other libraries.
    """
    kept, own = {}, []
    for name, array in zip(_ARRAYS, arrays, strict=True):
        if isinstance(array, PackedMatrix):
            if (name, array.side) not in (("a", "left"), ("b", "right")):
                raise ArrayError(f"{name} is packed for the {array.side} side of a product")
            kept[name], array = array, array.array
        if array is not None:
            on_host = is_on_host(array, name)
            if find(array) is not framework:
                if on_host:
                    raise operands.apart("a", arrays[0], "on a GPU", name, array, "on the host")
                array = imported(framework, name, array, stream)
        own.append(array)
    return tuple(own), kept


def imported(framework: Framework, name: str, array: Any, stream: int | None) -> Any:
    """An array of another library as one of this framework, without a copy. Raises ArrayError."""
    if name == "out" and find(array) is None:
        rule = "out must be an array of PyTorch or CuPy, whose memory may be written"
        raise ArrayError(f"out is a {type(array).__name__}: {rule}")
    try:
        with framework.entered(array.__dlpack_device__()[1], stream):
            return framework.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ArrayError(f"{name} cannot be taken through DLPack: {error}") from error
