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

from gemmlab.linalg import cublas, operands, recent
from gemmlab.linalg.arrays import ArrayDescriptor, Framework, is_float32
from gemmlab.linalg.operands import NAMES, Operands, Scalars
from gemmlab.linalg.planned import Counts, ProductPlan
from gemmlab.linalg.planning import kinds, tiers, times
from gemmlab.linalg.planning.formulas import NotTraceable, Traces
from gemmlab.linalg.planning.kinds import Kinds
from gemmlab.linalg.planning.tiers import NO_FASTER, NotFaster
from gemmlab.linalg.runtime import gpus, products
from gemmlab.linalg.runtime.gpus import Gpu
from gemmlab.linalg.runtime.workspaces import Workspace, workspace

_MOST = 32  # paths with the same key; further products are planned in general
_BATCH = kinds.Numbers._fields.index("batch")

Descriptors = Sequence[ArrayDescriptor | None]  # of a, b, c and out


class Path:
    """Operands that take the same path through the rules and the layout.

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
        """Add the path to others. Raises NotTraceable if the operands must be copied, an axis is
        empty, or the product can run only in `ieee`."""
        self.in_place = False
        self._names = ("a", "b")  # of the left and the right factor, and whether they are K-major
        self._k_major = (True, False)
        # For each tier: `kinds.key_of` its products, and the choices of tiles; empty for `ieee`.
        self._keys: list[tuple[Any, Sequence[Any]]] = []
        self.tiers: times.Names = ()
        self.decide: Callable[..., times.Decision]  # given m, n, k and the matrices of a stack
        self._kinds: dict[tuple[int, Sequence[int]], Kinds] = {}
        self._gpu, sms, index = gpu, gpu.multiprocessors, len(paths.each)

        def planned(*given: Any) -> tuple[Any, ...]:
            *numbers, alpha, beta = given
            arrays = with_numbers(descriptors, numbers)
            sizes = operands.check_sizes(arrays)
            layout = operands.lay_out(arrays, sizes, {})
            choices = tiers.offered(precision, operands.case_of(layout, gpu, {}))
            if layout.copies or layout.through_copy or choices[-1].tier == "ieee":
                raise NotTraceable
            if not sizes.k or 0 in sizes.result:
                raise NotTraceable
            job = None
            self.tiers = tiers.names_of(choices)
            for choice in choices:
                if choice.tier == "ieee":
                    self._keys.append((None, ()))
                    continue
                job = operands.job_of(layout, choice, Scalars(alpha, beta), {})
                self._keys.append((kinds.key_of(job, sms), job.tile_choices()))
            assert job is not None
            self.in_place = bool(job.beta) and job.d is None
            self._names, self._k_major = layout.names, (layout.left.k_major, layout.right.k_major)
            of_gpu = gpu.capability, sms, self._k_major
            self.decide = times.formulas(times.decide, *of_gpu, self.tiers)
            return index, sizes.result, (*kinds.numbers_of(job),)

        paths.each.append(self)  # before another thread can find its index
        paths.traces.add((*_numbers(descriptors), *scalars), planned)

    def sgemm(self, numbers: Sequence[Any]) -> tuple[cublas.Sgemm, tuple[str, str]] | None:
        """Return the product in `ieee` with the names of its factors; None if c must be copied."""
        x = kinds.Numbers(*numbers)
        if x.beta and not self.in_place:
            return None
        return cublas.Sgemm(*x.operands(*self._k_major), x.c, x.alpha, x.beta), self._names

    def saved_s(self, seconds: Sequence[float | None], numbers: Sequence[Any]) -> float:
        """`times.saved_s` of a product, given the seconds that `decide` has returned."""
        x = kinds.Numbers(*numbers)
        sizes, gpu = (x.vectors_left, x.vectors_right, x.depth, x.batch), self._gpu
        case = times.Case(*sizes, gpu.capability, gpu.multiprocessors, self._k_major)
        own = times.own_seconds(case, seconds) if len(self.tiers) > 1 else None
        return times.saved_s(case, own)

    def kinds(self, chosen: int, indexes: Sequence[int]) -> Kinds | None:
        """Return the kinds of products that have run in this tier with these tiles."""
        found = self._kinds.get((chosen, indexes))
        if found is None:
            key, tiles = self._keys[chosen]
            if key is not None:
                found = kinds.find(key, [x[i] for x, i in zip(tiles, indexes, strict=True)])
            if found is not None:
                self._kinds[chosen, indexes] = found
        return found


class Paths:
    """Paths of products with the same key.

    The function of `traces` takes the operands' shapes and strides, alpha and beta. It returns the
    index of their path in `each`, the shape of the result, and `kinds.Numbers`; None for operands
    on another path.
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


def with_numbers(descriptors: Descriptors, numbers: Sequence[Any]) -> dict[str, ArrayDescriptor]:
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
        planned: Callable[[], ProductPlan],
        saving: tuple[Path, Sequence[float | None], Sequence[Any]] | None,
    ) -> None:
        """space: the stream's workspace; None for `ieee`, which counts nothing. saving: what
        `Path.saved_s` needs; None if nothing is saved."""
        self._space, self._report, self._planned, self._saving = space, report, planned, saving

    def saving(self) -> float:
        """The predicted seconds of GPU time saved compared with `ieee`."""
        if self._saving is None:
            return 0.0
        path, *given = self._saving
        return path.saved_s(*given)

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
# Framework, device and stream of a product, and the stream if the caller gave it.
Place = tuple[Framework, int, int, int | None]
# What products must share so that one path may fit both, and the arguments of the function of
# `Paths`.
Form = tuple[tuple[Any, ...], tuple[Any, ...]]


def form_of(described: Operands) -> Form:
    descriptors = described.descriptors
    key = operands.key_of(descriptors, described.precision)
    return key, (*_numbers(descriptors), *described.scalars)


def run(described: Operands, form: Form, stream: int, planned: Callable[[], ProductPlan]) -> Any:
    """Enqueue a product on a stream and return the result; None if formulas cannot launch it.

    They cannot if an operand is wrong, packed or an array of another library, must be copied, or if
    no similar product has run before. Nothing has been written then. `planned` plans it in general.
    """
    a, b, c, out = descriptors = described.descriptors
    assert a is not None and b is not None and described.framework is not None
    if described.packed or described.restore:
        return None
    for x in descriptors:
        if x is not None and not (x.device == a.device and is_float32(x.dtype)):
            return None
    place = described.framework, a.device, stream, described.stream
    addresses = a.address, b.address, out.address if out else 0, c.address if c else 0
    return launch(form, place, addresses, described, described.only_faster, planned)


def launch(
    form: Form,
    place: Place,
    addresses: tuple[int, int, int, int],
    described: Operands | None,
    only_faster: bool,
    planned: Callable[[], ProductPlan],
) -> Any:
    """`run` operands of float32 on one device, in this order: a, b, out and c.

    `described`: None if there are only a and b.
    """
    (key, numbers), (framework, device, stream, given_stream) = form, place
    if not gpus.is_current(device):
        return None
    paths = _paths.get(key)
    found = None if paths is None else paths.traces.function(*numbers)
    if paths is None or found is None:
        return None
    index, shape, of_job = found
    path: Path = paths.each[index]
    chosen, tiles_of_tiers, seconds = path.decide(*of_job[:3], of_job[_BATCH])
    out = None
    if described is not None:
        _, _, c, out = described.arrays
        if path.in_place and c is not out:
            return None
    alike, sgemm = path.kinds(chosen, tiles_of_tiers[chosen]), None
    if path.tiers[chosen][0] == "ieee":
        if only_faster:
            raise NotFaster(NO_FASTER)
        sgemm = path.sgemm(of_job)
    if not sgemm and (not alike or products.is_recording(stream)):
        return None
    at_a, at_b, at, at_d = addresses
    if out is not None:
        assert described is not None
        operands.check_overlap(described.named)
        result = out
    else:
        result = framework.maker(shape, device, given_stream)()
        at = framework.address(result)
    addresses = at_a, at_b, at, at_d
    if sgemm:
        products.SgemmRun(*sgemm, framework, device, stream).enqueue(addresses)
        recent.remember(FirstCall(None, 0, planned, None))
        return result
    space = workspace(framework, device, stream)
    with space.lock:
        report = space.take_report()
        assert alike is not None
        found = alike.plan(*of_job, report, *addresses, space.places)
        if found is None:
            space.give_report(report)
            return None
        kind, grids, launches = found
        # If it fails, the report is not given back: its counters may no longer be zero.
        space.launcher.chain(alike.each[kind]).launch(grids, launches, stream)
    recent.remember(FirstCall(space, report, planned, (path, seconds, of_job)))
    return result


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
