"""Chooses the tier that runs a launch: NumPy, or native code, which is about a hundred times as
fast but must be compiled first.

"auto" uses native code if it is already compiled. Otherwise it starts on NumPy and switches to
native code once the kernel's launches have executed enough instructions to justify compiling.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import NoReturn

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.counters.tally import Tally
from gemmlab.emulator.execution.grid import LONG_SECONDS, Watcher, execute
from gemmlab.emulator.execution.schedule import Order
from gemmlab.emulator.launch.launch import Dim3, Launch
from gemmlab.emulator.native.compiler import missing
from gemmlab.emulator.native.values import NotCovered
from gemmlab.errors import BudgetError, GemmlabError, TierError, UnknownNameError

TIERS = ("auto", "numpy", "native")
# Thread-instructions above which compiling pays off: about half a second on the NumPy tier.
WORTH_COMPILING = 50_000_000
# Processor time of the NumPy tier to find the address that a livelock spins on.
LIVELOCK_SECONDS = 1.0
# (module digest, entry) -> thread-instructions executed on the NumPy tier by this process
_executed = Counter[tuple[str, str]]()
# the same -> thread-instructions that its next launch will execute at least
_expected: dict[tuple[str, str], int] = {}


class Changeover(Exception):
    """Aborts a launch on the NumPy tier so that native code runs it from the start."""


class _Long(Exception):
    """Aborts a launch on the NumPy tier that takes long."""


def _stop() -> None:
    raise _Long


def check(tier: str) -> None:
    """Raises UnknownNameError unless `tier` is one of TIERS."""
    if tier not in TIERS:
        raise UnknownNameError(f"no tier {tier!r}; the tiers are {', '.join(TIERS)}")


def expect(module: str, entry: str, work: int) -> None:
    """Tell how many thread-instructions a kernel's next launches will execute at least.

    If they justify compiling, the launches do not start on the NumPy tier. `module`: its digest.
    """
    _expected[module, entry] = work


def run(
    launch: Launch,
    tier: str,
    restart: Callable[[], None],
    order: Order,
    watchers: Sequence[Watcher] = (),
    at_long: Callable[[], None] = lambda: None,
) -> tuple[Tally, str]:
    """Run a launch. Returns its tally and the tier that ran it.

    restart: resets memory to its state before the launch. order, watchers: of the NumPy tier, as
    for `execute`. at_long: called once if tier "numpy" turns out to take long. Raises
    EmulationError, and TierError if tier "native" is unavailable or does not cover the kernel.
    """

    def natively() -> tuple[Tally, str]:
        return _natively(launch, tier, restart, order)

    if tier == "native":
        return natively()
    if tier == "auto" and missing() is None and is_compiled(launch):
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
        long = float("inf"), at_long
        if tier == "auto":
            launch.screen.hold()
            known = _executed[kernel] + _expected.get(kernel, 0)
            long = WORTH_COMPILING - known, change_over
        tally = execute(launch, *long, LONG_SECONDS, order=order, watchers=watchers)
        _executed[kernel] += tally.work
        return tally, "numpy"
    except Changeover:
        launch.screen.drop()
        restart()
        return natively()
    finally:
        launch.screen.release()


def check_ends(launch: Launch) -> None:
    """Run a launch on the native tier, if it covers it, only to find out whether it ends.

    An endless loop takes the native tier seconds, and the NumPy tier up to minutes. The launch
    needs memory of its own. Raises BudgetError.
    """
    if missing() is not None or math.prod(launch.cluster) > 1 or not _covers(launch):
        return
    from gemmlab.emulator.native import code
    from gemmlab.emulator.native.launch import execute as execute_natively

    launch.screen.hold()
    try:
        execute_natively(launch, code.code_of(launch.program, _rows(launch.block)))
    except BudgetError:
        raise
    except (
        GemmlabError
    ):  # another error, which the NumPy tier will find too, or an unmet collective
        pass


def _rows(block: Dim3) -> bool:
    return block[0] % WARP == 0


def is_compiled(launch: Launch) -> bool:
    """Return whether native code of a launch is in memory or in the disk cache."""
    from gemmlab.emulator.native import code

    return code.is_compiled(launch.program, _rows(launch.block))


def _covers(launch: Launch) -> bool:
    """Compile the kernel for the native tier. Returns False if the tier does not cover it."""
    from gemmlab.emulator.native import code

    try:
        code.code_of(launch.program, _rows(launch.block))
    except NotCovered:
        return False
    return True


def _natively(
    launch: Launch, tier: str, restart: Callable[[], None], order: Order
) -> tuple[Tally, str]:
    reason = missing()
    if reason is not None:
        raise TierError(f"no native tier: {reason}")
    from gemmlab.emulator.native import code
    from gemmlab.emulator.native.faults import UnmetError
    from gemmlab.emulator.native.launch import execute as execute_natively

    try:
        compiled = code.code_of(launch.program, _rows(launch.block))
    except NotCovered as error:
        _refuse(launch, error)
    if any(block.members for block in launch.program.blocks):  # only these raise UnmetError
        launch.screen.hold()
    try:
        return execute_natively(launch, compiled), "native"
    except (
        BudgetError
    ):  # a livelock, if a warp spins on memory: the NumPy tier can name the address
        if launch.program.may_wait:
            launch.screen.drop()
            restart()
            with contextlib.suppress(_Long):
                execute(launch, at_limit=_stop, seconds=LIVELOCK_SECONDS, order=order)
        raise
    except UnmetError as unmet:  # a deadlock, unless the lanes wait at identical collectives
        launch.screen.drop()
        restart()
        tally = execute(launch, order=order)
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
