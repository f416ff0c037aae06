"""Kinds of products, whose launches differ in numbers alone; they are planned by formulas.

A kind is made when it comes again: a product that is planned in general takes the host several
times as long as one by formulas, and making a kind takes as long as planning tens of products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gemmlab.linalg.planning.formulas import NotTraceable, trace
from gemmlab.linalg.planning.launch import PlannedLaunch
from gemmlab.linalg.planning.program import Factor, Job, WorkspaceAddresses
from gemmlab.linalg.shapes import Operand, Stack

_MOST = 32  # kinds with the same key; further products are planned in general


class Numbers(NamedTuple):
    """What products of one kind differ in."""

    vectors_left: int
    vectors_right: int
    depth: int
    ld_left: int
    ld_right: int
    batch_left: int
    batch_right: int
    batch_stride_left: int
    batch_stride_right: int
    row_stride: int
    batch: int
    step: int
    alpha: float
    beta: float
    kept_left: int
    kept_right: int
    row_stride_d: int
    column_stride_d: int
    step_d: int


def numbers_of(job: Job) -> Numbers:
    left, right, c, d = job.left.operand, job.right.operand, job.c, job.d
    return Numbers(
        left.vectors,
        right.vectors,
        left.depth,
        left.ld,
        right.ld,
        left.batch,
        right.batch,
        left.batch_stride,
        right.batch_stride,
        c.row_stride,
        c.batch,
        c.step,
        job.alpha,
        job.beta,
        job.left.kept or 0,
        job.right.kept or 0,
        *(d.row_stride, d.column_stride, d.step) if d else (0, 0, 0),
    )


class Kind:
    """Products that take the same path through the planner, down to the same kernels."""

    def __init__(self, job: Job, sms: int, launches: Sequence[PlannedLaunch]) -> None:
        """`launches` are those of a product of the kind. Raises NotTraceable."""
        self.launches = launches

        def planned(*given: Any) -> tuple[LaunchNumbers, ...]:
            *numbers, place = given
            other = _like(job, sms, *numbers)
            memory = WorkspaceAddresses(*place(*other.sizes(sms)))
            return tuple(launch_numbers(launch) for launch in other.launches(memory, sms))

        # A function of `Numbers` and of a function that takes `Job.sizes` and returns the fields of
        # WorkspaceAddresses. It returns what launches differ in; None for products of other kinds.
        self.plan: Callable[..., tuple[LaunchNumbers, ...] | None] = trace(
            Numbers._fields, numbers_of(job), planned, lambda *sizes: (1 << 40,) * 5
        )


# Grid, arguments in the order of the launch, and of each tensor map address, shape and strides.
LaunchNumbers = tuple[tuple[int, int, int], tuple[Any, ...], tuple[tuple[int, ...], ...]]


def launch_numbers(launch: PlannedLaunch) -> LaunchNumbers:
    maps = tuple((x.address, *x.shape, *x.strides) for x in launch.maps)
    return launch.grid, tuple(launch.args.values()), maps  # type: ignore[return-value]


def _like(job: Job, sms: int, *given: Any) -> Job:
    """Return a job of the same kind with other numbers, and with the same tiles."""
    x, left, right = Numbers(*given), job.left, job.right
    kept_left = None if left.kept is None else x.kept_left
    kept_right = None if right.kept is None else x.kept_right
    rows = Operand(
        x.vectors_left,
        x.depth,
        left.operand.k_major,
        x.ld_left,
        x.batch_left,
        x.batch_stride_left,
    )
    columns = Operand(
        x.vectors_right,
        x.depth,
        right.operand.k_major,
        x.ld_right,
        x.batch_right,
        x.batch_stride_right,
    )
    strides = x.row_stride_d, x.column_stride_d
    d = job.d and Stack(x.vectors_left, x.vectors_right, *strides, x.batch, x.step_d)
    other = Job(
        Factor(left.name, rows, left.scheme, left.fallback, kept_left, left.arch),
        Factor(right.name, columns, right.scheme, right.fallback, kept_right, right.arch),
        Stack(x.vectors_left, x.vectors_right, x.row_stride, 1, x.batch, x.step),
        job.choice,
        x.alpha,
        x.beta,
        d=d,
    )
    return other.with_tiles(job, sms)


_kinds: dict[tuple[Any, ...], list[Kind]] = {}


def of(job: Job, sms: int) -> list[Kind] | None:
    """Return the kinds that the product may be of; None for the first product of their like."""
    left, right, choice = job.left, job.right, job.choice
    key = (
        left.name,
        left.operand.k_major,
        right.operand.k_major,
        left.kept is None,
        right.kept is None,
        job.d is None,
        choice.tier,
        choice.fallback,
        left.arch,
        sms,
        *map(id, job.tiles(sms)),  # tiles are made once per kind and kept
    )
    found = _kinds.get(key)
    if found is None:
        _kinds[key] = []
    return found


def add(found: list[Kind], job: Job, sms: int, launches: Sequence[PlannedLaunch]) -> None:
    """Add the kind of a product to `found`, which `of` has returned."""
    if len(found) < _MOST:
        try:
            found.append(Kind(job, sms, launches))
        except NotTraceable:
            return
