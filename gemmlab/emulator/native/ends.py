"""Terminators of basic blocks in IR: jumps, branches, exits, barriers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmlab.emulator.execution.machine import BURST
from gemmlab.emulator.native.layout import (
    BARRIER,
    CORE,
    DEADLOCK,
    DIVERGED,
    DONE,
    END_FAULT,
    FAULT,
    REDUCTIONS,
    RUNNABLE,
    SPIN_FUEL,
    WARP_STATE,
    tally_offset,
)
from gemmlab.emulator.native.support import count_lanes, number, record_fault
from gemmlab.emulator.native.tracer import Tracer
from gemmlab.emulator.native.values import BOOL, I64, NONE, U32, NotCovered, Value, where
from gemmlab.emulator.program import Block
from gemmlab.emulator.synchronization.mbarriers import MAX_TIMEOUTS


class End:
    """Terminators common to fast and slow code."""

    def __init__(self, m: Tracer) -> None:
        self.m, self.f, self.lanes = m, m.f, m.lanes

    def finish(self, block: Block, result: Any) -> None:
        """Emit the terminator of a block. `result`: the value that the block's code returned."""
        following, f = block.targets[-1] if block.targets else -1, self.f
        self.last, self.spins = block.last - 1, block.spins
        match block.terminator:
            case "fall":
                self.go(following)
            case "branch":
                self.branch(result, block.targets[0], following)
            case "exit":
                self.exit(self.lanes_where(result), None if result is None else following)
            case "switch":
                self.switch(block, self.lanes_where(result[0]), result[1], following)
            case "barrier":
                self.barrier(block, self.lanes_where(result[0]), result[1], result[2], following)
            case "phase":
                self.phase(block, self.lanes_where(result[0]), result[1:], following)
            case "sleep":
                self.charge_spin(f.constant(np.bool_(True)))
                self.end_turn()
                self.go(following)
            case "trap":
                lanes = self.lanes_where(result)
                with self.f.when(lanes != NONE):
                    self.fault(block, lanes, self.f.constant(NONE))
                self.go(following)

    def lanes_where(self, guard: Any) -> Value:
        """Return the lanes for which a guard holds."""
        return self.lanes if guard is None else self.lanes & self.f.bits(self.m.value(guard))

    def fault(self, block: Block, lanes: Value, words: Value) -> None:
        """Report that these lanes did something that the block's last instruction forbids."""
        f = self.f
        f.store(self.m.core.at(CORE["words"]), words.astype(I64).broadcast(), align=64)
        record_fault(f, self.m.core, END_FAULT, number(f, block.last - 1), lanes)
        self.m.ret(FAULT)

    def go(self, target: int) -> None:
        raise NotImplementedError

    def branch(self, guard: Any, target: int, following: int) -> None:
        raise NotImplementedError

    def exit(self, lanes: Value, following: int | None) -> None:
        raise NotImplementedError

    def set_pcs(self, groups: Sequence[tuple[Value, int]]) -> None:
        """Set the next basic block of lanes in a diverged warp."""
        f, place = self.f, self.m.warp.at(WARP_STATE["pcs"])
        pcs = f.load(place, U32, True, align=64)
        for lanes, target in groups:
            pcs = where(f.lanes(lanes), np.uint32(target), pcs)
        f.store(place, pcs, align=64)

    def charge_spin(self, spinning: Value) -> None:
        """Charge fuel if lanes only spin on other threads, so that other warps and blocks run
        soon."""
        f = self.f
        cost = where(spinning, np.int64(-SPIN_FUEL), np.int64(0))
        f.increment(self.m.core.at(CORE["fuel"]), cost)
        spun = self.m.core.at(CORE["spun"])
        f.store(spun, where(spinning, np.int64(1), f.load(spun, I64)))

    def diverge(self) -> None:
        """Mark the warp as diverged."""

    def switch(self, block: Block, lanes: Value, index: Any, following: int) -> None:
        """brx.idx: one target per index value."""
        f, table = self.f, block.targets[:-1]
        index = self.m.value(index).broadcast()
        outside = f.bits(index >= np.uint32(len(table))) & lanes
        with f.when(outside != NONE):
            self.fault(block, outside, index)
        groups = [(f.bits(index == np.uint32(k)) & lanes, t) for k, t in enumerate(table)]
        self.set_pcs([(self.lanes & ~lanes, following), *groups])
        self.diverge()
        self.m.ret(RUNNABLE)

    def end_turn(self) -> None:
        """End the warp's time slice at the next opportunity."""
        self.f.store(self.m.core.at(CORE["quantum"]), number(self.f, 0))

    def phase(self, block: Block, lanes: Value, operands: Sequence[Any], following: int) -> None:
        """mbarrier.test_wait and try_wait. Lanes whose phase is incomplete retry; the wait times
        out once no warp makes progress."""
        m, f, core = self.m, self.f, self.m.core
        assert block.result is not None
        slot = m.kernel.slots[block.result]
        if m.kernel.metadata.lockstep or slot.dtype != BOOL:
            raise NotCovered("an mbarrier wait in a program whose warps run in lockstep")
        access, address, parity = operands
        complete = m.mbarriers.test(access, address, parity, lanes)
        waiting = lanes & ~complete
        timed_out = f.load(core.at(CORE["time_out"]), I64) > np.int64(0)
        over, stay = f.label("over"), f.label("stay")
        answered = where(timed_out, lanes, complete)
        register = m.warp.at(slot.vector)
        f.store(register, f.load(register, U32) & ~answered | complete)
        f.branch((waiting == NONE) | timed_out, over, stay)
        f.place(stay)
        going = m.lanes & ~waiting
        self.uncount(going == NONE, count_lanes(waiting))
        f.increment(core.at(CORE["idle"]), (going == NONE).astype(I64))
        most = f.load(core.at(CORE["num_warps"]), I64) * np.int64(2)
        most = most + f.load(core.at(CORE["patience"]), I64) + np.int64(BURST)
        with f.when(f.load(core.at(CORE["idle"]), I64) > most):
            f.store(core.at(CORE["idle"]), number(f, 0))
            f.store(core.at(CORE["time_out"]), f.load(core.at(CORE["num_warps"]), I64))
            f.increment(core.at(CORE["timeouts"]), number(f, 1))
            with f.when(f.load(core.at(CORE["timeouts"]), I64) > np.int64(MAX_TIMEOUTS)):
                self.retry(going, waiting, following)
                record_fault(f, core, DEADLOCK, number(f, 0), f.constant(np.uint32(0xFFFFFFFF)))
                m.ret(FAULT)
        self.retry(going, waiting, following)
        self.end_turn()
        m.ret(RUNNABLE)
        f.place(over)
        with f.when(waiting != NONE):
            f.increment(core.at(CORE["time_out"]), number(f, -1))
        self.go(following)

    def uncount(self, whole: Value, lanes: Value) -> None:
        """Undo the counts of this block's execution for these lanes, and for the warp if
        `whole`."""
        m, f = self.m, self.f
        tally, warps = m.core.at(tally_offset(m.index)), whole.astype(I64)
        f.increment(tally, number(f, 0) - warps)
        f.increment(tally.at(8), number(f, 0) - lanes)
        f.increment(m.warp.at(WARP_STATE["executed"]), number(f, 0) - warps)

    def retry(self, going: Value, waiting: Value, following: int) -> None:
        """Let the `going` lanes continue while the `waiting` lanes retry this block."""
        raise NotImplementedError

    def barrier(
        self, block: Block, lanes: Value, operands: Sequence[Any], predicate: Any, following: int
    ) -> None:
        """bar.sync a[, b], bar.arrive a, b and bar.red. The runtime performs the arrival."""
        m, f = self.m, self.f
        code = m.kernel.program.function.instructions[block.last - 1]
        with f.when(lanes == NONE):
            self.go(following)
        self.arrive_at(following, m.lanes == lanes)

        def put(name: str, value: Value | int) -> None:
            value = f.constant(np.uint32(value)) if isinstance(value, int) else value
            f.store(m.core.at(CORE[name]), value, align=64 if value.vector else 4)

        put("barrier_lanes", lanes)
        put("ids", m.value(operands[0]).broadcast())
        put("barrier_has_counts", int(len(operands) > 1))
        if len(operands) > 1:
            put("counts", m.value(operands[1]).broadcast())
        put("barrier_is_arrive", int("arrive" in code.modifiers))
        put("barrier_votes", 0 if predicate is None else f.bits(m.value(predicate)))
        operation, offset = 0, 0
        if block.reduction and block.result is not None:
            slot = m.kernel.slots[block.result]
            if slot.dtype != BOOL and slot.dtype not in (np.uint32, np.int32):
                raise NotCovered(f"bar.red into a register of type {slot.dtype}")
            operation, offset = REDUCTIONS[block.reduction], slot.vector
        put("barrier_operation", operation)
        f.store(m.core.at(CORE["barrier_result"]), number(f, offset))
        f.store(m.core.at(CORE["instruction"]), number(f, block.last - 1))
        m.ret(BARRIER)

    def arrive_at(self, following: int, whole: Value) -> None:
        raise NotImplementedError


class FastEnd(End):
    """All live lanes are converged, and stay so unless a branch diverges."""

    def go(self, target: int) -> None:
        m, f = self.m, self.f
        if m.kernel.metadata.lockstep:
            self.save_pc(target)
            m.ret(RUNNABLE)
            return
        if target <= m.index:  # a loop: let other warps run, too
            quantum = m.core.at(CORE["quantum"])
            left = f.load(quantum, I64) - 1
            f.store(quantum, left)
            with f.when(left <= 0):
                self.save_pc(target)
                m.ret(RUNNABLE)
        name = f.assign(f"musttail call i32 @fast_{target}(ptr %core, ptr %warp)")
        f.end(f"ret i32 {name}")

    def save_pc(self, target: int) -> None:
        place = self.m.warp.at(WARP_STATE["pc"])
        self.f.store(place, self.f.constant(np.uint32(target)))

    def diverge(self) -> None:
        place = self.m.warp.at(WARP_STATE["form"])
        self.f.store(place, self.f.constant(np.uint32(DIVERGED)))

    def branch(self, guard: Any, target: int, following: int) -> None:
        f = self.f
        if guard is None:
            self.go(target)
            return
        guard = self.m.value(guard)
        taken, rest = f.label("taken"), f.label("rest")
        if guard.vector:
            on = self.lanes_where(guard)
            some, diverged = f.label("some"), f.label("diverged")
            f.branch(on == NONE, rest, some)
            f.place(some)
            f.branch(on == self.lanes, taken, diverged)
            f.place(diverged)
            f.increment(self.m.count_of(self.last, "divergent"), number(f, 1))
            self.set_pcs([(self.lanes & ~on, following), (on, target)])
            self.diverge()
            self.m.ret(RUNNABLE)
        else:
            f.branch(guard, taken, rest)
        f.place(taken)
        if self.spins:
            self.charge_spin(f.constant(np.bool_(True)))
        self.go(target)
        f.place(rest)
        self.go(following)

    def exit(self, lanes: Value, following: int | None) -> None:
        m, f = self.m, self.f
        live = self.lanes & ~lanes
        f.store(m.warp.at(WARP_STATE["live"]), live)
        f.store(m.warp.at(WARP_STATE["once"] + 8), count_lanes(live))
        if following is None:
            self.save_pc(m.index)  # the position that an over-budget error reports
            m.ret(DONE)
            return
        with f.when(live == NONE):
            self.save_pc(m.index)
            m.ret(DONE)
        self.go(following)

    def retry(self, going: Value, waiting: Value, following: int) -> None:
        self.save_pc(self.m.index)
        with self.f.when(going != NONE):
            self.set_pcs([(going, following), (waiting, self.m.index)])
            self.diverge()

    def arrive_at(self, following: int, whole: Value) -> None:
        """Lanes outside the barrier may continue while the others wait."""
        self.save_pc(following)
        with self.f.when(~whole):
            self.set_pcs([(self.lanes, following)])
            self.diverge()


class SlowEnd(End):
    """Some lanes of a warp execute."""

    def retry(self, going: Value, waiting: Value, following: int) -> None:
        self.set_pcs([(going, following), (waiting, self.m.index)])

    def go(self, target: int) -> None:
        self.set_pcs([(self.lanes, target)])
        self.m.ret(RUNNABLE)

    def branch(self, guard: Any, target: int, following: int) -> None:
        f, on = self.f, self.lanes_where(guard)
        if self.spins:
            self.charge_spin(on != NONE)
        off = self.lanes & ~on
        self.set_pcs([(off, following), (on, target)])
        both = (on != NONE) & (off != NONE)
        f.increment(self.m.count_of(self.last, "divergent"), both.astype(I64))
        self.m.ret(RUNNABLE)

    def exit(self, lanes: Value, following: int | None) -> None:
        m, f = self.m, self.f
        live = m.live & ~lanes
        f.store(m.warp.at(WARP_STATE["live"]), live)
        f.store(m.warp.at(WARP_STATE["once"] + 8), count_lanes(live))
        with f.when(live == NONE):
            m.ret(DONE)
        if following is not None:
            self.set_pcs([(self.lanes & ~lanes, following)])
        m.ret(RUNNABLE)

    def arrive_at(self, following: int, _whole: Value) -> None:
        self.set_pcs([(self.lanes, following)])
