"""Runs a launch under checks: once monitored, in the requested scheduling order, then in other
orders whose results are compared."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from gemmlab.emulator.checks.blocks import UNINITIALIZED, GlobalShadow, is_strong
from gemmlab.emulator.checks.findings import CHECKS, Finding, Findings
from gemmlab.emulator.checks.monitor import Monitor
from gemmlab.emulator.checks.outputs import Output, find_unwritten
from gemmlab.emulator.checks.state import granule_of
from gemmlab.emulator.counters.tally import Tally
from gemmlab.emulator.execution.grid import LONG_SECONDS, Watcher, execute
from gemmlab.emulator.execution.machine import Machine
from gemmlab.emulator.execution.schedule import Order
from gemmlab.emulator.launch.launch import Launch
from gemmlab.emulator.memory.arena import GLOBAL_BASE
from gemmlab.emulator.program import Program
from gemmlab.emulator.translation.liveness import read_registers, results
from gemmlab.errors import (
    EmulationError,
    InputError,
    UnknownNameError,
    UnsupportedInstructionError,
)
from gemmlab.ptx.ir import Imm, Instruction, Special
from gemmlab.ptx.opcodes import ATOMICS, FETCHES, WITHOUT_RESULT

OTHER_ORDERS = ("reversed", 1)
CLOCKS = ("%clock", "%globaltimer")
COMMUTATIVE = {"add", "and", "or", "xor", "min", "max"}  # each commutes with itself only
MAX_RECORDS = 1 << 22  # shared memory granules per chunk
GLOBAL_CHECKS = {"global race", "uninitialized read", "order dependent", "unwritten output"}


def kinds_of(check: str | Iterable[str]) -> frozenset[str]:
    """The kinds of findings of the given checks: "all", a name in CHECKS, or several names.

    Raises UnknownNameError and InputError.
    """
    try:
        names = {check} if isinstance(check, str) else {*check}
    except TypeError:
        raise InputError(f"check={check!r} is neither a name nor a set of names") from None
    names = {*CHECKS} if "all" in names else names
    unknown = sorted(str(name) for name in names if name not in CHECKS)
    if unknown:
        known = ", ".join(CHECKS)
        raise UnknownNameError(f"no check {', '.join(unknown)}; the checks are all, {known}")
    return frozenset(kind for name in names for kind in CHECKS[name])


class Checks:
    """Creates a monitor for each machine of one launch in one scheduling order."""

    def __init__(self, launch: Launch, findings: Findings, outputs: Sequence[Output]) -> None:
        self.findings = findings
        self.blocks: GlobalShadow | None = None
        self.granule = granule_of(launch.program)
        if GLOBAL_CHECKS & findings.kinds:
            granules = launch.memory.data.size // self.granule
            self.blocks = GlobalShadow(granules, launch.program.function.instructions)
            for output in outputs:
                if output.is_undefined:
                    cells = output.granules(self.granule)
                    self.blocks.written.when[cells] = UNINITIALIZED

    def watch(self, machine: Machine) -> None:
        """Add the observers of the checks to a machine that has not started."""
        Monitor(machine, self.findings, self.blocks)

    def most_clusters(self, launch: Launch) -> int:
        """The maximum number of clusters per chunk, which limits the size of the records."""
        records = launch.shared_bytes // self.granule * math.prod(launch.cluster)
        return max(1, MAX_RECORDS // max(records, 1))


def run_checked(
    launch: Launch,
    order: Order,
    kinds: frozenset[str],
    outputs: Sequence[Output],
    watchers: Sequence[Watcher] = (),
    at_long: Callable[[], None] = lambda: None,
) -> tuple[Tally | None, tuple[Finding, ...]]:
    """Run a launch under checks. Returns its tally, or None if an error ended it, and the findings.

    watchers: of the first run, in addition to the checks. at_long: called once if it takes long.

    Raises UnsupportedInstructionError, which is not a bug of the kernel.
    """
    findings = Findings(launch.program.function.instructions, kinds)
    checks = Checks(launch, findings, outputs)
    memory = launch.memory
    before = memory.data.copy()

    def start(
        order: Order, watchers: Sequence[Watcher] = (), at_long: Callable[[], None] = lambda: None
    ) -> Tally | None:
        try:
            long = math.inf, at_long, LONG_SECONDS
            return execute(launch, *long, order=order, watchers=watchers)
        except UnsupportedInstructionError:
            raise
        except EmulationError as error:
            findings.stop(error)
            return None

    tally = start(order, (checks, *watchers), at_long)
    if findings.last is None and "unwritten output" in kinds:
        assert checks.blocks is not None
        for output in outputs:
            find_unwritten(output, launch.program, findings, checks.blocks, checks.granule)
    after = memory.data.copy()
    others = OTHER_ORDERS if "order dependent" in kinds and may_show(checks, launch.program) else ()
    for name in others:
        if findings.last is None:
            memory.data[:] = before
            with contextlib.redirect_stdout(io.StringIO()):  # printed by the first run
                start(Order(name))
            if findings.last is None and has_one_result(launch.program):
                _compare(launch, findings, checks, after, name)
    memory.data[:] = after
    return tally, findings.sorted()


def may_show(checks: Checks, program: Program) -> bool:
    """Whether another order may expose different results or a deadlock."""
    is_visible = has_one_result(program) or any(block.spins for block in program.blocks)
    is_mixed = checks.blocks is not None and checks.blocks.is_mixed
    return is_visible and (checks.findings.has_races or is_mixed or not is_deterministic(program))


def is_deterministic(program: Program) -> bool:
    """Whether threads behave the same in any order, provided that no accesses race and that nothing
    else accesses the locations of atomic operations at the same time."""
    code = program.function.instructions
    read, operations = read_registers(code), set[str]()
    for i in code:
        if "test_wait" in i.modifiers or i.root == "call" or reads_clock(i):
            return False
        if is_strong(i):
            operations |= COMMUTATIVE & {*i.modifiers}
            if not COMMUTATIVE & {*i.modifiers} or (i.root in FETCHES and read & {*results(i)}):
                return False
    return len(operations) <= 1


def reads_clock(i: Instruction) -> bool:
    return any(isinstance(o, Special) and o.name.startswith(CLOCKS) for o in i.operands)


def has_one_result(program: Program) -> bool:
    """Whether the results must not depend on the order of threads. They may if the kernel sums
    floats atomically, or uses the result of an atomic operation, a clock or an address from
    malloc."""
    code = program.function.instructions
    read = read_registers(code)
    for i in code:
        is_float = bool({"f16", "f16x2", "bf16", "bf16x2", "f32", "f64"} & {*i.opcode})
        adds_nothing = {"add", "or", "xor"} & {*i.modifiers} and i.operands[-1] == Imm(0)
        unread = i.root in WITHOUT_RESULT or not read & {*results(i)} or adds_nothing
        if (i.root in ATOMICS and (is_float or not unread)) or reads_clock(i):
            return False
        if i.callee == "malloc":
            return False
    return not any("bulk" in i.opcode and "reduce" in i.opcode for i in code)


def _compare(
    launch: Launch, findings: Findings, checks: Checks, after: np.ndarray, name: str | int
) -> None:
    """Report the first byte whose value differs under another order."""
    data = launch.memory.data
    differ = data != after
    if not differ.any() or checks.blocks is None:
        return
    start = int(differ.argmax())
    site = checks.blocks.writer(start // checks.granule)
    if site is None:
        return
    access = launch.program.accesses.get(site)
    itemsize = access.dtype.itemsize if access else 1
    where = launch.memory.name_of(start // itemsize * itemsize + GLOBAL_BASE, itemsize)
    order = name if isinstance(name, str) else f"drawn with seed {name}"
    count = len(np.unique(np.flatnonzero(differ) // itemsize))
    differs = "1 element differs" if count == 1 else f"{count:,} elements differ"
    message = f"{differs} when warps run in another order ({order}), the first is {where}"
    findings.add("order dependent", message, site, addresses=[start + GLOBAL_BASE])
