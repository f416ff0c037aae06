"""Configurations of rungs that compile quickly."""

import math

from gemmlab.kernels import ladder
from gemmlab.kernels.gemm.sm90.config import TileConfig
from gemmlab.kernels.rung import Rung
from gemmlab.kernels.settings import candidates, configured

# Not among the choices of this rung, whose tile is that of the rung before.
SMALL_TILE = {"block_m": "64", "block_n": "64", "warp_n": "32", "thread_n": "4"}
OWN = {"split-k": SMALL_TILE | {"slices": "16", "slice_k": "16"}}


def has_its_own_code(rung: Rung) -> bool:
    """Whether no earlier rung of the ladder has the same kernel in a configuration that differs in
    sizes alone.

    Tests of the course layout take only these: the other rungs have the same addresses in other
    tiles, and a kernel takes seconds to compile in each layout.
    """
    first = next(one for one in ladder.rungs(rung.problem) if _code(one) == _code(rung))
    return first.name == rung.name


def _code(rung: Rung) -> tuple[object, ...]:
    """The kernel, and the values in its configuration that are no sizes."""
    values = vars(rung.config) if rung.config else {}
    choices = {name: x for name, x in values.items() if name != "layout"}
    return (rung.kernel, *(x for x in choices.values() if isinstance(x, bool | str)))


def quickest(rung: Rung) -> Rung:
    """Of the configurations that compile quickest, the last: it differs most from the rung."""
    if rung.name in OWN:
        return configured(rung, OWN[rung.name])
    return min(reversed(candidates(rung)[1:]), key=_unrolled)


def narrowest(rung: Rung) -> Rung:
    """With the least tile, of rungs that take several launches: most compile in a third of the
    time."""
    if isinstance(rung.config, TileConfig):  # its choices for tuning are larger
        return configured(rung, {"block_m": "64", "block_n": "64"})
    sizes = {
        name: str(min(rung.choices[name]))
        for name in ("block_m", "block_n")
        if name in rung.choices
    }
    return configured(rung, sizes)


def _unrolled(rung: Rung) -> int:
    """What a thread's code repeats, roughly: the compiler's time grows with it."""
    names = ("thread_m", "thread_n", "block_k", "stages")
    return math.prod(getattr(rung.config, name, 1) for name in names)
