"""The scheduler in IR. It runs one block after another and rotates through the warps of a block.
The lanes of a warp run together or, after a divergent branch, lowest basic block first.

A warp runs until it waits at a barrier, exits, or has used its time slice.
"""

from __future__ import annotations

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.execution.machine import BURST
from gemmlab.emulator.native.builder import Function, Variable
from gemmlab.emulator.native.layout import (
    BARRIER,
    BROADCAST,
    CONVERGED,
    CORE,
    DEADLOCK,
    DIVERGED,
    DONE,
    FAULT,
    NEEDS_SLOW,
    OVER_BUDGET,
    PAUSED,
    RUNNABLE,
    UNMET,
    WARP_STATE,
)
from gemmlab.emulator.native.support import (
    PTR,
    call,
    count_lanes,
    first_lane,
    number,
    record_fault,
    reduced,
    routine,
)
from gemmlab.emulator.native.values import (
    ALL,
    BOOL,
    I64,
    NONE,
    U32,
    U64,
    Pointer,
    Value,
    apply,
    where,
)
from gemmlab.emulator.native.warps import STATUS, field, put, status, vector, warp_at, warps_of
from gemmlab.emulator.synchronization.barriers import NUM_BARRIERS

QUANTUM = 4  # time slice of a warp in steps


def set_live(f: Function, warp: Pointer, lanes: Value) -> None:
    put(f, warp, "live", lanes)
    f.store(warp.at(WARP_STATE["once"] + 8), count_lanes(lanes))


# Blocks


@routine(None, block=I64)
def start(f: Function, core: Pointer, block: Value) -> None:
    """Prepare a thread block to run from its first instruction."""
    f.store(core.at(CORE["block"]), block)
    rest = block
    for axis in range(3):
        extent = f.load(core.at(CORE["nctaid"] + 4 * axis), U32).astype(I64)
        here = rest.view(U64) // extent.view(U64)
        f.store(core.at(CORE["ctaid"] + 4 * axis), (rest - here.view(I64) * extent).astype(U32))
        rest = here.view(I64)
    for name in ("idle", "time_out", "timeouts", "spun"):
        f.store(core.at(CORE[name]), number(f, 0))
    for name in ("expected", "arrived"):
        f.clear(core.at(CORE[name]), number(f, 4 * NUM_BARRIERS))
    f.store(core.at(CORE["num_at_barrier"]), number(f, 0))
    f.store(core.at(CORE["turn"]), f.load(core.at(CORE["num_warps"]), I64))
    shared_bytes = f.load(core.at(CORE["shared_zeroed"]), I64)
    f.clear(f.load_pointer(core.at(CORE["shared"])), shared_bytes)
    threads = f.load(core.at(CORE["threads"]), I64)
    zeroed = f.load(core.at(CORE["zeroed"]), I64)
    local_bytes = f.load(core.at(CORE["local_zeroed"]), I64)
    index, count = warps_of(f, core)
    f.clear(f.load_pointer(core.at(CORE["local_memory"])), local_bytes * count)
    with f.loop(lambda: index.value < count):
        warp = warp_at(f, core, index.value)
        left = threads - index.value * WARP
        some = (np.uint64(1) << left.view(U64)).astype(U32) - np.uint32(1)
        set_live(f, warp, where(left >= WARP, np.uint32(0xFFFFFFFF), some))
        for name in ("pc", "form", "at_barrier", "turns"):
            put(f, warp, name, 0)
        f.store(warp.at(WARP_STATE["executed"]), number(f, 0))
        for name in ("first_copy", "copies"):
            f.store(warp.at(WARP_STATE[name]), number(f, 0))
        committed = f.constant(np.int32(0), vector=True)
        f.store(warp.at(WARP_STATE["committed"]), committed, align=64)
        f.clear(warp.at(WARP_STATE.size), zeroed)
        index.value = index.value + 1
    f.ret()


@routine(STATUS)
def run(f: Function, core: Pointer) -> None:
    """Run blocks until none are left, a fault occurs, or the fuel is spent."""
    busy, idle, go, done = (f.label(x) for x in ("busy", "idle", "go", "done"))
    f.jump(busy)
    f.place(busy)
    block = f.load(core.at(CORE["block"]), I64)
    f.branch(block >= 0, go, idle)
    f.place(idle)
    counter = f.load_pointer(core.at(CORE["next_block"]))
    taken = Value(f, f.assign(f"atomicrmw add ptr {counter.name}, i64 1 seq_cst"), I64, False)
    fresh = f.label("fresh")
    f.branch(taken < f.load(core.at(CORE["num_blocks"]), I64), fresh, done)
    f.place(fresh)
    call(f, core, "start", taken)
    f.jump(go)
    f.place(go)
    result = call(f, core, "run_block")
    over, rest, out = f.label("over"), f.label("rest"), f.label("out")
    f.branch(result == np.int32(DONE), over, out)
    f.place(over)
    f.store(core.at(CORE["block"]), number(f, -1))
    f.branch(f.load(core.at(CORE["fuel"]), I64) > 0, busy, rest)
    f.place(rest)
    f.ret(status(f, PAUSED))
    f.place(out)
    f.ret(result)
    f.place(done)
    f.ret(status(f, DONE))


@routine(STATUS)
def run_block(f: Function, core: Pointer) -> None:
    """Give each warp a turn in rotation. With `lockstep`, only the warps at the lowest basic block
    get a turn, for one basic block, unless they merely spin on other warps. Resumes where it last
    stopped."""
    turn, lowest = core.at(CORE["turn"]), core.at(CORE["lowest"])
    count, lockstep = (
        f.load(core.at(CORE["num_warps"]), I64),
        f.load(core.at(CORE["lockstep"]), I64),
    )
    again, over = f.label("again"), f.label("over")
    f.jump(again)
    f.place(again)
    with f.when(f.load(turn, I64) >= count):
        f.store(turn, number(f, 0))
        f.store(lowest, call(f, core, "lowest_pc"))
        spun = f.load(core.at(CORE["spun"]), I64)
        f.store(core.at(CORE["ordered"]), where(spun == 0, lockstep, np.int64(0)))
        f.store(core.at(CORE["spun"]), number(f, 0))
    go = f.label("go")
    f.branch(f.load(lowest, U32) == ALL, over, go)
    f.place(go)
    with f.loop(lambda: f.load(turn, I64) < count):
        index = f.load(turn, I64)
        warp = warp_at(f, core, index)
        runnable = field(f, warp, "live") & ~field(f, warp, "at_barrier")
        place = call(f, core, "pc_of", warp)
        is_next = f.load(core.at(CORE["ordered"]), I64) == 0
        with f.when((runnable != 0) & (is_next | (place == f.load(lowest, U32)))):
            f.store(core.at(CORE["warp"]), index)
            local = f.load(core.at(CORE["local_memory"]), I64)
            nbytes = f.load(core.at(CORE["local_zeroed"]), I64)
            f.store(core.at(CORE["local"]), local + index * nbytes)
            result = call(f, core, "run_warp", warp, where(lockstep == 0, np.int64(QUANTUM), 0))
            with f.when(result >= np.int32(FAULT)):
                f.ret(result)
        f.store(turn, index + 1)
    with f.when(f.load(core.at(CORE["fuel"]), I64) > 0):
        f.jump(again)
    f.ret(status(f, PAUSED))
    f.place(over)
    alive = f.load(core.at(CORE["num_at_barrier"]), I64)
    with f.when(alive == 0):
        f.ret(status(f, DONE))
    record_fault(f, core, DEADLOCK, number(f, 0), f.constant(NONE))
    f.ret(status(f, FAULT))


@routine(U32, warp=PTR)
def pc_of(f: Function, _core: Pointer, warp: Pointer) -> None:
    """Return the lowest basic block among the runnable lanes of a warp, or all ones if there are
    none."""
    runnable = field(f, warp, "live") & ~field(f, warp, "at_barrier")
    with f.when(runnable == 0):
        f.ret(f.constant(ALL))
    with f.when(field(f, warp, "form") == np.uint32(CONVERGED)):
        f.ret(field(f, warp, "pc"))
    f.ret(reduced("umin", where(f.lanes(runnable), vector(f, warp, "pcs"), ALL)))


@routine(U32)
def lowest_pc(f: Function, core: Pointer) -> None:
    """Return the lowest basic block among all warps of the block."""
    index, count = warps_of(f, core)
    lowest = Variable(f, f.constant(ALL))
    with f.loop(lambda: index.value < count):
        place = call(f, core, "pc_of", warp_at(f, core, index.value))
        lowest.value = apply(np.minimum, lowest.value, place)
        index.value = index.value + 1
    f.ret(lowest.value)


# Warps


@routine(STATUS, warp=PTR, share=I64)
def run_warp(f: Function, core: Pointer, warp: Pointer, share: Value) -> None:
    """Run one warp until it waits, exits, uses up its time slice, or exceeds its budget."""
    quantum = core.at(CORE["quantum"])
    f.store(quantum, share)
    before = f.load(warp.at(WARP_STATE["executed"]), I64)
    on, together, diverged, meet, other, out = (
        f.label(x) for x in ("on", "together", "diverged", "meet", "other", "out")
    )
    result = Variable(f, status(f, DONE))
    f.jump(on)
    f.place(on)
    f.branch(field(f, warp, "form") == np.uint32(CONVERGED), together, diverged)
    f.place(together)
    pc = field(f, warp, "pc").astype(I64)
    entry = f.load_pointer(f.load_pointer(core.at(CORE["fast"])).at(pc * 8))
    result.value = f.invoke(entry, STATUS, core, warp)
    f.jump(meet)
    f.place(diverged)
    result.value = call(f, core, "step", warp)
    f.jump(meet)
    f.place(meet)
    code = result.value
    barrier, same = f.label("barrier"), f.label("same")
    f.branch(code == np.int32(BARRIER), barrier, other)
    f.place(barrier)
    arrived = call(f, core, "arrive", warp)
    with f.when(arrived == np.int32(FAULT)):
        f.ret(arrived)
    runnable = (field(f, warp, "live") & ~field(f, warp, "at_barrier")) != 0
    result.value = where(runnable, np.int32(RUNNABLE), np.int32(PAUSED))
    f.jump(same)
    f.place(other)
    # Barriers do not wait for exited lanes, so an exit can release others.
    none_waiting = f.load(core.at(CORE["num_at_barrier"]), I64) == 0
    check = f.label("check")
    f.branch(none_waiting, same, check)
    f.place(check)
    call(f, core, "release_all")
    f.jump(same)
    f.place(same)
    left = f.load(quantum, I64)
    goes_on = (result.value == np.int32(RUNNABLE)) & (left > 0)
    f.branch(goes_on, on, out)
    f.place(out)
    executed = f.load(warp.at(WARP_STATE["executed"]), I64)
    with f.when(executed != before):
        f.store(core.at(CORE["idle"]), number(f, 0))
    too_much = executed > f.load(core.at(CORE["budget"]), I64)
    with f.when(too_much & (result.value < np.int32(FAULT))):
        record_fault(f, core, OVER_BUDGET, number(f, 0), field(f, warp, "live"))
        f.ret(status(f, FAULT))
    fuel = f.load(core.at(CORE["fuel"]), I64)
    f.store(core.at(CORE["fuel"]), fuel - (share + 1 - left))
    f.ret(result.value)


@routine(STATUS, warp=PTR)
def step(f: Function, core: Pointer, warp: Pointer) -> None:
    """Run one basic block for the next group of lanes of a diverged warp."""
    with f.when(field(f, warp, "form") == np.uint32(DIVERGED)):
        call(f, core, "broadcast_registers", warp)
        put(f, warp, "form", BROADCAST)
    quantum = core.at(CORE["quantum"])
    f.store(quantum, f.load(quantum, I64) - 1)
    live, at_barrier = field(f, warp, "live"), field(f, warp, "at_barrier")
    runnable, pcs = live & ~at_barrier, vector(f, warp, "pcs")
    with f.when(runnable == 0):  # the remaining live lanes wait at barriers
        f.ret(status(f, PAUSED))
    lane = first_lane(runnable).astype(I64)
    pc = Variable(f, f.load(warp.at(WARP_STATE["pcs"]).at(lane * 4), U32))
    group = Variable(f, f.bits(pcs == pc.value) & runnable)
    diverged, united, go = f.label("diverged"), f.label("united"), f.label("go")
    turns = Variable(f, f.constant(NONE))

    def is_ready() -> Value:
        """Return whether the lanes that a collective names have reached it."""
        ready = f.load_pointer(f.load_pointer(core.at(CORE["ready"])).at(pc.value.astype(I64) * 8))
        found = Variable(f, f.constant(np.uint32(1)))
        with f.when(~f.is_null(ready)):
            found.value = f.invoke(ready, BOOL, core, warp, group.value).astype(U32)
        return found.value

    # If no group is ready, its lanes may wait for each other at different instructions.
    def give_up_unless(ready: Value) -> None:
        with f.when(ready == 0):
            record_fault(f, core, UNMET, number(f, 0), runnable)
            f.ret(status(f, FAULT))

    f.branch(group.value == runnable, united, diverged)

    f.place(united)
    with f.when(at_barrier == 0), f.when(call(f, core, "enter", warp, pc.value.astype(I64))):
        put(f, warp, "form", CONVERGED)
        put(f, warp, "pc", pc.value)
        put(f, warp, "turns", 0)
        f.ret(status(f, RUNNABLE))
    give_up_unless(is_ready())
    f.jump(go)

    f.place(diverged)
    turns.value = field(f, warp, "turns") + np.uint32(1)
    patience = f.load(core.at(CORE["patience"]), I64).astype(U32)
    backward = turns.value % (patience + np.uint32(BURST)) >= patience
    left, found = Variable(f, runnable), Variable(f, f.constant(NONE))
    with f.loop(lambda: (left.value != 0) & (found.value == 0)):
        on = f.lanes(left.value)
        lowest = reduced("umin", where(on, pcs, np.uint32(0xFFFFFFFF)))
        highest = reduced("umax", where(on, pcs, NONE))
        pc.value = where(backward, highest, lowest)
        group.value = f.bits(pcs == pc.value) & left.value
        found.value = is_ready()
        left.value = left.value & ~group.value
    give_up_unless(found.value)
    f.jump(go)

    f.place(go)
    code = f.load_pointer(f.load_pointer(core.at(CORE["slow"])).at(pc.value.astype(I64) * 8))
    with f.when(f.is_null(code)):
        f.store(core.at(CORE["missing_slow"]), pc.value.astype(I64))
        f.ret(status(f, NEEDS_SLOW))
    put(f, warp, "turns", turns.value)
    f.ret(f.invoke(code, STATUS, core, warp, group.value))
