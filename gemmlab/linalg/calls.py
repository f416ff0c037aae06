"""Products on GPUs, planned once per form of their operands and run at any addresses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from gemmlab.errors import CompileError, MissingDependencyError
from gemmlab.linalg import cublas, first_calls, operands, recent, shapes
from gemmlab.linalg.arrays import ArrayDescriptor
from gemmlab.linalg.operands import NAMES, PLAIN, Arrays, Operands, Scalars
from gemmlab.linalg.packed import PackedMatrix
from gemmlab.linalg.planned import ProductPlan, Saving, no_saving
from gemmlab.linalg.planning import tiers, times
from gemmlab.linalg.planning.program import Job
from gemmlab.linalg.planning.tiers import Choice, NotFaster
from gemmlab.linalg.recent import Repeat, Similar
from gemmlab.linalg.runtime import gpus, products
from gemmlab.linalg.runtime.products import Run
from gemmlab.linalg.runtime.workspaces import PER_THREAD

_MOST_PRODUCTS = 256  # planned products that are kept
_MOST_SEEN = 2048  # forms of operands in each of two generations of those that have run once
_CONSTANT = (type(None), int, float, np.floating)  # types of immutable scalars


class PlannedProduct:
    """A product of operands with given forms on one stream.

    It does not keep packed operands alive.
    """

    def __init__(self, described: Operands, stream: int) -> None:
        framework, arrays, packed = described.framework, described.named, described.packed
        scalars, precision = described.scalars, described.precision
        assert framework is not None
        self.framework, self.stream, self._beta = framework, stream, scalars.beta
        self.device = operands.check_arrays(arrays)
        self._arrays, sizes = arrays, operands.check_sizes(arrays)
        self._result = sizes.result
        self._make = framework.maker(sizes.result, self.device)
        self._make_on_stream: Callable[[], Any] | None = None
        self._layout = layout = operands.lay_out(arrays, sizes, packed)
        self._gpu = gpus.gpu(self.device)
        self._job: Job | None = None
        self._run: Run | None = None
        self.saving: Saving = no_saving
        if not sizes.k or 0 in sizes.result:
            self._choice = Choice("ieee", "nothing to multiply: an axis is empty")
            self.check_faster(described)
        else:
            case = operands.case_of(layout, self._gpu, packed)
            self._choice = tiers.choose(precision, case)
            self.check_faster(described)
            try:
                self._prepare(scalars, packed)
            except (CompileError, MissingDependencyError) as error:
                if self._choice.tier == "ieee" or precision is not None or packed:
                    raise
                self._choice = tiers.without_kernels(error)
                self.check_faster(described)
                self._prepare(scalars, packed)
            self.saving = cache(partial(times.saved_s, case, self._choice.seconds))
        self._needs_no_copy = self._run is not None and not (layout.copies or layout.through_copy)
        # Whether c is read in place; else it is copied to the result first.
        self._adds = layout.d is not None and self._choice.tier != "ieee"

    def check_faster(self, described: Operands) -> None:
        """Raise NotFaster if only products faster than in `ieee` are wanted, and this one is not.

        This precedes loading cuBLAS, which a program that wants no other products need not have.
        """
        if described.only_faster and self._choice.tier == "ieee":
            raise NotFaster(self._choice.reason)

    def _prepare(self, scalars: Scalars, packed: dict[str, PackedMatrix]) -> None:
        """Prepare the product's run in its tier. Raises CompileError and MissingDependencyError."""
        layout, place = self._layout, (self.framework, self.device, self.stream)
        choice, self._job = self._choice, None
        if choice.tier == "ieee":
            sgemm = cublas.Sgemm(layout.left, layout.right, layout.c, scalars.alpha, scalars.beta)
            self._run = products.SgemmRun(sgemm, layout.names, *place)
        else:
            self._job = operands.job_of(layout, choice, scalars, packed)
            self._run = products.TensorCoreRun(self._job, *place)

    @property
    def tier(self) -> str:
        return self._choice.tier

    @property
    def has_formulas(self) -> bool:
        """Whether products like it can be launched by formulas."""
        return self._needs_no_copy

    @cached_property
    def plan(self) -> ProductPlan:
        """Created on first use, because most programs never use it."""
        layout, choice, job, run = self._layout, self._choice, self._job, self._run
        workspace = 0 if run is None else cublas.WORKSPACE
        return ProductPlan(
            m=layout.c.rows,
            n=layout.c.columns,
            k=layout.left.depth,
            batch=layout.c.batch,
            device=f"GPU {self.device} {self._gpu.name}",
            tier=choice.tier,
            reason=choice.reason,
            fallback=choice.fallback,
            tolerated=None if job is None else job.most_wide,
            copies=tuple(layout.copies),
            workspace=workspace if job is None else sum(job.sizes(self._gpu.multiprocessors)),
            counts=(lambda: None) if run is None else run.counts,
        )

    def __call__(self, arrays: Arrays, addresses: Sequence[int], given_stream: int | None) -> Any:
        """Enqueue the product of a, b, c and out, at these addresses, on its stream.

        `given_stream` is that stream if the caller gave it, or None if it is the current stream.
        Returns `out`, or a new array.
        """
        _, _, c, out = arrays
        device_is_current = gpus.is_current(self.device)
        # Without work by the framework, the product's stream need not be the current one.
        copies_c = self._beta and c is not out and not self._adds
        if device_is_current and self._needs_no_copy and not copies_c:
            assert self._run is not None
            at_a, at_b, at_d, at = addresses
            if out is None:
                out = self._make() if given_stream is None else self._made_on_stream()
                at = self.framework.address(out)
            self._run.enqueue((at_a, at_b, at, at_d))
            return out
        if device_is_current and given_stream is None:
            return self._copy_and_run(arrays, addresses)
        with self.framework.entered(self.device, given_stream), gpus.current(self.device):
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

    @cached_property
    def _extents(self) -> list[tuple[int, int, int]]:
        """Index, first byte and end of each operand, relative to its address."""
        found = []
        for i, name in enumerate(NAMES):
            if name in self._arrays:
                first, end = shapes.extent(self._arrays[name].shape, self._arrays[name].strides)
                found.append((i, 4 * first, 4 * end))
        return found

    def _made_on_stream(self) -> Any:
        """Return new memory for the result, allocated on the product's stream."""
        if self._make_on_stream is None:
            self._make_on_stream = self.framework.maker(self._result, self.device, self.stream)
        return self._make_on_stream()

    def _copy_and_run(self, arrays: Arrays, addresses: Sequence[int]) -> Any:
        """Enqueue the product in the general case: copied operands, a separate c, an empty k."""
        framework, layout = self.framework, self._layout
        a, b, c, out = arrays
        at_a, at_b, at_d, _ = addresses
        if "a" in layout.copies:
            a = framework.copied(a, layout.copies["a"])
            at_a = framework.address(a)
        if "b" in layout.copies:
            b = framework.copied(b, layout.copies["b"])
            at_b = framework.address(b)
        is_new = out is None or layout.through_copy
        target = self._make() if is_new else out
        if self._beta and target is not c and not self._adds:
            framework.assign(target, c)
        if self._run is not None:
            self._run.enqueue((at_a, at_b, framework.address(target), at_d))
        else:
            framework.scale(target, self._beta)
        if layout.through_copy and out is not None:
            framework.assign(out, target)
            return out
        return target


class Form(NamedTuple):
    """What two products must have in common to use the same planned product."""

    key: tuple[Any, ...]  # of planned products
    stream: int
    place: Any  # the stream; with the thread if it is a different stream in each thread


def stream_of(described: Operands) -> int:
    """Return the stream that a product runs on."""
    framework, a, stream = described.framework, described.descriptors[0], described.stream
    if stream is None:
        assert framework is not None and a is not None
        stream = framework.stream(a.device)
    return stream


def place_of(stream: int) -> Any:
    """Return the `Form.place` of products on a stream."""
    return stream if stream != PER_THREAD else (stream, threading.get_ident())


def form_of(described: Operands) -> Form:
    """Return the form of a product's operands, and the stream that it runs on."""
    stream = stream_of(described)
    place = place_of(stream)
    forms = [None if x is None else x[1:] for x in described.descriptors]
    key = (
        *forms,
        _serials(described),
        described.scalars,
        described.precision,
        place,
        described.framework,
    )
    return Form(key, stream, place)


def _serials(described: Operands) -> tuple[int, ...]:
    packed = described.packed
    return tuple([operand.serial for operand in packed.values()]) if packed else ()


def compute(described: Operands, alpha: Any, beta: Any) -> Any:
    """Enqueue a product. Returns `out`, or a new array of the library of a.

    What makes later calls faster is prepared when operands of the same forms recur.
    """
    stream, first_form = stream_of(described), first_calls.form_of(described)
    comes_back = _was_seen(hash((first_form, place_of(stream), _serials(described))))
    if not comes_back:
        later = partial(_plan, described.descriptors, stream, *described.settings)
        if (result := first_calls.run(described, first_form, stream, later)) is not None:
            return result
    return _compute_planned(described, alpha, beta, first_form, comes_back)


def compute_similar(
    a: Any, b: Any, like: Similar, found: tuple[int, int, tuple[int, ...]], only_faster: bool
) -> Any:
    """Compute the product of a and b, as `like.describe` has found them, without options.

    It describes them no further if formulas can launch the product.
    """
    at_a, at_b, numbers = found
    stream = like.framework.stream(like.a.device)
    form = like.key, (*numbers, *PLAIN)
    comes_back = _was_seen(hash((form, place_of(stream), ())))
    if not comes_back:
        later = partial(_plan_similar, like, numbers, stream)
        place = like.framework, like.a.device, stream, None
        addresses = at_a, at_b, 0, 0
        result = first_calls.launch(form, place, addresses, None, only_faster, later)
        if result is not None:
            return result
    given, descriptors = (a, b, None, None), _similar(like, numbers, at_a, at_b)
    described = Operands(given, given, descriptors, PLAIN, None, like.framework)
    described.only_faster = only_faster
    return _compute_planned(described, None, None, form, comes_back)


def _compute_planned(
    described: Operands, alpha: Any, beta: Any, first_form: first_calls.Form, comes_back: bool
) -> Any:
    """Compute a product that formulas cannot launch, or whose form has occurred before."""
    try:
        bound = BoundProduct(described, form_of(described))
    except NotFaster:
        if not comes_back:
            first_calls.learn(described, first_form)
        raise
    result = bound.run()
    recent.remember(bound.planned)
    if not comes_back and bound.planned.has_formulas:
        first_calls.learn(described, first_form)
    elif comes_back and (repeat := bound.repeat(alpha, beta)):
        recent.keep(repeat, described.given[0], described.given[1])
    return result


def _similar(
    like: Similar, numbers: tuple[int, ...], at_a: int = 0, at_b: int = 0
) -> list[ArrayDescriptor | None]:
    """Return the descriptors of factors that `like.describe` has found."""
    factors = first_calls.with_numbers((like.a, like.b, None, None), numbers)
    return [factors["a"]._replace(address=at_a), factors["b"]._replace(address=at_b), None, None]


def _plan_similar(like: Similar, numbers: tuple[int, ...], stream: int) -> ProductPlan:
    return _plan(_similar(like, numbers), stream, PLAIN, None, like.framework)


def _plan(descriptors: list[ArrayDescriptor | None], stream: int, *settings: Any) -> ProductPlan:
    """Plan a product that has run; its operands may be gone."""
    gone = None, None, None, None
    return PlannedProduct(Operands(gone, gone, descriptors, *settings), stream).plan


class BoundProduct:
    """A planned product together with the operands that it runs with."""

    __slots__ = ("_addresses", "_operands", "_place", "planned")

    def __init__(self, described: Operands, form: Form) -> None:
        _, _, c, out = described.arrays
        descriptors, planned = described.descriptors, _planned.get(form.key)
        addresses = [0 if x is None else x[0] for x in descriptors]
        if planned is None or (out is not None and not planned.writes_apart(addresses, c is out)):
            if out is not None:
                operands.check_overlap(described.named)
            if planned is None:
                framework, a = described.framework, descriptors[0]
                assert framework is not None and a is not None
                with framework.entered(a.device, described.stream):
                    planned = PlannedProduct(described, form.stream)
                _keep(form.key, planned)
        planned.check_faster(described)
        self.planned, self._operands = planned, described
        self._addresses, self._place = addresses, form.place

    @property
    def plan(self) -> ProductPlan:
        return self.planned.plan

    def is_current(self) -> bool:
        """Whether the product runs on the stream that a new one would run on."""
        if self._operands.stream is not None:
            return True
        stream = self.planned.framework.stream(self.planned.device)
        return self._place in (stream, (stream, threading.get_ident()))

    def repeat(self, alpha: Any, beta: Any) -> Repeat | None:
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
        precision = self._operands.precision
        return Repeat(self.planned, matchers, is_packed, alpha, beta, precision)

    def run(self) -> Any:
        """Enqueue the product. Returns `out`, or a new array of the library of a."""
        planned, described = self.planned, self._operands
        arrays, stream, restore = described.arrays, described.stream, described.restore
        if restore is None:
            return planned(arrays, self._addresses, stream)
        with planned.framework.entered(planned.device, stream), gpus.current(planned.device):
            return restore(planned(arrays, self._addresses, None))


_planned: dict[Any, PlannedProduct] = {}
_seen, _seen_before = set[int](), set[int]()  # hashes of what `form_of` distinguishes
_keeping = threading.Lock()


def _keep(key: Any, planned: PlannedProduct) -> None:
    with _keeping:
        if len(_planned) >= _MOST_PRODUCTS:
            del _planned[next(iter(_planned))]
        _planned[key] = planned


def _was_seen(form: int) -> bool:
    """Whether a form, given its hash, has occurred before."""
    global _seen, _seen_before
    if form in _seen or form in _seen_before:
        return True
    if len(_seen) >= _MOST_SEEN:
        _seen, _seen_before = set(), _seen
    _seen.add(form)  # if another thread starts a generation here, the form may count as new again
    return False
