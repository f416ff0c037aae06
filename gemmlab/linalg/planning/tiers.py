"""The tier of a product: the arithmetic that it uses, and why.

| tier      | arithmetic                                              | where it can run      |
|-----------|---------------------------------------------------------|-----------------------|
| `fp16x3`  | three float16 products on tensor cores, scaled by row   | capabilities 8.0, 9.0 |
| `fp16x3s` | the same; only one operand is packed                    | capability 9.0        |
| `bf16x6`  | six bfloat16 products on tensor cores, range of float32 | capabilities 8.0, 9.0 |
| `tf32x3`  | three or four TF32 products on tensor cores, not packed | capability 9.0        |
| `fma`     | float32 multiply-adds, by gemmlab's own kernel          | capability 9.0        |
| `ieee`    | float32 multiply-adds: cuBLAS SGEMM, or the host's BLAS | everywhere            |

By default (None) a product is as accurate as float32 arithmetic, and runs in what is predicted to
be fastest: `fp16x3` if it is large, `fp16x3s` if an axis is short, `tf32x3` if it is smaller, `fma`
if it is small or shallow and cuBLAS has no kernel that fits it, or often if a factor is a vector,
else `ieee`. In `fp16x3` and `fp16x3s`, the GPU recomputes the elements of C that float16 may have
spoiled. If there are likely to be many, it runs `tf32x3` instead, or `bf16x6` where the product is
large or `tf32x3` cannot run. If no kernels are built and none can be compiled, the product runs in
`ieee`. A tier requested by name is never replaced by another.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

from gemmlab.errors import DTypeError, TierError, UnknownNameError
from gemmlab.kernels.gemm.sm90.config import SCHEMES
from gemmlab.linalg.arch import ARCHITECTURES, DEFAULT, Architecture
from gemmlab.linalg.planning.sgemm import is_vector
from gemmlab.linalg.planning.times import (
    DIRECT,
    FASTEST,
    FMA,
    LEAST_DEPTH,
    ROUTED,
    STREAMED,
    Case,
    Decision,
    Names,
    allows_direct,
    allows_streamed,
    by_formulas,
    decide,
    own_seconds,
    sgemm_time,
)

TIERS = (*SCHEMES, *ROUTED, "ieee")
MOST_ITEMS = 65535  # matrices in a stack, which are an axis of the grid of `pack`
# Rows, columns and depth are 32-bit numbers. They are rounded up to tiles, and loops of `pack` run
# past their end by up to nine steps of 1024 elements.
MOST_LENGTH = 2**31 - 2**14

# Vectors that may be wide or not finite while a tier computes the product itself. All their sums
# may be doubtful, and blocks compute these again; with more vectors, the fallback may be faster.
TOLERATED = {FASTEST: 8, STREAMED: 1}

NO_FASTER = "cuBLAS is as fast"


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
    def routed(self) -> bool:
        """Whether the plan is a route: at least one operand is taken as it is, not packed."""
        return self.tier in ROUTED

    @property
    def counts(self) -> bool:
        """Whether the product reports elements at risk and the like: an operand is packed."""
        return not self.routed or self.tier == STREAMED


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
    own = own_seconds(case, times)
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
    if allows_direct(case) and not is_vector(case.m, case.n):
        found.append(Choice(DIRECT, "without packing, ", arch=arch))
    if arch.fma:
        found.append(Choice(FMA, "by multiply-adds, ", arch=arch))
    if allows_streamed(case) and not is_vector(case.m, case.n):
        found.append(Choice(STREAMED, "one operand packed, ", DIRECT, arch))
    return tuple(found)


def names_of(choices: Iterable[Choice]) -> Names:
    return tuple((choice.tier, choice.fallback) for choice in choices)


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
    if precision in ROUTED:
        kernels = {DIRECT: arch.direct, FMA: arch.fma, STREAMED: arch.streamed}[precision]
        if obstacle or packed or not kernels:
            words = obstacle or ("an operand is packed" if packed else f"not on {arch.target}")
            raise TierError(f"precision {precision!r} cannot run: {words}")
        if precision != STREAMED:
            return Choice(precision, "requested", arch=arch)
        if not allows_streamed(case):
            rule = f"k = {case.k}, must be at least {LEAST_DEPTH}"
            raise TierError(f"precision {precision!r} cannot run: {rule}")
        return Choice(precision, "requested", DIRECT, arch)
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


def fallback_of(scheme: str, case: Case) -> str | None:
    """What the GPU may use instead of a scheme, if the product names no tier.

    `bf16x6` is faster than `tf32x3`, but takes two more launches, which nearly always end at once.
    """
    usual = SCHEMES[scheme].fallback
    return DIRECT if usual and allows_direct(case) else usual


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
