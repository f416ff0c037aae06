"""The tier of a product: the arithmetic that it uses, and why.

| tier     | arithmetic                                              | where it can run       |
|----------|---------------------------------------------------------|------------------------|
| `fp16x3` | three float16 products on tensor cores, scaled by row   | capabilities 8.0, 9.0  |
| `bf16x6` | six bfloat16 products on tensor cores, range of float32 | capabilities 8.0, 9.0  |
| `tf32x3` | three or four TF32 products on tensor cores, not packed | capability 9.0         |
| `fma`    | float32 multiply-adds, by gemmlab's own kernel          | capability 9.0         |
| `ieee`   | float32 multiply-adds: cuBLAS SGEMM, or the host's BLAS | everywhere             |

By default (None) a product is as accurate as float32 arithmetic, and runs in what is predicted to
be fastest: `fp16x3` if it is large, `tf32x3` if it is smaller or an axis is short, `fma` if it is
small or shallow and cuBLAS has no kernel that fits it, else `ieee`. In
`fp16x3`, the GPU computes elements of C that float16 may have spoiled again, and uses `bf16x6`
instead if there are likely to be many. If the kernels are neither built nor can be compiled, it
runs in `ieee`. A tier requested by name is never replaced by another.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from gemmlab.errors import DTypeError, TierError, UnknownNameError
from gemmlab.kernels.gemm.sm90.config import SCHEMES
from gemmlab.kernels.gemm.sm90.direct_config import LEAST_K
from gemmlab.linalg.arch import ARCHITECTURES, DEFAULT, Architecture
from gemmlab.linalg.planning import direct, fma, sgemm
from gemmlab.linalg.planning.formulas import Formulas, Symbol, first_least, least, most
from gemmlab.linalg.planning.plan import Product, least_clocks

DIRECT = "tf32x3"
FMA = "fma"
UNPACKED = {DIRECT: direct, FMA: fma}  # tiers whose kernels take operands as they are; their plans
TIERS = (*SCHEMES, *UNPACKED, "ieee")
FASTEST = "fp16x3"  # scheme
MOST_ITEMS = 65535  # matrices in a stack, which are an axis of the grid of `pack`
# Rows, columns and depth are 32-bit numbers. They are rounded up to tiles, and loops of `pack` run
# past their end by up to nine steps of 1024 elements.
MOST_LENGTH = 2**31 - 2**14

# One wide vector in this many is tolerated, and one doubtful element whose row and column are
# contiguous: `gemmlab docs matmul`. On an H200, a doubtful element takes as long as reading both at
# 2 TB/s, and `bf16x6` computes 110 Tflop/s, so repairing one takes as long as computing 220.
TOLERATED = 256

LEAST_DEPTH = min(LEAST_K.values())  # of `tf32x3`, by the accuracy contract
_NEVER = 1e9  # seconds
LARGEST = 6e10  # multiply-adds; products with more are packed
_NARROW = 16  # rows or columns
NO_FASTER = "cuBLAS is as fast"
# The share of SGEMM's time that another tier must be predicted to take at most: predictions are not
# exact enough for smaller differences.
SURE = 0.93


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


@dataclass(slots=True)
class Choice:
    """The tier of a product, the reason, and the `fallback` that the GPU may use instead.

    `arch` has the kernels; `ieee` does not use them. `seconds`: those predicted, where a tier other
    than `ieee` is the fastest.
    """

    tier: str
    reason: str
    fallback: str | None = None
    arch: Architecture = DEFAULT
    seconds: float | None = None

    @property
    def direct(self) -> bool:
        """Whether the operands are taken as they are, not packed."""
        return self.tier in UNPACKED


class NotFaster(Exception):
    """A product wanted only if it is faster than in `ieee` is not faster; the text says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason.partition(":")[0])  # without numbers, to be counted


def check_precision(precision: str | None) -> None:
    """Raise DTypeError unless a string or None, UnknownNameError unless the name of a tier."""
    if precision is not None and not isinstance(precision, str):
        raise DTypeError(f"precision is {precision!r}; it must be None or one of {_listed()}")
    if precision is not None and precision not in TIERS:
        raise UnknownNameError(f"no precision {precision!r}; it must be None or one of {_listed()}")


def choose(precision: str | None, case: Case) -> Choice:
    """The tier for a product. Raises TierError if a tier requested by name cannot run."""
    choices = offered(precision, case)
    if len(choices) == 1:
        return choices[0]
    decision: Decision = by_formulas(decide, case, names_of(choices))
    fastest, _, times = decision
    choice, plain = choices[fastest], by_formulas(sgemm_time, case)
    own = min(x for x in times[1:] if x is not None)
    if choice.tier == "ieee":
        reason = f"{NO_FASTER}: predicted {_micro(own)} at {case}, cuBLAS {_micro(plain)}"
        return replace(choice, reason=reason)
    reason = f"{choice.reason}predicted {_micro(own)}, cuBLAS {_micro(plain)}"
    return replace(choice, reason=reason, seconds=own)


def offered(precision: str | None, case: Case) -> tuple[Choice, ...]:
    """The tiers of which the one predicted to be fastest is taken; `ieee` and `fp16x3` come first.

    One if it is requested, or if no other can run. Sizes may be symbols (`formulas`). Raises
    TierError if a tier requested by name cannot run.
    """
    if (known := _without_prediction(precision, case)) is not None:
        return (known,)
    arch = case.arch or DEFAULT
    found = [Choice("ieee", ""), Choice(FASTEST, "", fallback_of(FASTEST, case), arch)]
    if _allows_direct(case):
        found.append(Choice(DIRECT, "without packing, ", arch=arch))
    if arch.fma:
        found.append(Choice(FMA, "by multiply-adds, ", arch=arch))
    return tuple(found)


Names = tuple[tuple[str, str | None], ...]  # of tiers and their fallbacks


def names_of(choices: Iterable[Choice]) -> Names:
    return tuple((choice.tier, choice.fallback) for choice in choices)


# Which of the tiers `offered` is the fastest; for this one, and perhaps for others, the indexes of
# the tiles in `Job.tile_choices`; the seconds of each tier, None if no other is offered.
Decision = tuple[int, tuple[tuple[int, ...], ...], tuple[float | None, ...]]


def decide(case: Case, names: Names) -> Decision:
    """Decide between the tiers that are offered. Sizes may be symbols."""
    if len(names) == 1:
        return 0, (_tiles_of(case, *names[0]),), (None,)
    times = seconds(case, names)
    possible = [i for i, x in enumerate(times) if isinstance(x, Symbol) or x < _NEVER]
    first, last = possible[0], possible[-1]
    fastest, weighted = first, (SURE * times[0], *times[1:])
    if last > first:
        fastest += first_least(weighted[first : last + 1])[0]
    wanted = possible if isinstance(fastest, Symbol) else [fastest]
    tiles = [_tiles_of(case, *x) if i in wanted else () for i, x in enumerate(names)]
    return fastest, tuple(tiles), tuple(times)


def seconds(case: Case, names: Names) -> list[Any]:
    """Predicted seconds of each tier that is offered.

    They are `_NEVER`, except for `fp16x3`, unless they may be the fastest: most products need no
    comparison of cuBLAS's tiles.
    """
    fast, plain = fp16x3_time(case), _NEVER
    within = fast
    if not fast <= SURE * sgemm_bound(case):
        plain = sgemm_time(case)
        within = least(fast, SURE * plain)
    times = [plain, fast]
    for tier, _ in names[2:]:
        times.append({DIRECT: direct_time, FMA: fma_time}[tier](case, within))
        within = least(within, times[-1])
    return times


def _tiles_of(case: Case, tier: str, fallback: str | None) -> tuple[Any, ...]:
    """The indexes of the fastest tile of a tier, and of its fallback if that packs, too."""
    arch, sms, majors = case.arch or DEFAULT, case.multiprocessors, case.k_major
    sizes = case.m, case.n, case.k
    if tier in UNPACKED:
        return (UNPACKED[tier].least_seconds(*sizes, case.batch, majors, arch, sms)[0],)
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
    """Return a function of m, n, k and the batch that computes a function of a `Case`."""

    def of_sizes(m: int, n: int, k: int, batch: int) -> Any:
        batch = 1 if batch == 1 else batch  # a formula of its own
        return function(Case(m, n, k, batch, capability, multiprocessors, k_major), *options)

    return Formulas(("m", "n", "k", "batch"), of_sizes)


def _without_prediction(precision: str | None, case: Case) -> Choice | None:
    """The tier if it is requested, or if only one can run."""
    check_precision(precision)
    obstacle, arch = _obstacle(case), case.arch or DEFAULT
    packed = {scheme for scheme in case.packed if scheme}
    if precision == "ieee" and packed:
        raise TierError("precision 'ieee' takes no packed operand: its parts have 16 bits")
    if precision in SCHEMES:
        if obstacle:
            raise TierError(f"precision {precision!r} cannot run: {obstacle}")
        if packed - {precision}:
            raise TierError(f"precision {precision!r}: an operand is packed for {packed.pop()!r}")
        return Choice(precision, "requested", arch=arch)
    if precision in UNPACKED:
        kernels = {DIRECT: arch.direct, FMA: arch.fma}[precision]
        if obstacle or packed or not kernels:
            words = obstacle or ("an operand is packed" if packed else f"not on {arch.target}")
            raise TierError(f"precision {precision!r} cannot run: {words}")
        return Choice(precision, "requested", arch=arch)
    if precision == "ieee":
        return Choice("ieee", "requested")
    if len(packed) > 1:
        raise TierError("a is packed for one precision and b for another")
    if packed:
        (scheme,) = packed
        if obstacle:
            raise TierError(f"an operand is packed for {scheme!r}, which cannot run: {obstacle}")
        fallback = fallback_of(scheme, case)
        return Choice(scheme, "an operand is packed for it", fallback, arch)
    return Choice("ieee", obstacle) if obstacle else None


def without_kernels(error: Exception) -> Choice:
    """The choice if the kernels for tensor cores cannot be compiled: `ieee`.

    Warns once per process.
    """
    reason = f"the kernels for tensor cores cannot be compiled: {str(error).splitlines()[0]}"
    _warn_once(f"gemmlab.matmul computes in float32 (ieee), which is slower: {reason}")
    return Choice("ieee", reason)


@cache
def _warn_once(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=2)


def tolerated(number: int) -> int:
    """How many of that many vectors may be wide, or how many of that many elements doubtful.

    With more, the fallback is predicted to be faster than the repair.
    """
    return number // TOLERATED


def fp16x3_time(case: Case, fallback: bool = True) -> float:
    """Predicted seconds of `fp16x3`, including packing unless an operand is packed already."""
    arch = case.arch or DEFAULT
    m, n, k, batch = case.m, case.n, case.k, case.batch
    *unaligned, shifted = _unaligned(case)
    vector_time = arch.vector_time + arch.long_vector_time * least(k // (arch.long + 1), 1)
    operands = zip((m, n), case.k_major, case.packed, unaligned, strict=True)
    packing = 0.0
    for count, k_major, scheme, lines in operands:
        size, longer = 8 * count * k * batch, 1 + arch.pack_unaligned * lines
        if scheme is None and k_major:
            least_time = count * batch * vector_time
            packing += most(size / arch.pack_k_major_rate, least_time) * longer
        elif scheme is None:
            packing += size / arch.pack_mn_major_rate * longer
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


def fallback_of(scheme: str, case: Case) -> str | None:
    """What the GPU may use instead of a scheme, if the product names no tier.

    `bf16x6` is faster than `tf32x3`, but takes two more launches, which nearly always end at once.
    """
    usual = SCHEMES[scheme].fallback
    return DIRECT if usual and _allows_direct(case) else usual


def _allows_direct(case: Case) -> bool:
    """Whether `tf32x3` is accurate by default, and may be the fastest tier."""
    arch, work = case.arch or DEFAULT, case.m * case.n * case.k * case.batch
    allowed: bool = bool(arch.direct) and case.k >= LEAST_DEPTH and work <= LARGEST
    return allowed


def direct_time(case: Case, within: float = _NEVER) -> float:
    """Predicted seconds of `tf32x3`; `_NEVER` if it cannot run or is never the fastest.

    Also `_NEVER` if no route can take as little as `within`: most products need no comparison of
    routes.
    """
    arch, sms = case.arch or DEFAULT, case.multiprocessors
    if not _allows_direct(case):
        return _NEVER
    product = case.m, case.n, case.k, case.batch, case.k_major
    if direct.bound(*product, arch, sms) > within:
        return _NEVER
    time: float = direct.least_seconds(*product, arch, sms)[1]
    return time


def fma_time(case: Case, within: float = _NEVER) -> float:
    """Predicted seconds of `fma`; `_NEVER` if it cannot run or takes longer than `within`."""
    arch, sms = case.arch or DEFAULT, case.multiprocessors
    sizes = case.m, case.n, case.k, case.batch
    if not arch.fma or fma.bound(*sizes, arch, sms) > within:
        return _NEVER
    time: float = fma.least_seconds(*sizes, case.k_major, arch, sms)[1]
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


def _obstacle(case: Case) -> str | None:
    """Why this product cannot run on tensor cores; None if it can."""
    if case.capability is None:
        return "the arrays are on the host"
    if case.arch is None:
        major, minor = case.capability
        known = ", ".join(f"{major}.{minor}" for major, minor in ARCHITECTURES)
        return f"the GPU has compute capability {major}.{minor}, its kernels are for {known}"
    if case.batch > MOST_ITEMS:
        return f"{case.batch} matrices in the stack, at most {MOST_ITEMS} are possible"
    if case.m > MOST_LENGTH or case.n > MOST_LENGTH or case.k > MOST_LENGTH:
        longest = max(case.m, case.n, case.k)
        return f"an axis of {longest}, at most {MOST_LENGTH} is possible"
    return None


def _listed() -> str:
    return ", ".join(repr(tier) for tier in TIERS)


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs"
