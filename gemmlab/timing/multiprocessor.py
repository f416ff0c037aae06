"""One multiprocessor that executes the warps of some blocks, instruction by instruction.

Four schedulers issue at most one instruction per cycle each. A warp may issue when the stall count
of its last instruction has elapsed, and the scoreboards and the unit that its next one needs are
free. Of several such warps, the scheduler picks the one that issued last; if that warp cannot issue
or yields, it picks the oldest.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence

from gemmlab.cubin.lint import deliver, dispatch
from gemmlab.errors import PredictionError
from gemmlab.timing import instructions as kinds
from gemmlab.timing.instructions import Op
from gemmlab.timing.mbarriers import Mbarrier
from gemmlab.timing.memory import Memory
from gemmlab.timing.parameters import Parameters
from gemmlab.timing.signals import ARRIVE, COPY, Signal, Signals
from gemmlab.timing.signals import WAIT as AWAITED
from gemmlab.timing.warps import (
    BARRIER,
    CONSTANT,
    DISPATCH,
    LG,
    LONG,
    MATH,
    MIO,
    NOT_SELECTED,
    SELECTED,
    SHORT,
    WAIT,
    Block,
    Scheduler,
    Step,
    Warp,
)

PARTITIONS = 4
_MOST_GIVEN_UP = 32  # waits that end without the event that they wait for, per warp
_INFINITE = float("inf")

Paths = Sequence[Sequence[Sequence[Step]]]  # of the warps of each block


def simulate(
    paths: Paths, resident: int, gpu: Parameters, active: int, signals: Signals
) -> list[Block]:
    """Execute blocks, at most `resident` at a time, and return them as they started.

    active: multiprocessors that have work. Raises PredictionError if all warps wait for each other.
    """
    return Multiprocessor(paths, gpu, active, signals).run(resident)


class Multiprocessor:
    """One multiprocessor. paths: of the warps of all blocks that it executes."""

    def __init__(self, paths: Paths, gpu: Parameters, active: int, signals: Signals) -> None:
        self.gpu, self.memory, self.pending = gpu, Memory(gpu, active), deque(paths)
        self.signals, self.given_up = signals, 0
        self.schedulers = [Scheduler() for _ in range(PARTITIONS)]
        self.events: list[tuple[float, int]] = []  # (time of its next action, scheduler)
        self.blocks: list[Block] = []
        self.started = 0  # warps
        self.arrivals = 0.0  # when the last arrival at a barrier has been counted
        self.pipe_cycles = {
            kinds.FMA: gpu.fma_cycles,
            kinds.FMA_HEAVY: gpu.alu_cycles,
            kinds.ALU: gpu.alu_cycles,
            kinds.FP16: gpu.alu_cycles,
            kinds.FP64: gpu.fp64_cycles,
            kinds.UNIFORM: gpu.uniform_cycles,
            kinds.XU: gpu.xu_cycles,
            kinds.TENSOR: gpu.mma_cycles,
        }

    def run(self, resident: int) -> list[Block]:
        for _ in range(min(resident, len(self.pending))):
            self.start(0.0)
        now = 0.0
        while self.events or self.give_up(now):
            now, number = heapq.heappop(self.events)
            scheduler = self.schedulers[number]
            if scheduler.asleep or scheduler.time != now:
                continue  # an event that a later one has replaced
            warp, later = self.choose(scheduler, now)
            if warp is not None:
                later = now + self.issue(scheduler, warp, now)
            if later == _INFINITE:
                scheduler.asleep = True
            else:
                scheduler.time = later
                heapq.heappush(self.events, (later, number))
        return self.blocks

    def start(self, now: float) -> None:
        """Start the next block. Its warps go to the schedulers in turn."""
        block = Block(now)
        for steps in self.pending.popleft():
            number, ready = self.started % PARTITIONS, now + self.gpu.block_cycles
            warp = Warp(steps, block, number, ready, ready - 1)
            warp.number = len(block.warps)
            self.started += 1
            block.live += 1
            block.warps.append(warp)
            if not steps:
                raise PredictionError("a warp executes nothing")
            self.schedulers[number].warps.append(warp)
            self.wake(warp)
        self.blocks.append(block)

    def give_up(self, now: float) -> bool:
        """End one wait if no warp can continue. Paths omit iterations and are those of most warps,
        so a warp may wait for an event that is on no path. Returns whether there was a wait."""
        stuck = [block for block in self.blocks if block.live]
        if not stuck:
            return False
        self.given_up += 1
        if self.given_up > _MOST_GIVEN_UP * self.started:
            raise PredictionError("warps wait for each other forever in the model")
        for block in stuck:
            for one in block.mbarriers.values():
                if one.waiting:
                    (_, warp), *one.waiting = one.waiting
                    self.passes(warp, now)
                    return True
            for name, waiting in block.waiting.items():
                if waiting:
                    self.open(block, name, now)
                    return True
        return False

    def wake(self, warp: Warp) -> None:
        scheduler = self.schedulers[warp.scheduler]
        if scheduler.asleep or warp.ready < scheduler.time:
            scheduler.asleep, scheduler.time = False, warp.ready
            heapq.heappush(self.events, (warp.ready, warp.scheduler))

    def choose(self, scheduler: Scheduler, now: float) -> tuple[Warp | None, float]:
        """Return the warp that issues now, or None and the time at which the next one may."""
        queue, pipes, depth = scheduler.queue, scheduler.pipes, self.gpu.queue_depth
        while queue and queue[0] <= now:
            queue.popleft()
        chosen, later = None, _INFINITE
        for warp in scheduler.warps:
            ready = warp.ready
            if ready > now:
                if ready < later:
                    later = ready
                continue
            op = warp.steps[warp.position].op
            if op.kind in kinds.QUEUED:
                if len(queue) >= depth:
                    free = queue[-depth]
                    warp.blocked = (free, LG if op.kind in kinds.FAR else MIO)
                    later = min(later, free)
                    continue
            elif pipes[op.pipe] >= now + 1 + op.ahead:
                free = pipes[op.pipe] - op.ahead
                warp.blocked = (free, MATH)
                later = min(later, free)
                continue
            if warp is scheduler.last:
                return warp, later
            chosen = chosen or warp
        return chosen, later

    def issue(self, scheduler: Scheduler, warp: Warp, now: float) -> float:
        """Issue the warp's next instruction. Returns the cycles until the scheduler's next."""
        step = warp.steps[warp.position]
        op = step.op
        self.account(warp, step, now)
        warp.stall = op.stall or 1
        scheduler.last = None if op.yields else warp
        if op.kind == kinds.PLAIN:
            cycles = self.arithmetic(scheduler, warp, op, now)
            scheduler.held += cycles - 1
        else:
            cycles = 1.0
            self.special(scheduler, warp, step, now)
        warp.position += 1
        warp.held = scheduler.held
        block = warp.block
        if warp.position >= len(warp.steps):
            scheduler.warps.remove(warp)
            scheduler.last = None
            block.live -= 1
            if block.live:
                for name in list(block.waiting):
                    self.release(block, name, now)
            else:
                block.ended = max(now, block.updated)
                if self.pending:
                    self.start(now)
        elif op.kind == kinds.BARRIER:
            self.arrive(warp, op, now)
        else:
            warp.plan(now)
        return cycles

    def account(self, warp: Warp, step: Step, now: float) -> None:
        """Book the cycles since the warp's last instruction."""
        stalls = step.stalls
        gap = now - warp.last
        step.issued += 1
        stalls[SELECTED] += 1
        stall = warp.stall
        stalls[WAIT] += (gap if gap < stall else stall) - 1
        idle = warp.ready - warp.last - stall
        if idle > 0:
            stalls[warp.why] += idle
        rest = now - warp.ready
        if rest > 0:
            until, why = warp.blocked
            throttled = min(rest, max(0.0, until - warp.ready))
            stalls[why] += throttled
            # the part of the time since its last instruction in which no warp could be dispatched
            held = (self.schedulers[warp.scheduler].held - warp.held) * rest / gap
            held = min(held, rest - throttled)
            stalls[DISPATCH] += held
            stalls[NOT_SELECTED] += rest - throttled - held
        warp.blocked = (0.0, MATH)
        warp.last = now
        warp.times.append(now)

    def arithmetic(self, scheduler: Scheduler, warp: Warp, op: Op, now: float) -> float:
        """Execute on a pipe of the partition. Registers that share a bank are read in turn."""
        idle, banks = now - scheduler.read, scheduler.banks
        if idle > 0:
            deliver(banks, idle)
        even, odd = op.reads
        cycles = dispatch(banks, (even * self.gpu.bank_cycles, odd * self.gpu.bank_cycles))
        scheduler.read = now + cycles
        pipe = op.pipe
        work = op.work if pipe == kinds.TENSOR else 1.0
        free = scheduler.pipes[pipe]
        free = (free if free > now else now) + self.pipe_cycles[pipe] * work
        scheduler.pipes[pipe] = free
        if op.write_barrier >= 0:
            warp.occupy(op.write_barrier, free + self.gpu.xu_latency, SHORT)
        return cycles

    def special(self, scheduler: Scheduler, warp: Warp, step: Step, now: float) -> None:
        """Execute what is not arithmetic, and set its scoreboards."""
        op, gpu, memory = step.op, self.gpu, self.memory
        kind, done, leaves, cause = op.kind, now, now, SHORT
        if kind in kinds.QUEUED:
            traffic = step.traffic
            assert traffic is not None
            leaves, done = memory.serve(kind, now, traffic)
            if kind == kinds.COPY:
                warp.copies = max(warp.copies, done)
            elif kind == kinds.ATOMIC:
                warp.block.updated = done
            elif kind == kinds.GLOBAL_LOAD:
                done += traffic.own * max(0.0, warp.filled - done)
                if traffic.misses:
                    warp.filled = max(warp.filled, done)
            scheduler.queue.append(leaves)
            cause = LONG if kind in kinds.FAR else SHORT
        elif kind == kinds.CONSTANT:
            done, cause = now + gpu.constant_latency, CONSTANT
        elif kind == kinds.SPECIAL:
            done = now + gpu.special_latency
        elif kind == kinds.COMMIT:
            warp.groups.append(warp.copies)
        elif kind == kinds.BRANCH:
            warp.stall = max(warp.stall, gpu.branch_cycles)
        elif kind == kinds.PRODUCT:
            free = max(scheduler.pipes[op.pipe], now) + op.work
            scheduler.pipes[op.pipe] = free
            warp.multiplied = free + gpu.product_latency
            if op.commits:
                warp.products.append(warp.multiplied)
        elif kind in kinds.BULK:
            assert step.traffic is not None
            use = self.use(warp, op, COPY) if kind == kinds.BULK_LOAD else None
            if use or kind == kinds.BULK_STORE:
                leaves, done = memory.serve(kind, now, step.traffic)
                warp.copies = max(warp.copies, leaves)
            if use:
                self.signal(warp, use.cell, 0, use.amount, done)
        elif kind == kinds.SIGNAL:
            use = self.use(warp, op, ARRIVE)
            if use:
                self.signal(warp, use.cell, use.amount, 0, now + gpu.signal_latency)
        elif kind == kinds.AWAIT_SIGNAL:
            done, cause = now + gpu.signal_latency, LONG
            use = self.use(warp, op, AWAITED)
            if use:
                one = self.mbarrier(warp, use.cell)
                phase = one.phase(use.amount)
                if phase == len(one.completed):
                    one.waiting.append((phase, warp))
                    warp.awaits, done = max(0, op.write_barrier), _INFINITE
                elif phase >= 0:
                    done = max(now, one.completed[phase]) + gpu.signal_latency
        if op.write_barrier >= 0:
            warp.occupy(op.write_barrier, done, cause)
        if op.read_barrier >= 0:
            warp.occupy(op.read_barrier, leaves + gpu.queue_cycles, cause)

    def use(self, warp: Warp, op: Op, kind: str) -> Signal | None:
        """The mbarrier that a warp uses now, or None if it does nothing at this instruction."""
        line = op.code.line or 0
        key = self.signals.rings.get((line, kind), -1), kind
        number = warp.uses.get(key, 0)
        warp.uses[key] = number + 1
        return self.signals.turn(line, kind, warp.number, number)

    def mbarrier(self, warp: Warp, cell: int) -> Mbarrier[Warp]:
        known = warp.block.mbarriers
        if cell not in known:
            signals = self.signals
            known[cell] = Mbarrier(signals.count.get(cell, 1), signals.nbytes.get(cell, 0))
        return known[cell]

    def signal(self, warp: Warp, cell: int, lanes: int, nbytes: int, when: float) -> None:
        """Let lanes or bytes arrive at an mbarrier."""
        one = self.mbarrier(warp, cell)
        for other in one.add(lanes, nbytes, when):
            self.passes(other, one.completed[-1])

    def passes(self, warp: Warp, when: float) -> None:
        """Let a warp pass an mbarrier whose phase is complete at a time."""
        warp.scoreboards[warp.awaits] = when + self.gpu.signal_latency
        warp.causes[warp.awaits] = LONG
        warp.awaits = -1
        if warp.ready == _INFINITE:
            warp.plan(warp.last)
            self.wake(warp)

    def arrive(self, warp: Warp, op: Op, now: float) -> None:
        """Let a warp arrive at a barrier. BAR.ARV does not wait."""
        block, name = warp.block, op.barrier
        block.members[name] = op.members
        self.arrivals = max(now, self.arrivals) + self.gpu.arrival_cycles
        if ".ARV" in op.code.opcode:
            if warp.number in self.signals.arrivers:
                block.arrived[name] = block.arrived.get(name, 0) + 1
            warp.plan(now)
        else:
            warp.ready = _INFINITE
            block.waiting.setdefault(name, []).append(warp)
        self.release(block, name, now)

    def release(self, block: Block, name: str, now: float) -> None:
        """Let the warps at a barrier go on if all have arrived."""
        waiting, arrived = block.waiting.get(name, []), block.arrived.get(name, 0)
        if waiting and len(waiting) + arrived >= (block.members[name] or block.live):
            self.open(block, name, now)

    def open(self, block: Block, name: str, now: float) -> None:
        """Let the warps at a barrier go on."""
        waiting = block.waiting[name]
        passed = max(now, self.arrivals) + self.gpu.barrier_cycles
        block.waiting[name], block.arrived[name] = [], 0
        for warp in waiting:
            warp.steps[warp.position].stalls[BARRIER] += passed - warp.last
            warp.last = passed - 1
            warp.stall = 1
            warp.plan(warp.last)
            self.wake(warp)
