"""Error messages for faults of native code, produced by the NumPy tier.

A fault leaves the instruction, the lanes and their addresses in the core. The NumPy tier's machine
is set up for the block and repeats the operation, which raises the error.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any, NoReturn

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP, Mask
from gemmlab.emulator.counters.tally import Tally
from gemmlab.emulator.execution.budget import over_budget
from gemmlab.emulator.execution.machine import Machine
from gemmlab.emulator.launch.launch import Launch
from gemmlab.emulator.native.code import Code
from gemmlab.emulator.native.core import Core
from gemmlab.emulator.native.layout import (
    ACCESS_FAULT,
    CONVERGED,
    DEADLOCK,
    MATRIX_FAULT,
    MBARRIER_FAULT,
    OVER_BUDGET,
    UNMET,
    UNSUPPORTED_FAULT,
    WARP_STATE,
    WGMMA_FAULT,
    view,
)
from gemmlab.emulator.program import Access, Block
from gemmlab.emulator.synchronization.barriers import NUM_BARRIERS, Waiting
from gemmlab.emulator.synchronization.deadlock import deadlock
from gemmlab.emulator.synchronization.mbarriers import Parked
from gemmlab.emulator.tensor_cores import fragments
from gemmlab.errors import GemmlabError, InternalError


class UnmetError(GemmlabError):
    """Lanes of a warp wait for each other at different instructions. Only the NumPy tier can decide
    whether this is a deadlock."""


def explain(launch: Launch, code: Code, core: Core) -> NoReturn:
    """Raise the EmulationError for the fault recorded in a core, or UnmetError."""
    if core.error is not None:
        raise core.error
    if core["fault"] == UNMET:
        raise UnmetError("lanes of a warp wait for each other at different instructions")
    with np.errstate(all="ignore"):
        machine = Machine(launch, np.array([core["block"]]), Tally.of(launch.program))
        shared = machine.space_shared.data
        shared[0] = core.shared[: shared.shape[1]]
        if core["fault"] == DEADLOCK:
            _deadlock(machine, code, core)
        if core["fault"] == OVER_BUDGET:
            _over_budget(machine, code, core)
        index, warp = core["fault_instruction"], core["warp"]
        lanes = np.zeros(machine.extent.shape, bool)
        lanes[0, warp] = _lanes(core["fault_lanes"])
        mask = Mask(lanes, machine.extent)
        if core["fault"] == UNSUPPORTED_FAULT:
            machine.unsupported(index, code.metadata.reasons[index], None, mask)
        elif core["fault"] == MBARRIER_FAULT:
            _mbarrier(machine, core, index, mask)
        elif core["fault"] == WGMMA_FAULT:
            _wgmma(machine, core, index, mask)
        elif core["fault"] in (ACCESS_FAULT, MATRIX_FAULT):
            _access(machine, core, index, mask)
        else:
            _end(machine, core, index, mask)
    site = launch.program.function.instructions[index].site
    raise InternalError(
        "the emulator's native tier reported a fault that the NumPy tier does not confirm, which "
        f"is a bug in gemmlab; run with tier='numpy' instead\n  at {site}"
    )


def _lanes(bits: int) -> np.ndarray:
    return (bits >> np.arange(WARP) & 1).astype(bool)


def _operand(machine: Machine, core: Core, name: str, dtype: Any = np.uint64) -> np.ndarray:
    """Return a field of the core with one value per lane of the running warp."""
    values = np.zeros(machine.extent.shape, dtype)
    values[0, core["warp"]] = core.field(name, dtype, WARP)
    return values


def _register(machine: Machine, core: Core, name: str, access: Access) -> np.ndarray:
    """Return the register values of an access, given the field that has its effective addresses."""
    register: np.ndarray = _operand(machine, core, name) - np.uint64(access.offset % (1 << 64))
    return register


def _wgmma(machine: Machine, core: Core, index: int, mask: Mask) -> None:
    program = machine.launch.program
    block = next(b for b in program.blocks if b.first <= index < b.last)
    product = block.run.__globals__[f"w{index}"]
    a, b = (_operand(machine, core, name) for name in ("words", "pointers"))
    left: Any = a if a.any() else (np.uint32(0),) * 4
    before = [np.zeros((), product.dtype if product.result != "f16" else np.uint32)]
    before *= product.num_registers
    machine.wgmma.multiply(index, product, before, left, b, np.True_, mask)


def _mbarrier(machine: Machine, core: Core, index: int, mask: Mask) -> None:
    program = machine.launch.program
    block = next(b for b in program.blocks if b.first <= index < b.last)
    access, mbarriers = block.run.__globals__[f"a{index}"], machine.mbarriers
    address = _register(machine, core, "words", access)
    count, tx = (_operand(machine, core, name, np.int64) for name in ("counted", "tx"))
    if block.terminator == "phase":
        mbarriers.wait(block, (access, address, count), mask)
    found = re.search(rf"m\.mbarriers\.(\w+)\(a{index}, (.*)", program.source)
    assert found is not None
    match found[1]:
        case "init":
            mbarriers.init(access, address, count, mask)
        case "invalidate":
            mbarriers.invalidate(access, address, mask)
        case "expect":
            mbarriers.expect(access, address, tx, mask)
        case "arrive":
            mbarriers.arrive(access, address, count, tx, mask, "drops=True" in found[2])


def _access(machine: Machine, core: Core, index: int, mask: Mask) -> None:
    program = machine.launch.program
    block = next(b for b in program.blocks if b.first <= index < b.last)
    access = block.run.__globals__[f"a{index}"]
    lanes = partial(_operand, machine, core)
    address = _register(machine, core, "words", access)
    found = re.search(rf"m\.(\w+)(?:\.(\w+)\(|, )a{index}, (.*)", program.source)
    assert found is not None
    space, how, rest = getattr(machine, found[1]), found[2], found[3]
    values = [access.dtype.type(0)] * access.num_elements
    if core["fault"] == MATRIX_FAULT:
        of = block.run.__globals__[f"w{index}"]
        fragments.load(of, space, access, address, lanes("pointers"), mask)
    match how:
        case "issue":  # cp.async
            origin, bypass = block.run.__globals__[f"b{index}"], "True" in rest.split(", ")
            source = _register(machine, core, "pointers", origin)
            sizes = lanes("data", np.uint32)
            space.issue(access, address, origin, source, sizes, bypass, mask)
        case "load_matrices" | "store_matrices":
            space.load_matrices(access, address, mask.lanes // 8, False, mask)
        case "store":
            space.store(access, address, values, mask)
        case "update":
            space.update(access, address, np.bitwise_or, values, mask)
        case _:  # also the elements of a wmma matrix
            space.load(access, address, mask)


def _end(machine: Machine, core: Core, index: int, mask: Mask) -> None:
    """Repeat a trap, a branch past its table or an invalid barrier."""
    block = next(b for b in machine.launch.program.blocks if b.last - 1 == index)
    shape, warp = machine.extent.shape, core["warp"]
    fields = [core.field("words", np.int64, WARP).astype(np.uint32)]
    if block.terminator == "barrier":
        names = ["ids", "counts"][: 1 + int(core.field("barrier_has_counts", np.uint32)[0])]
        fields = [core.field(name, np.uint32, WARP) for name in names]
    operands = []
    for values in fields:
        operand = np.zeros(shape, np.uint32)
        operand[0, warp] = values
        operands.append(operand)
    result = {"barrier": (None, operands, None), "switch": (None, operands[0]), "trap": None}
    machine.finish(block, result[block.terminator], mask)


def _over_budget(machine: Machine, code: Code, core: Core) -> NoReturn:
    """Report that a warp exceeded its budget, at the lanes that would execute next."""
    number, last = core["warp"], len(code.program.blocks) - 1
    warp = core.warp(number)
    on = _lanes(core["fault_lanes"] or 0xFFFFFFFF)
    together = view(warp, WARP_STATE["form"], np.uint32)[0] == CONVERGED
    pcs = view(warp, WARP_STATE["pc" if together else "pcs"], np.uint32, 1 if together else WARP)
    pc = int(np.broadcast_to(pcs, WARP)[on].min())
    lanes = np.zeros(machine.extent.shape, bool)
    lanes[0, number] = on & (pcs == pc)
    over_budget(machine, min(pc, last), Mask(lanes, machine.extent), core.executed(), core.seconds)


def _park(machine: Machine, block: Block, number: int, on: np.ndarray, warp: np.ndarray) -> None:
    """Park lanes of a warp that wait for an mbarrier phase."""
    lanes = np.zeros(machine.extent.shape, bool)
    cells, phase = np.zeros((2, *machine.extent.shape), np.int64)
    lanes[0, number] = on
    cells[0, number] = view(warp, WARP_STATE["awaited"], np.int64, WARP) // 8
    phase[0, number] = view(warp, WARP_STATE["parity"], np.int64, WARP) & 1
    machine.mbarriers.parked.append(Parked(block, lanes, cells, phase))


def _deadlock(machine: Machine, code: Code, core: Core) -> NoReturn:
    blocks, barriers = code.program.blocks, machine.barriers
    at_barrier: dict[tuple[int, int], np.ndarray] = {}
    for number in range(machine.extent.warps):
        warp = core.warp(number)

        def field(name: str, count: int = 1, warp: np.ndarray = warp) -> np.ndarray:
            return view(warp, WARP_STATE[name], np.uint32, count)

        machine.live[0, number] = _lanes(int(field("live")[0]))
        pcs = field("pcs", WARP) if field("form")[0] != CONVERGED else np.repeat(field("pc"), WARP)
        ids = field("barrier", WARP)
        for lane in np.flatnonzero(_lanes(int(field("at_barrier")[0]))).tolist():
            key = int(pcs[lane]) - 1, int(ids[lane])
            lanes = at_barrier.setdefault(key, np.zeros(machine.extent.shape, bool))
            lanes[0, number, lane] = True
        ready = machine.live[0, number] & ~_lanes(int(field("at_barrier")[0]))
        for pc in np.unique(pcs[ready]).tolist():
            if blocks[pc].terminator == "phase":
                _park(machine, blocks[pc], number, ready & (pcs == pc), warp)
    for (pc, barrier), lanes in sorted(at_barrier.items()):
        barriers.waiting.append(Waiting(barrier, blocks[pc], lanes))
    barriers.expected[:, 0] = core.field("expected", np.uint32, NUM_BARRIERS)
    barriers.arrived[:, 0] = core.field("arrived", np.uint32, NUM_BARRIERS)
    deadlock(machine, machine.waits)
