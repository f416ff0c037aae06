"""Predicted times of a product in each tier, and which tier is the fastest.

The times are fitted to measurements; their constants belong to an architecture (`arch`). Sizes may
be symbols (`formulas`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from gemmlab.core import built
from gemmlab.kernels.gemm.sm90.config import SCHEMES
from gemmlab.kernels.gemm.sm90.direct_config import LEAST_K
from gemmlab.linalg.arch import ARCHITECTURES, DEFAULT, Architecture
from gemmlab.linalg.planning import direct, fma, sgemm, streamed
from gemmlab.linalg.planning.formulas import Formulas, Symbol, first_least, least, most
from gemmlab.linalg.planning.gemv import NEVER
from gemmlab.linalg.planning.packing import packing_seconds
from gemmlab.linalg.planning.plan import Product, least_clocks

DIRECT = "tf32x3"
FMA = "fma"
STREAMED = "fp16x3s"
# Tiers whose kernels take at least one operand as it is; the modules that plan their routes.
ROUTED = {DIRECT: direct, FMA: fma, STREAMED: streamed}
FASTEST = "fp16x3"  # scheme

LEAST_DEPTH = min(LEAST_K.values())  # of `tf32x3`, by the accuracy contract
LARGEST = 6e10  # multiply-adds; products with more are packed
# The share of SGEMM's time that another tier must be predicted to take at most: predictions are not
# exact enough for smaller differences. It is 1 for products with a vector, whose times are those of
# reading the matrix, and which then need no kernel of cuBLAS.
SURE = 0.95
_NARROW = 16  # rows or columns


@dataclass(slots=True)
class Case:
    """What a choice depends on: sizes and the GPU. `capability` is None on the host."""

    m: int
    n: int
    k: int
    batch: int = 1
    capability: tuple[int, int] | None = None
    multiprocessors: int = DEFAULT.multiprocessors
    k_major: tuple[bool, bool] = (True, False)  # whether rows of a, columns of b are contiguous
    packed: tuple[str | None, str | None] = (None, None)  # scheme of a packed a, of a packed b

    @property
    def arch(self) -> Architecture | None:
        """The architecture whose kernels run on the GPU; None if there are none."""
        return None if self.capability is None else ARCHITECTURES.get(self.capability)

    def __str__(self) -> str:
        stack = f"{self.batch} × " if self.batch > 1 else ""
        return f"{stack}{self.m}×{self.n}×{self.k}"


Names = tuple[tuple[str, str | None], ...]  # of tiers and their fallbacks
# Which of the tiers `offered` is the fastest; for this one, and perhaps for others, the indexes of
# the tiles in `Job.tile_choices`; the seconds of each tier, None if they are not compared.
Decision = tuple[int, tuple[tuple[int, ...], ...], tuple[float | None, ...]]


def decide(case: Case, names: Names) -> Decision:
    """Decide between the tiers that are offered. Sizes may be symbols."""
    if len(names) == 1:
        return 0, (_tiles_of(case, *names[0]),), (None,)
    if is_large(case):
        packed = tuple(_tiles_of(case, *x) if x[0] == FASTEST else () for x in names)
        return [tier for tier, _ in names].index(FASTEST), packed, (None,) * len(names)
    times = seconds(case, names)
    possible = [i for i, x in enumerate(times) if isinstance(x, Symbol) or x < NEVER] or [0]
    first, last = possible[0], possible[-1]
    sure = 1 if sgemm.is_vector(case.m, case.n) else SURE
    fastest, weighted = first, (sure * times[0], *times[1:])
    if last > first:
        fastest += first_least(weighted[first : last + 1])[0]
    wanted = possible if isinstance(fastest, Symbol) else [fastest]
    tiles = [_tiles_of(case, *x) if i in wanted else () for i, x in enumerate(names)]
    return fastest, tuple(tiles), tuple(times)


def is_large(case: Case) -> bool:
    """Whether a product is so large that `fp16x3` is taken without comparing predicted times."""
    large, m, n, k = (case.arch or DEFAULT).large, case.m, case.n, case.k
    if large is None:
        return False
    # None of the four quotients is 0. One comparison, because a formula has a branch for each.
    found: bool = (
        m // large.side * (n // large.side) * (k // large.depth) * (m * n * k // large.work) > 0
    )
    return found


def own_seconds(case: Case, times: Sequence[float | None]) -> float:
    """The seconds of the fastest tier but `ieee`, given those of a `Decision` between several."""
    compared = [x for x in times[1:] if x is not None]
    return min(compared) if compared else by_formulas(fp16x3_time, case)


def seconds(case: Case, names: Names) -> list[Any]:
    """Predicted seconds of each tier that is offered.

    They are `NEVER`, except for `fp16x3`, unless they may be the fastest: most products need no
    comparison of cuBLAS's tiles.
    """
    fast, plain = fp16x3_time(case), NEVER
    within = fast
    if not fast <= SURE * sgemm_bound(case):
        plain = sgemm_time(case)
        within = least(fast, SURE * plain)
    times = [plain, fast]
    for tier, _ in names[2:]:
        function = {DIRECT: direct_time, FMA: fma_time, STREAMED: streamed_time}[tier]
        times.append(function(case, within))
        within = least(within, times[-1])
    return times


def _tiles_of(case: Case, tier: str, fallback: str | None) -> tuple[Any, ...]:
    """The indexes of the fastest tile of a tier, and of its fallback if that packs, too."""
    arch, sms, majors = case.arch or DEFAULT, case.multiprocessors, case.k_major
    sizes = case.m, case.n, case.k
    if tier in ROUTED:
        return (ROUTED[tier].least_seconds(*sizes, case.batch, majors, arch, sms)[0],)
    product, schemes = Product(*sizes, case.n, case.batch), (tier, fallback)
    return tuple(
        least_clocks(product, arch, SCHEMES[scheme], majors, sms)[0]
        for scheme in schemes
        if scheme in SCHEMES
    )


def saved_s(case: Case, own: float | None) -> float:
    """The seconds that a product is predicted to save compared with `ieee`.

    own: `Choice.seconds`; nothing is saved if they are None.
    """
    if own is None:
        return 0.0
    plain: float = by_formulas(sgemm_time, case)
    return plain - own


def by_formulas(function: Callable[..., Any], case: Case, *options: Any) -> Any:
    """A function of dense products, computed faster where products have many sizes."""
    find = formulas(function, case.capability, case.multiprocessors, case.k_major, *options)
    return find(case.m, case.n, case.k, case.batch)


@cache
def formulas(
    function: Callable[..., Any],
    capability: tuple[int, int] | None,
    multiprocessors: int,
    k_major: tuple[bool, bool],
    *options: Any,
) -> Formulas:
    """Return a function of m, n, k and the batch that computes a function of a `Case`.

    It has the formulas that were built for the GPU, and makes others.
    """
    arch = None if capability is None else ARCHITECTURES.get(capability)
    question = function, capability, multiprocessors, k_major, options
    made = built.formulas(built.FOLDER / arch.target, name_of(*question)) if arch else None
    return new_formulas(*question, made)


def new_formulas(
    function: Callable[..., Any],
    capability: tuple[int, int] | None,
    multiprocessors: int,
    k_major: tuple[bool, bool],
    options: tuple[Any, ...],
    made: Callable[..., Any] | None = None,
) -> Formulas:
    """Return `formulas` with those `made` earlier, or none."""

    def of_sizes(m: int, n: int, k: int, batch: int) -> Any:
        batch = 1 if batch == 1 else batch  # a formula of its own
        return function(Case(m, n, k, batch, capability, multiprocessors, k_major), *options)

    return Formulas(("m", "n", "k", "batch"), of_sizes, made)


def name_of(function: Callable[..., Any], *rest: Any) -> str:
    """Return the name of the file that has the formulas of a function for a GPU."""
    return built.name_of(function.__name__, repr(rest))


def fp16x3_time(case: Case, fallback: bool = True) -> float:
    """Predicted seconds of `fp16x3`, including packing unless an operand is packed already."""
    arch = case.arch or DEFAULT
    m, n, k, batch = case.m, case.n, case.k, case.batch
    *unaligned, shifted = _unaligned(case)
    operands = zip((m, n), case.k_major, case.packed, unaligned, strict=True)
    packing = 0.0
    for count, k_major, scheme, lines in operands:
        if scheme is None:
            packing += packing_seconds(count, k, batch, k_major, lines, arch)
    limits = arch.pack_l2_bytes, arch.pack_l2_overflow
    packing *= 1 + arch.pack_far * sgemm.missed(sgemm.bytes_of(m, n, k, batch), *limits)
    product = Product(m, n, k, n, batch)
    _, clocks = least_clocks(product, arch, SCHEMES[FASTEST], case.k_major, case.multiprocessors)
    stored = 4 * m * n * batch / arch.store_rate * (1 + arch.store_unaligned * shifted)
    stored *= 1 + arch.fallback_stored * fallback
    start = arch.launch_time + arch.fallback_time * fallback
    time: float = start + packing + clocks * arch.clock_time + stored
    time *= 1 + arch.packed_unaligned * most(most(*unaligned), shifted)
    return time


def allows_direct(case: Case) -> bool:
    """Whether `tf32x3` is accurate by default, and may be the fastest tier."""
    arch, work = case.arch or DEFAULT, case.m * case.n * case.k * case.batch
    allowed: bool = bool(arch.direct) and case.k >= LEAST_DEPTH and work <= LARGEST
    return allowed


def direct_time(case: Case, within: float = NEVER) -> float:
    """Predicted seconds of `tf32x3`; `NEVER` if it cannot run or is never the fastest.

    Also `NEVER` if no route can take as little as `within`: most products need no comparison of
    routes.
    """
    arch, sms = case.arch or DEFAULT, case.multiprocessors
    if not allows_direct(case):
        return NEVER
    product = case.m, case.n, case.k, case.batch, case.k_major
    if direct.bound(*product, arch, sms) > within:
        return NEVER
    time: float = direct.least_seconds(*product, arch, sms)[1]
    return time


def fma_time(case: Case, within: float = NEVER) -> float:
    """Predicted seconds of `fma`; `NEVER` if it cannot run or takes longer than `within`."""
    arch, sms = case.arch or DEFAULT, case.multiprocessors
    sizes = case.m, case.n, case.k, case.batch
    if not arch.fma or fma.bound(*sizes, arch, sms) > within:
        return NEVER
    time: float = fma.least_seconds(*sizes, case.k_major, arch, sms)[1]
    return time


def allows_streamed(case: Case) -> bool:
    """Whether `fp16x3s` can run, and may be the fastest tier."""
    arch = case.arch or DEFAULT
    allowed: bool = bool(arch.streamed) and case.k >= LEAST_DEPTH
    return allowed


def streamed_time(case: Case, within: float = NEVER) -> float:
    """Predicted seconds of `fp16x3s`; `NEVER` if it cannot run or takes longer than `within`."""
    arch, sms = case.arch or DEFAULT, case.multiprocessors
    product = case.m, case.n, case.k, case.batch
    if not allows_streamed(case) or streamed.bound(*product, arch, sms) > within:
        return NEVER
    time: float = streamed.least_seconds(*product, case.k_major, arch, sms)[1]
    return time


def _unaligned(case: Case) -> tuple[Any, Any, Any]:
    """For each of dense a, b and c: 1 if most lines do not permit 128-bit accesses, else 0.

    Matrices of up to _NARROW vectors do not count: they have few elements.
    """
    m, n = case.m, case.n
    lines = *direct.unaligned(m, n, case.k, case.k_major), least(n % 4, 1)
    a, b, c = (
        odd * least(most(vectors - _NARROW, 0), 1)
        for odd, vectors in zip(lines, (m, n, n), strict=True)
    )
    return a, b, c


def sgemm_time(case: Case) -> float:
    """Predicted seconds of float32 multiply-adds in cuBLAS."""
    sizes = case.m, case.n, case.k, case.batch, case.k_major
    time: float = sgemm.seconds(*sizes, case.arch or DEFAULT, case.multiprocessors)
    return time


def sgemm_bound(case: Case) -> float:
    """Seconds that `sgemm_time` never falls below."""
    sizes = case.m, case.n, case.k, case.batch, case.k_major
    time: float = sgemm.bound(*sizes, case.arch or DEFAULT, case.multiprocessors)
    return time
