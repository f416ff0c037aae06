"""A product bound to arrays of one kind, shape and place: planned once, run at any addresses."""

from __future__ import annotations

from typing import Any

from gemmlab.errors import ArrayError
from gemmlab.linalg import cublas, execution, operands, tiers
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
        self._layout = layout = operands.lay_out(arrays, sizes, kept)
        gpu = execution.gpu(self.device)
        choice = tiers.choose(precision, operands.case_of(layout, gpu, kept))
        self._run: Any = None
        workspace, tolerated = 0, None
        if not sizes.k or 0 in sizes.result:
            choice = Choice("ieee", "nothing to multiply: an axis is empty")
        elif choice.tier == "ieee":
            a, b = layout.left.operand(), layout.right.operand()
            assert a is not None and b is not None
            sgemm = cublas.Sgemm(a, b, layout.c, scalars.alpha, scalars.beta)
            space = execution.workspace(framework, self.device, stream)
            self._run = execution.SgemmRun(sgemm, layout.names, self.device, stream, space)
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

    def __call__(self, a: Any, b: Any, c: Any, out: Any, addresses: dict[str, int]) -> Any:
        """Enqueue the product; `addresses` are those of the arrays. The result, or `out`."""
        framework, layout = self._framework, self._layout
        if self._run is None or layout.copies or layout.through or self._beta:
            return self._prepared(a, b, c, out, addresses)
        if out is None:
            out = framework.empty(self._shape, self.device)
            addresses["c"] = framework.facts(out).address
        else:
            addresses["c"] = addresses["out"]
        self._run.enqueue(addresses)
        return out

    def _prepared(self, a: Any, b: Any, c: Any, out: Any, addresses: dict[str, int]) -> Any:
        """The general case: with copies of arrays, with c, with nothing to multiply."""
        framework, layout = self._framework, self._layout
        copies = []
        for name, array in (("a", a), ("b", b)):
            if name in layout.copies:
                copies.append(framework.copied(array, layout.copies[name]))
                addresses[name] = framework.facts(copies[-1]).address
        target = out
        if out is None or layout.through:
            target = framework.empty(self._shape, self.device)
        target_facts = framework.facts(target)
        if self._beta and (c is not out or layout.through):
            framework.assign(target, c)
        if self._run is not None:
            self._run.enqueue({**addresses, "c": target_facts.address})
        else:
            framework.scale(target, self._beta)
        if target is not out and out is not None:
            framework.assign(out, target)
            return out
        return target


class Arguments:
    """The arrays of one product on a GPU, in the framework of the first, and their addresses."""

    def __init__(self, framework: Framework, a: Any, b: Any, c: Any, out: Any, stream: Any) -> None:
        self.framework = framework
        self.kept: dict[str, PackedMatrix] = {}
        self.arrays: dict[str, Any] = {}
        self.facts: dict[str, Facts] = {}
        for name, array in (("a", a), ("b", b), ("c", c), ("out", out)):
            if array is not None:
                self.put(name, array)
        self.given = None if stream is None else stream_handle(stream)
        device = self.facts["a"].device
        self.stream = framework.stream(device) if self.given is None else self.given

    def put(self, name: str, array: Any) -> None:
        """Take an array, or a packed operand, under that name."""
        if isinstance(array, PackedMatrix):
            if (name, array.side) not in (("a", "left"), ("b", "right")):
                raise ArrayError(f"{name} is packed for the {array.side} side of a product")
            self.kept[name] = array
            self.arrays[name], self.facts[name] = array.array, array.facts
            return
        own = find(array)
        if own is not self.framework:
            array = self._carried(name, array, own)
        self.arrays[name], self.facts[name] = array, self.framework.facts(array)

    def _carried(self, name: str, array: Any, own: Framework | None) -> Any:
        """An array of another library, as one of this framework in the same memory."""
        if is_on_host(array, name):
            raise ArrayError(f"a is on a GPU and {name} is on the host: both must be on one device")
        if name == "out" and own is None:
            rule = "out must be an array of PyTorch or CuPy, whose memory may be written"
            raise ArrayError(f"out is a {type(array).__name__}: {rule}")
        return self.framework.from_dlpack(array)

    def call(self, scalars: Scalars, precision: str | None) -> Call:
        """The planned product for these arrays: remembered, or made now."""
        facts, kept = self.facts, self.kept
        shapes = tuple(
            (name, of.shape, of.strides, of.dtype, of.device) for name, of in facts.items()
        )
        key = (self.framework.name, shapes, tuple(map(id, kept.values())), scalars, precision)
        call = _calls.get((key, self.stream))
        if call is None:
            operands.check_overlap(facts)
            with self.framework.entered(facts["a"].device, self.given):
                call = Call(self.framework, facts, kept, scalars, precision, self.stream)
            if len(_calls) >= _MOST_CALLS:
                _calls.pop(next(iter(_calls)), None)
            _calls[key, self.stream] = call
        elif "out" in facts:
            operands.check_overlap(facts)
        return call

    def run(self, call: Call) -> Any:
        """Enqueue the product."""
        get = self.arrays.get
        addresses = {name: facts.address for name, facts in self.facts.items()}
        with self.framework.entered(call.device, self.given):
            return call(get("a"), get("b"), get("c"), get("out"), addresses)


_calls: dict[Any, Call] = {}


def framework_of(a: Any) -> Framework:
    """What computes products of an array, or of a packed operand, on a GPU."""
    return a.framework if isinstance(a, PackedMatrix) else find(a) or carrier()


def is_foreign(a: Any) -> bool:
    """Whether results for this operand go back to another library."""
    return not isinstance(a, PackedMatrix) and find(a) is None


def forget() -> None:
    """Drop all planned products."""
    _calls.clear()
