"""The first product of a form: launched by formulas, from the shapes and strides of its operands.

It makes no lasting objects. If operands of the same forms recur, their product is planned for
further calls (calls.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

from gemmlab.linalg import cublas, operands
from gemmlab.linalg.arrays import ArrayDescriptor, is_float32
from gemmlab.linalg.operands import NAMES, Operands, Scalars
from gemmlab.linalg.planned import Counts, ProductPlan
from gemmlab.linalg.planning import kinds, tiers
from gemmlab.linalg.planning.formulas import NotTraceable, Traces
from gemmlab.linalg.planning.kinds import Kind
from gemmlab.linalg.planning.tiers import check_worthwhile
from gemmlab.linalg.runtime import gpus, products
from gemmlab.linalg.runtime.gpus import Gpu
from gemmlab.linalg.runtime.workspaces import Workspace, workspace

_MOST = 32  # paths with the same key; further products are planned in general

Descriptors = Sequence[ArrayDescriptor | None]  # of a, b, c and out


class Path:
    """Operands that take the same path through the rules, the layout, and the predicted times.

    If `in_place`, the product adds to `out`, which must be c.
    """

    def __init__(
        self,
        paths: Paths,
        descriptors: Descriptors,
        scalars: Scalars,
        precision: str | None,
        gpu: Gpu,
    ) -> None:
        """Add the path to others. Raises NotTraceable if the operands must be copied, or the
        product can run only in `ieee`."""
        self.in_place = False
        self._names = ("a", "b")  # of the left and the right factor, and whether they are K-major
        self._k_major = (True, False)
        # `kinds.key_of` the products in each tier, and the tiles of each; nothing for `ieee`.
        self._tiers: list[tuple[Any, Sequence[Any]]] = []
        self._names_of_tiers: list[str] = []
        self._kinds: dict[tuple[int, Sequence[int]], list[Kind]] = {}
        sms, index = gpu.multiprocessors, len(paths.each)

        def planned(*given: Any) -> tuple[Any, ...]:
            *numbers, alpha, beta = given
            arrays = _with_numbers(descriptors, numbers)
            sizes = operands.check_sizes(arrays)
            layout = operands.lay_out(arrays, sizes, {})
            choices, chosen = tiers.options(precision, operands.case_of(layout, gpu, {}))
            if layout.copies or layout.through_copy or choices[-1].tier == "ieee":
                raise NotTraceable
            if not sizes.k or 0 in sizes.result:
                raise NotTraceable
            indexes, job = [], None
            self._names_of_tiers = [choice.tier for choice in choices]
            for choice in choices:
                if choice.tier == "ieee":
                    self._tiers.append((None, ()))
                    indexes.append(())
                    continue
                job = operands.job_of(layout, choice, Scalars(alpha, beta), {})
                tiles, places = zip(*job.tile_choices(sms), strict=True)
                self._tiers.append((kinds.key_of(job, sms), tiles))
                indexes.append(places)
            assert job is not None
            self.in_place = bool(job.beta) and job.d is None
            self._names, self._k_major = layout.names, (layout.left.k_major, layout.right.k_major)
            saved = tuple(choice.saved_s for choice in choices)
            of_job = (*kinds.numbers_of(job),)
            return index, sizes.result, chosen, tuple(indexes), saved, of_job

        paths.each.append(self)  # before another thread can find its index
        paths.traces.add((*_numbers(descriptors), *scalars), planned)

    def tier(self, chosen: int) -> str:
        """The name of the tier with that index."""
        return self._names_of_tiers[chosen]

    def sgemm(self, numbers: Sequence[Any]) -> tuple[cublas.Sgemm, tuple[str, str]] | None:
        """Return the product in `ieee` with the names of its factors; None if c must be copied."""
        x = kinds.Numbers(*numbers)
        if x.beta and not self.in_place:
            return None
        return cublas.Sgemm(*x.operands(*self._k_major), x.c, x.alpha, x.beta), self._names

    def kinds(self, chosen: int, indexes: Sequence[int]) -> list[Kind]:
        """Return the kinds of products that have run in this tier with these tiles."""
        found = self._kinds.get((chosen, indexes))
        if found is None:
            key, tiles = self._tiers[chosen]
            if key is None:
                return []
            found = kinds.find(key, [x[i] for x, i in zip(tiles, indexes, strict=True)])
            if found is None:
                return []
            self._kinds[chosen, indexes] = found
        return found


class Paths:
    """Paths of products with the same key.

    The function of `traces` takes the operands' shapes and strides, alpha and beta. It returns the
    index of their path in `each`, the shape of the result, the index of the tier in `Path._tiers`,
    for each tier the index of each tile in its tiles, for each tier the seconds that it saves, and
    `kinds.Numbers`; None for operands on another path.
    """

    def __init__(self, count: int) -> None:
        """count: the number of the function's arguments."""
        self.each: list[Path] = []  # also paths of products that have no function
        self.traces = Traces([f"x{i}" for i in range(count)])


def _numbers(descriptors: Descriptors) -> list[int]:
    """The numbers that describe operands: shape and strides of each."""
    numbers: list[int] = []
    for x in descriptors:
        if x is not None:
            numbers += x.shape
            numbers += x.strides
    return numbers


def _with_numbers(descriptors: Descriptors, numbers: list[Any]) -> dict[str, ArrayDescriptor]:
    """Return descriptors by name, with other `_numbers`."""
    found, rest = {}, iter(numbers)
    for name, x in zip(NAMES, descriptors, strict=True):
        if x is not None:
            shape, strides = (tuple(next(rest) for _ in x.shape) for _ in "ss")
            found[name] = x._replace(shape=shape, strides=strides)
    return found


class FirstCall:
    """A product that has run by formulas; it keeps its report, but no operand."""

    def __init__(
        self,
        space: Workspace | None,
        report: int,
        saved_s: float,
        planned: Callable[[], ProductPlan],
    ) -> None:
        """space: the stream's workspace; None for `ieee`, which counts nothing."""
        self._space, self._report, self._planned = space, report, planned
        self.saved_s = saved_s

    @cached_property
    def plan(self) -> ProductPlan:
        """The plan, made on first access, as of any other product."""
        planned = self._planned()
        if planned.counts() is None:  # as of each product like it
            return planned
        return replace(planned, counts=self._counts)

    def _counts(self) -> Counts:
        assert self._space is not None
        return self._space.counts(self._report)

    def __del__(self) -> None:
        if self._space is not None:
            self._space.give_report(self._report)


_paths: dict[Any, Paths] = {}
_learning = threading.Lock()
# What products must share so that one path may fit both, and the arguments of the function of
# `Paths`.
Form = tuple[tuple[Any, ...], tuple[Any, ...]]


def form_of(described: Operands) -> Form:
    a, b, c, out = descriptors = described.descriptors
    assert a is not None and b is not None
    ranks = len(a.shape), len(b.shape), c and len(c.shape), out and len(out.shape)
    key = *ranks, described.precision, a.device
    return key, (*_numbers(descriptors), *described.scalars)


def run(
    described: Operands, form: Form, stream: int, planned: Callable[[], ProductPlan]
) -> tuple[Any, FirstCall] | None:
    """Enqueue a product on a stream; return its result and `FirstCall`, or None if it cannot run.

    It cannot if an operand is wrong, packed or an array of another library, must be copied, or if
    no similar product has run before. Nothing has been written then. `planned` plans it in general.
    """
    (key, numbers), framework = form, described.framework
    a, b, c, out = descriptors = described.descriptors
    assert a is not None and b is not None and framework is not None
    device = a.device
    if described.packed or described.restore or not gpus.is_current(device):
        return None
    for x in descriptors:
        if x is not None and not (x.device == device and is_float32(x.dtype)):
            return None
    paths = _paths.get(key)
    found = None if paths is None else paths.traces.function(*numbers)
    if paths is None or found is None:
        return None
    index, shape, chosen, indexes, saved, of_job = found
    path: Path = paths.each[index]
    if path.in_place and described.arrays[2] is not described.arrays[3]:
        return None
    alike, sgemm = path.kinds(chosen, indexes[chosen]), None
    if described.only_faster:
        check_worthwhile(path.tier(chosen), saved[chosen])
    if path.tier(chosen) == "ieee":
        sgemm = path.sgemm(of_job)
    if not (alike or sgemm):
        return None
    if out is not None:
        operands.check_overlap(described.named)
    if not sgemm and products.is_recording(stream):
        return None
    at_d, at = c.address if c else 0, out.address if out else 0
    if out is None:
        result = framework.maker(shape, device, described.stream)()
        at = framework.address(result)
    else:
        result = described.arrays[3]
    addresses = a.address, b.address, at, at_d
    if sgemm:
        products.SgemmRun(*sgemm, framework, device, stream).enqueue(addresses)
        return result, FirstCall(None, 0, 0.0, planned)
    space = workspace(framework, device, stream)
    with space.lock:
        report = space.take_report()
        for i, kind in enumerate(alike):
            launches = kind.plan(*of_job, report, *addresses, space.places)
            if launches is not None:
                alike[i], alike[0] = alike[0], kind
                # If it fails, the report is not given back: its counters may no longer be zero.
                space.launcher.launch_kind(kind, *launches, stream)
                return result, FirstCall(space, report, saved[chosen], planned)
        space.give_report(report)
    return None


def learn(described: Operands, form: Form) -> None:
    """Find the path of a product that has run, for those that follow. Takes milliseconds."""
    descriptors, (key, numbers) = described.descriptors, form
    a = descriptors[0]
    assert a is not None
    if described.packed or described.restore:
        return
    with _learning:
        found = _paths.get(key)
        if found is None:  # a program may have only one product of this sort
            _paths[key] = Paths(len(numbers))
        elif len(found.each) < _MOST:
            if found.traces.function(*numbers) is not None:
                return  # its kernels were not loaded, or none of their formulas applied
            scalars, precision = described.scalars, described.precision
            with suppress(NotTraceable):
                Path(found, descriptors, scalars, precision, gpus.gpu(a.device))
