"""Products of DTensors: planned, carried out by PyTorch's collectives, differentiable.

matmul → agreed (once per form) → planning.plan → redistribute → gemmlab.matmul of the shards
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from gemmlab.core.packages import TORCH
from gemmlab.distributed import links, overlap, placements, planning, plans
from gemmlab.distributed.links import Machine
from gemmlab.distributed.placements import PARTIAL, REPLICATE, Placements
from gemmlab.distributed.plans import Plan
from gemmlab.errors import (
    ArrayError,
    DTypeError,
    InputError,
    PlacementError,
    ShapeError,
    StateError,
)
from gemmlab.linalg import entry, operands
from gemmlab.linalg.planning import tiers

with TORCH.importing():
    import torch
    import torch.distributed as dist
    from torch import Tensor
    from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard


class _Options(NamedTuple):
    """The options of a product."""

    alpha: float | None
    precision: str | None
    wanted: Placements | None
    overlap: bool | None


def multiply(
    a: Any,
    b: Any,
    c: Any,
    out: Any,
    alpha: float | None,
    beta: float | None,
    precision: str | None,
    out_placements: Sequence[Placement] | None,
    overlapped: bool | None,
) -> DTensor:
    """`gemmlab.distributed.matmul` of DTensors. Raises as that does."""
    key = None
    if c is None and out is None and beta is None and type(a) is type(b) is DTensor:
        key = _form(a, b, alpha, precision, out_placements, overlapped)
        route = _routes.get(key)
        if route is not None and route.fits(a, b):
            return route(a, b)
    operands.check_scalars(b, c, alpha, beta)
    tiers.check_precision(precision)
    given = {
        name: x for name, x in zip(operands.NAMES, (a, b, c, out), strict=True) if x is not None
    }
    mesh = _mesh(given)
    asked = None if out_placements is None else tuple(map(str, out_placements))
    names = ("alpha", "beta", "precision", "out_placements", "overlap")
    chosen = zip(names, (alpha, beta, precision, asked, overlapped), strict=True)
    _agree(mesh, given, tuple(option for option in chosen if option[1] is not None))
    for name, x in given.items():
        if x.dtype != torch.float32:
            raise DTypeError(f"{name} is a DTensor of {x.dtype}; it must be float32")
    is_row, is_column = a.dim() == 1, b.dim() == 1  # vectors
    left = a.unsqueeze(0) if is_row else a
    right = b.unsqueeze(1) if is_column else b
    shape = plans.check_shapes(left.shape, right.shape)
    final = (*shape[:-2], *shape[-2:][is_row : 2 - is_column])
    if c is not None:
        _check_added(c, final)
    records = torch.is_grad_enabled() and any(x.requires_grad for x in given.values())
    if out is not None:
        if out_placements is not None:
            raise InputError("out has placements of its own: give out or out_placements, not both")
        if records:
            raise ArrayError("with out, a product has no derivative: call it under torch.no_grad()")
        if tuple(out.shape) != shape or len(final) < 2:
            raise ShapeError(f"out has shape {tuple(out.shape)}; it must be a matrix {shape}")
        out_placements = out.placements
    wanted: Placements | None = None
    if out_placements is not None:
        plain = _plain(out_placements, "out" if out is not None else "out_placements")
        wanted = placements.checked(plain, len(final), tuple(mesh.shape), "the result")
        if is_row:  # the result lacks the axis of rows
            rows = len(shape) - 2
            wanted = tuple(p + 1 if isinstance(p, int) and p >= rows else p for p in wanted)
    options = _Options(alpha, precision, wanted, overlapped)
    if c is not None and wanted is None:
        options = options._replace(wanted=_reduced(_planned(left, right, options).c, shape))
    if records:
        found = _Product.apply(left, right, options)
    else:
        route = _Route(left, right, options)
        found = route(left, right, out)
        if key is not None and len(final) == len(shape):
            if len(_routes) >= _MOST_ROUTES:
                _routes.clear()
            _routes[key] = route
    if is_row:
        found = found.squeeze(-2)
    if is_column:
        found = found.squeeze(-1)
    return found if c is None or not beta else _add(found, c, beta, out)


def explain(a: DTensor, b: DTensor, out_placements: Any, overlapped: bool | None) -> Plan:
    """The plan of a product of matrices. Raises as `matmul`."""
    _mesh({"a": a, "b": b})
    wanted = None if out_placements is None else _plain(out_placements, "out_placements")
    return _planned(a, b, _Options(None, None, wanted, overlapped))


def _planned(a: DTensor, b: DTensor, options: _Options) -> Plan:
    at, mesh = (_plain(a.placements, "a"), _plain(b.placements, "b")), a.device_mesh
    machine = _machine(mesh)
    sizes = tuple(mesh.shape)
    return planning.plan(a.shape, b.shape, sizes, at, options.wanted, machine, options.overlap)


def _machine(mesh: Any) -> Machine:
    return links.current(_gpu() if mesh.device_type == "cuda" else "")


@cache
def _gpu() -> str:
    return str(torch.cuda.get_device_name())


class _Route:
    """What a planned alpha·a·b takes, for operands of one form."""

    def __init__(self, a: DTensor, b: DTensor, options: _Options) -> None:
        plan = _planned(a, b, options)
        self._mesh, self._plan, self._machine = a.device_mesh, plan, plan.machine
        self._shape = plans.check_shapes(a.shape, b.shape)
        self._scalars: dict[str, Any] = {"alpha": options.alpha, "precision": options.precision}
        to_a, to_b, made = list(plan.at_a), list(plan.at_b), list(plan.at_c)
        self._way = way = plan.overlap
        if way is not None and way.what == "a":
            to_a[way.dimension] = plan.a[way.dimension]
        elif way is not None and way.what == "b":
            to_b[way.dimension] = plan.b[way.dimension]
        elif way is not None:
            made[way.dimension] = plan.c[way.dimension]
        self._to, self._made = (tuple(to_a), tuple(to_b)), tuple(made)
        self._length: int | None = None  # of the axis that is gathered; None: as the operand is cut
        if way is not None and not way.turned:
            self._length = {"m": a.shape[-2], "k": a.shape[-1], "n": b.shape[-1]}[way.axis]

    def fits(self, a: DTensor, b: DTensor) -> bool:
        """Whether it holds for operands of its form.

        An equal mesh may have other groups, made after the first ones were destroyed.
        """
        return (
            a.device_mesh is self._mesh
            and b.device_mesh is self._mesh
            and _machine(self._mesh) is self._machine
            and not (torch.is_grad_enabled() and (a.requires_grad or b.requires_grad))
        )

    def __call__(self, a: DTensor, b: DTensor, out: DTensor | None = None) -> DTensor:
        plan, mesh = self._plan, self._mesh
        with torch.no_grad():
            local_a, local_b = (
                _moved(x, at, name) for x, at, name in zip((a, b), self._to, "ab", strict=True)
            )
            is_in_place = out is not None and plan.c == plan.at_c
            into = out.to_local() if out is not None and is_in_place else None
            local = self._multiplied(local_a, local_b, into)
            found = _wrapped(local, mesh, self._made, self._shape)
            if self._made != plan.c:
                what = "the redistribution of the result"
                with overlap.recorded("wait"), overlap.communicating(what):
                    found = found.redistribute(mesh, _torch(plan.c))
            if out is None:
                return found
            if not is_in_place:
                out.to_local().copy_(found.to_local())
            return out

    def _multiplied(self, a: Tensor, b: Tensor, out: Tensor | None) -> Tensor:
        way, scalars = self._way, self._scalars
        if way is None:
            with overlap.recorded("multiply"):
                return torch.as_tensor(entry.product(a, b, out=out, **scalars))
        group = self._mesh.get_group(way.dimension)
        if way.what == "c":
            return overlap.scattered_product(a, b, way.axis, way.pieces, group, scalars)
        length = self._length
        if length is None:
            length = a.shape[-2] if way.what == "a" else b.shape[-1]
        size = (way.what, way.axis, length, way.pieces)
        return overlap.gathered_product(
            a, b, *size, group, scalars, out, parts=way.parts, turned=way.turned
        )


_MOST_ROUTES = 256
_routes: dict[Any, _Route] = {}  # of recent products, by form


def _form(a: DTensor, b: DTensor, *options: Any) -> Any:
    """What products have in common that one route serves; None if an option has no hash."""
    # NOTE: not public. A specification has mesh, placements, shape, strides, type, and their hash.
    alpha, precision, at, overlapped = options
    try:
        key = a._spec, b._spec, alpha, precision, at and tuple(at), overlapped
        hash(key)
    except TypeError:
        return None
    return key


def _add(found: DTensor, c: DTensor, beta: float, out: DTensor | None) -> DTensor:
    """Return found + beta·c in the placements of `found`, in place if it is `out`."""
    at = _plain(found.placements, "the result")
    into = placements.broadcast(at, found.dim(), c.shape)
    if PARTIAL in into:  # asked for: the first process of each sum adds c
        whole = tuple(REPLICATE if p == PARTIAL else p for p in into)
        with overlap.communicating("the redistribution of c"):
            everywhere = c.redistribute(c.device_mesh, _torch(whole))
        local = everywhere.to_local(grad_placements=_torch(into))
        ranks = zip(into, c.device_mesh.get_coordinate(), strict=True)
        share = beta if all(p != PARTIAL or rank == 0 for p, rank in ranks) else 0.0
        added = _wrapped(share * local, c.device_mesh, into, tuple(c.shape))
    else:
        with overlap.communicating("the redistribution of c"):
            added = beta * c.redistribute(c.device_mesh, _torch(into))
    return found + added if out is None else out.add_(added)


def _reduced(at: Placements, shape: tuple[int, ...]) -> Placements:
    """Placements of the result that c can be added to: a sum's terms are reduced to shards."""
    axis = len(shape) - 2 if shape[-2] >= shape[-1] else len(shape) - 1
    shard = axis if shape[axis] > 1 else REPLICATE
    return tuple(shard if p == PARTIAL else p for p in at)


def _moved(x: DTensor, at: Sequence[Any], name: str) -> Tensor:
    """The local shard of an operand in other placements."""
    given = _plain(x.placements, name)
    if given == tuple(at):
        return x.to_local()
    with overlap.recorded("wait"), overlap.communicating(f"the redistribution of {name}"):
        changed = [i for i, (old, new) in enumerate(zip(given, at, strict=True)) if old != new]
        if len(changed) == 1 and at[changed[0]] == REPLICATE and given.count(0) == 1:
            (i,) = changed
            size = x.device_mesh.size(i)
            if given[i] == 0 and x.shape[0] % size == 0:
                # As redistribute does it, in a third of the host's time.
                shard = x.to_local().contiguous()
                whole = shard.new_empty(size * shard.shape[0], *shard.shape[1:])
                dist.all_gather_into_tensor(whole, shard, group=x.device_mesh.get_group(i))
                return whole
        return x.redistribute(x.device_mesh, _torch(at)).to_local()


def _wrapped(local: Tensor, mesh: Any, at: Placements, shape: tuple[int, ...]) -> DTensor:
    key = mesh, at, shape
    spec = _specs.get(key)
    # An equal mesh may have other groups, made after the first ones were destroyed.
    if spec is not None and spec.mesh is mesh and not torch.is_grad_enabled():
        # NOTE: not public. It takes a fifth of the time of from_local, which ends with this call.
        return DTensor(local, spec, requires_grad=False)
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    found = DTensor.from_local(
        local, mesh, _torch(at), run_check=False, shape=torch.Size(shape), stride=tuple(strides)
    )
    if len(_specs) >= _MOST_SPECS:
        _specs.clear()
    _specs[key] = found._spec
    return found


_MOST_SPECS = 1024
_specs: dict[Any, Any] = {}  # of results, by mesh, placements and shape


class _Product(torch.autograd.Function):  # type: ignore[misc]
    """alpha·a·b with derivatives, which are planned products as well."""

    @staticmethod
    def forward(ctx: Any, a: DTensor, b: DTensor, options: _Options) -> DTensor:
        ctx.options = options
        ctx.save_for_backward(a, b)
        return _Route(a, b, options)(a, b)

    @staticmethod
    def backward(ctx: Any, gradient: DTensor) -> tuple[DTensor | None, ...]:
        a, b = ctx.saved_tensors
        wants_a, wants_b, _ = ctx.needs_input_grad
        of_a = _gradient(gradient, b.mT, a, ctx.options) if wants_a else None
        of_b = _gradient(a.mT, gradient, b, ctx.options) if wants_b else None
        return of_a, of_b, None


def _gradient(left: DTensor, right: DTensor, operand: DTensor, options: _Options) -> DTensor:
    """left·right, summed over the axes along which `operand` was broadcast, placed like it."""
    # Each term of a sum has the derivative of the sum.
    like = tuple(REPLICATE if p == PARTIAL else p for p in _plain(operand.placements, "a"))
    shape = plans.check_shapes(left.shape, right.shape)
    is_whole = shape == tuple(operand.shape)
    wanted = _torch(like) if is_whole else None
    scalars = (options.alpha, None, options.precision)
    found = multiply(left, right, None, None, *scalars, wanted, options.overlap)
    if is_whole:
        return found
    extra = found.dim() - operand.dim()
    if extra:
        found = found.sum(tuple(range(extra)))
    for axis, size in enumerate(operand.shape[:-2]):
        if size != found.shape[axis]:
            found = found.sum(axis, keepdim=True)
    return found.redistribute(operand.device_mesh, _torch(like))


# -- checks


def _mesh(given: dict[str, Any]) -> Any:
    """The mesh of all operands. Raises ArrayError unless they are DTensors of one mesh."""
    found: Any = None
    for name, x in given.items():
        if x is None:
            continue
        if not isinstance(x, DTensor):
            raise ArrayError(
                f"{name} is a {type(x).__name__}, but other operands are DTensors; make it one "
                f"with distribute_tensor({name}, mesh, [Replicate()]) or another placement"
            )
        if found is not None and x.device_mesh != found:
            raise PlacementError(
                f"{name} is on {x.device_mesh} and a on {found}; a product is on one mesh: "
                "redistribute to a common mesh first, for example by full_tensor()"
            )
        found = x.device_mesh
        if found.get_coordinate() is None:
            raise PlacementError(f"{name} is on {found}, of which this process is no part")
    return found


def _plain(given: Sequence[Placement], name: str) -> Placements:
    """Placements without PyTorch's types. Raises PlacementError for kinds that do not multiply."""
    found: list[placements.Placement] = []
    for p in given:
        if type(p) is Shard:
            found.append(p.dim)
        elif type(p) is Replicate:
            found.append(REPLICATE)
        elif type(p) is Partial and p.reduce_op == "sum":
            found.append(PARTIAL)
        else:
            raise PlacementError(
                f"{name} has placement {p!r}; products take Shard(axis), Replicate() and "
                "Partial('sum'): redistribute first"
            )
    return tuple(found)


def _torch(at: Sequence[Any]) -> list[Placement]:
    kinds = {REPLICATE: Replicate(), PARTIAL: Partial()}
    return [Shard(p) if isinstance(p, int) else kinds[p] for p in at]


def _check_added(c: DTensor, shape: tuple[int, ...]) -> None:
    tail = shape[len(shape) - c.dim() :] if c.dim() <= len(shape) else None
    if tail is None or any(x not in (1, y) for x, y in zip(c.shape, tail, strict=True)):
        raise ShapeError(f"c has shape {tuple(c.shape)}, which does not broadcast to {shape}")


_agreed: set[Any] = set()  # never emptied: processes of two meshes would do so at different times


def _agree(mesh: Any, given: dict[str, DTensor], options: tuple[tuple[str, Any], ...]) -> None:
    """Compare a new form of operands on all processes of the mesh, before any of them is moved.

    Raises ShapeError on all processes if they differ. A form that this process has multiplied
    before is not compared again.
    """
    form = tuple((name, tuple(x.shape), x.dtype, x.placements) for name, x in given.items())
    machine = _machine(mesh)
    key = mesh, form, options, machine
    if key in _agreed:
        return
    if mesh.device_type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise StateError(
            "a CUDA graph records a product of DTensors in a form that was not multiplied before: "
            "multiply once before the capture, so that processes compare shapes and share memory"
        )
    listed = [f"{name} {shape} at ({', '.join(map(str, at))})" for name, shape, _, at in form]
    listed += [f"{name} = {value}" for name, value in options]
    words = [f"{'; '.join(listed)}; by the links of {machine.name}"]
    for dimension in range(mesh.ndim):
        group = mesh.get_group(dimension)
        gathered: list[Any] = [None] * dist.get_world_size(group)
        with overlap.communicating("comparing shapes before a product"):
            dist.all_gather_object(gathered, words, group=group)
        words = [text for part in gathered for text in part]
    if len(set(words)) > 1:
        one, other = words[0], next(text for text in words if text != words[0])
        raise ShapeError(
            f"processes of the mesh multiply different operands, so nothing was moved: some have "
            f"{one}, others {other}"
        )
    _agreed.add(key)
