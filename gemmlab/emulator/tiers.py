"""Chooses the tier that runs a launch: NumPy, or native code, which is about a hundred times as
fast but must be compiled first.

"auto" uses native code if it is already compiled. Otherwise it starts on NumPy and switches to
native code once the kernel's launches have executed enough instructions to justify compiling.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import NoReturn

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.execution.launch import Launch
from gemmlab.emulator.execution.tally import Tally
from gemmlab.emulator.native.compiler import missing
from gemmlab.emulator.native.values import NotCovered
from gemmlab.errors import TierError, UnknownNameError

TIERS = ("auto", "numpy", "native")
# Thread-instructions above which compiling pays off: about half a second on the NumPy tier.
WORTH_COMPILING = 50_000_000
# (module digest, entry) -> thread-instructions executed on the NumPy tier by this process
_executed = Counter[tuple[str, str]]()

# Runs a launch on the NumPy tier. Takes a limit of thread-instructions and the function to call
# when the launch exceeds it.
NumpyTier = Callable[[Launch, float, Callable[[], None]], Tally]


class Changeover(Exception):
    """Aborts a launch on the NumPy tier so that native code runs it from the start."""


def check(tier: str) -> None:
    """Raises UnknownNameError unless `tier` is one of TIERS."""
    if tier not in TIERS:
        raise UnknownNameError(f"no tier {tier!r}; the tiers are {', '.join(TIERS)}")


def run(
    launch: Launch,
    tier: str,
    numpy_tier: NumpyTier,
    restart: Callable[[], None],
) -> tuple[Tally, str]:
    """Run a launch. Returns its tally and the tier that ran it.

    `restart` resets memory to its state before the launch. Raises EmulationError, and TierError if
    tier "native" is unavailable or does not cover the kernel.
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
            _warn_once(f"a long launch runs on the emulator's NumPy tier: {reason}")
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
    """Compile the kernel for the native tier. Returns False if the tier does not cover it."""
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
    if any(block.members for block in launch.program.blocks):  # only these raise UnmetError
        launch.screen.hold()
    try:
        return execute(launch, compiled), "native"
    except UnmetError as unmet:  # a deadlock, unless the lanes wait at identical collectives
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
def _warn_once(message: str) -> None:
    """Log a warning; repeated calls with the same message do nothing."""
    logging.getLogger("gemmlab").warning(message)
