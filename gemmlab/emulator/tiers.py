"""Which tier runs a launch: NumPy, or native code, which must be compiled first but is some hundred
times as fast.

"auto" takes native code that is already compiled. Else it begins with NumPy and changes over when
a kernel's launches turn out to be long, or many.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import NoReturn

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.execution.machine import Launch
from gemmlab.emulator.execution.tally import Tally
from gemmlab.emulator.native.compiler import missing
from gemmlab.emulator.native.values import NotCovered
from gemmlab.errors import TierError, UnknownNameError

TIERS = ("auto", "numpy", "native")
# Thread-instructions from which on compiling is worth its time: about half a second of NumPy.
WORTH_COMPILING = 50_000_000
_executed = Counter[tuple[str, str]]()  # by NumPy in this process, by text and entry

# A launch on the NumPy tier, and what it calls at so many thread-instructions.
NumpyTier = Callable[[Launch, float, Callable[[], None]], Tally]


class Changeover(Exception):
    """Leaves the NumPy tier: the rest is for native code."""


def check(tier: str) -> None:
    """Raises UnknownNameError for a tier that there is not."""
    if tier not in TIERS:
        raise UnknownNameError(f"no tier {tier!r}; there is: {', '.join(TIERS)}")


def run(
    launch: Launch,
    tier: str,
    numpy_tier: NumpyTier,
    restart: Callable[[], None],
) -> tuple[Tally, str]:
    """Run a launch; gives its counts and the tier that ran it.

    `restart` makes the memory what it was before. Raises EmulationError, and TierError where tier
    "native" cannot run here or does not cover the kernel.
    """

    def natively() -> tuple[Tally, str]:
        return _natively(launch, tier, numpy_tier, restart)

    if tier == "native":
        return natively()
    if tier == "auto" and missing() is None and _is_compiled(launch):
        return natively()

    def change_over() -> None:
        reason = missing()
        if reason is not None:
            _say(f"a long launch runs on the emulator's NumPy tier: {reason}")
        elif _covers(launch):
            raise Changeover
        launch.screen.release()

    kernel = launch.program.module.digest, launch.program.function.name
    try:
        limit = float("inf")
        if tier == "auto":
            limit = WORTH_COMPILING - _executed[kernel]
            launch.screen.hold()
        tally = numpy_tier(launch, limit, change_over)
        _executed[kernel] += tally.work
        return tally, "numpy"
    except Changeover:
        launch.screen.drop()
        restart()
        return natively()
    finally:
        launch.screen.release()


def _rows(launch: Launch) -> bool:
    return launch.block[0] % WARP == 0


def _is_compiled(launch: Launch) -> bool:
    from gemmlab.emulator.native import code

    return code.is_compiled(launch.program, _rows(launch))


def _covers(launch: Launch) -> bool:
    """Compile, if the native tier has everything that the kernel needs."""
    from gemmlab.emulator.native import code

    try:
        code.code_of(launch.program, _rows(launch))
    except NotCovered:
        return False
    return True


def _natively(
    launch: Launch, tier: str, numpy_tier: NumpyTier, restart: Callable[[], None]
) -> tuple[Tally, str]:
    reason = missing()
    if reason is not None:
        raise TierError(f"no native tier: {reason}")
    from gemmlab.emulator.native import code
    from gemmlab.emulator.native.faults import UnmetError
    from gemmlab.emulator.native.launch import execute

    try:
        compiled = code.code_of(launch.program, _rows(launch))
    except NotCovered as error:
        _refuse(launch, error)
    if any(block.members for block in launch.program.blocks):  # else nothing is unmet
        launch.screen.hold()
    try:
        return execute(launch, compiled), "native"
    except UnmetError as unmet:  # a deadlock, unless those instructions are alike
        launch.screen.drop()
        restart()
        tally = numpy_tier(launch, float("inf"), lambda: None)
        if tier == "native":
            raise TierError(f"the native tier does not cover a launch where {unmet}") from None
        return tally, "numpy"
    finally:
        launch.screen.release()


def _refuse(launch: Launch, reason: NotCovered) -> NoReturn:
    code, index = launch.program.function.instructions, reason.instruction
    at = "" if index is None else f"\n  at {code[index].site}"
    raise TierError(f"the native tier does not cover {reason}{at}") from reason


@cache
def _say(message: str) -> None:
    """On stderr, each message once."""
    logging.getLogger("gemmlab").warning(message)
