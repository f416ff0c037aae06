"""Kinds of products, whose launches differ in numbers alone; they are planned by formulas.

A kind is made when it recurs: planning a product in general takes the host several times as long as
by formulas, and making a kind takes as long as planning tens of products.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from gemmlab.linalg.planning.formulas import NotTraceable, Symbol, Traces, expression_of
from gemmlab.linalg.planning.launch import PlannedLaunch, WorkspaceAddresses
from gemmlab.linalg.planning.program import NAMES, Factor, Job, placed
from gemmlab.linalg.shapes import Operand, Stack

_MOST = 32  # kinds with the same key; further products are planned in general
_FAR = 1 << 40  # an address


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

    def operands(self, left_k_major: bool, right_k_major: bool) -> tuple[Operand, Operand]:
        """The rows of the left factor and the columns of the right one."""
        batch, step = self.batch_left, self.batch_stride_left
        left = Operand(self.vectors_left, self.depth, left_k_major, self.ld_left, batch, step)
        batch, step = self.batch_right, self.batch_stride_right
        right = Operand(self.vectors_right, self.depth, right_k_major, self.ld_right, batch, step)
        return left, right

    @property
    def c(self) -> Stack:
        """The result."""
        sizes = self.vectors_left, self.vectors_right
        return Stack(*sizes, self.row_stride, 1, self.batch, self.step)


# The values that most products have; the formulas of their kinds need no arithmetic for them.
_USUAL: dict[str, float] = {
    **dict.fromkeys(("batch_left", "batch_right", "batch"), 1),
    **dict.fromkeys(("batch_stride_left", "batch_stride_right", "step"), 0),
    **dict.fromkeys(("kept_left", "kept_right"), 0),
    **dict.fromkeys(("row_stride_d", "column_stride_d", "step_d"), 0),
    "alpha": 1.0,
    "beta": 0.0,
}


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


# Grid, arguments in the kernel's order, and of each tensor map address, shape and strides.
LaunchNumbers = tuple[tuple[int, int, int], tuple[Any, ...], tuple[tuple[int, ...], ...]]
Parameters = Sequence[tuple[str, str]]  # name and PTX type of each argument of a kernel
_MAP = 6  # numbers of a tensor map, of type u64


class Slots:
    """Where the launches of a product find their numbers. Shared numbers are stored once.

    Numbers that differ between products of a kind come first: `types` are theirs. Then come
    `constants`, each with its type. `args` has the index of each argument of each launch, `maps`
    that of the first number of each tensor map.
    """

    def __init__(self, launches: Sequence[PlannedLaunch], parameters: Sequence[Parameters]) -> None:
        numbers = [y for x in launches for m in x.maps for y in (m.address, *m.shape, *m.strides)]
        starts = iter(range(0, len(numbers), _MAP))
        self.maps = [[next(starts) for _ in x.maps] for x in launches]
        self.types = ["u64"] * len(numbers)
        found: dict[tuple[str, str], Any] = {}
        wanted = [
            [((expression_of(x.args[name]), kind), x.args[name]) for name, kind in names]
            for x, names in zip(launches, parameters, strict=True)
        ]
        for pair in (pair for each in wanted for pair in each):
            found.setdefault(*pair)
        moving = {key: x for key, x in found.items() if isinstance(x, Symbol)}
        fixed = {key: x for key, x in found.items() if key not in moving}
        self.numbers = (*numbers, *moving.values())
        self.types += [kind for _, kind in moving]
        self.constants = [(kind, x) for (_, kind), x in fixed.items()]
        places = {key: len(numbers) + i for i, key in enumerate((*moving, *fixed))}
        self.args = [[places[key] for key, _ in each] for each in wanted]


@dataclass(slots=True, eq=False)  # compared by identity: a key of dictionaries
class Kind:
    """Products that take the same path through the planner, down to the same kernels."""

    launches: Sequence[PlannedLaunch]  # of a product of the kind
    slots: Slots

    def each(self, grids: Sequence[Any], numbers: Sequence[Any]) -> Iterator[LaunchNumbers]:
        """What `Kinds.plan` returned, for each launch."""
        every = (*numbers, *(x for _, x in self.slots.constants))
        for grid, args, maps in zip(grids, self.slots.args, self.slots.maps, strict=True):
            yield grid, tuple(every[i] for i in args), tuple(every[i : i + _MAP] for i in maps)


def _far(*sizes: Any) -> tuple[int, ...]:
    return (_FAR,) * len(sizes)


class Kinds:
    """Kinds of products in the same tier, with the same tiles."""

    def __init__(self) -> None:
        self.each: list[Kind] = []
        names = *Numbers._fields, "report", *NAMES
        self._traces = Traces(names, _far)

    def __len__(self) -> int:
        return len(self.each)

    @property
    def plan(self) -> Callable[..., tuple[int, Any, Any] | None]:
        """A function that plans a product: its kind's index, its launches' grids and numbers.

        It takes `Numbers`, the address of the report, those of the caller's arrays, and a function
        that takes `Job.sizes` and returns addresses. None for products of no kind that is known.
        """
        return self._traces.function

    def add(
        self,
        job: Job,
        sms: int,
        launches: Sequence[PlannedLaunch],
        parameters: Sequence[Parameters],
    ) -> None:
        """Add the kind of a product.

        `launches` are those of the product, `parameters` the arguments that their kernels take.
        """
        values = *numbers_of(job), *(_FAR,) * (1 + len(NAMES))

        def planned(*given: Any) -> tuple[Any, ...]:
            *numbers, report, a, b, c, d, place = given
            plain = [
                _USUAL[name] if name in _USUAL and x == _USUAL[name] else x
                for name, x in zip(Numbers._fields, numbers, strict=True)
            ]
            other = _like(job, sms, *plain)
            left, right, totals, notes = place(*other.sizes(sms))
            memory = WorkspaceAddresses(left, right, report, totals, notes)
            arrays = dict(zip(NAMES, (a, b, c, d), strict=True))
            found = placed(other.launches(memory, sms), arrays)
            slots = Slots(found, parameters)
            self.each.append(Kind(launches, slots))
            return len(self.each) - 1, tuple(x.grid for x in found), slots.numbers

        with _adding, suppress(NotTraceable):
            # Another thread may have added it.
            if len(self) < _MOST and self.plan(*values, _far) is None:
                self._traces.add(values, planned)


def launch_numbers(launch: PlannedLaunch, parameters: Parameters) -> LaunchNumbers:
    maps = tuple((x.address, *x.shape, *x.strides) for x in launch.maps)
    args = tuple(launch.args[name] for name, _ in parameters)
    return launch.grid, args, maps  # type: ignore[return-value]


def _like(job: Job, sms: int, *given: Any) -> Job:
    """Return a job of the same kind with other numbers, and with the same tiles."""
    x, left, right = Numbers(*given), job.left, job.right
    kept_left = None if left.kept is None else x.kept_left
    kept_right = None if right.kept is None else x.kept_right
    rows, columns = x.operands(left.operand.k_major, right.operand.k_major)
    strides = x.row_stride_d, x.column_stride_d
    d = job.d and Stack(x.vectors_left, x.vectors_right, *strides, x.batch, x.step_d)
    other = Job(
        Factor(left.name, rows, left.scheme, left.fallback, kept_left, left.arch),
        Factor(right.name, columns, right.scheme, right.fallback, kept_right, right.arch),
        x.c,
        job.choice,
        x.alpha,
        x.beta,
        d=d,
    )
    return other.with_tiles(job, sms)


_kinds: dict[tuple[Any, ...], Kinds] = {}
_adding = threading.Lock()


def key_of(job: Job, sms: int) -> tuple[Any, ...]:
    """What products of one kind have in common, apart from tiles."""
    left, right, choice = job.left, job.right, job.choice
    return (
        left.name,
        left.operand.k_major,
        right.operand.k_major,
        left.kept is None,
        right.kept is None,
        job.d is None,
        choice.tier,
        choice.fallback,
        choice.routed,
        left.arch,
        sms,
    )


def find(key: tuple[Any, ...], tiles: Iterable[object]) -> Kinds | None:
    """Return the kinds with a key and tiles that a product has had before; else None."""
    return _kinds.get((key, *map(id, tiles)))  # tiles are made once and kept


def of(job: Job, sms: int) -> Kinds | None:
    """Return the kinds that the product may be of; None for the first product of this sort."""
    key, tiles = key_of(job, sms), job.tiles(sms)
    found = find(key, tiles)
    if found is None:
        _kinds.setdefault((key, *map(id, tiles)), Kinds())
    return found
