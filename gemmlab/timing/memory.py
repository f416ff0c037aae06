"""The memory units that the warps of one multiprocessor share: the load and store unit with L1 and
shared memory, and its share of L2 and of device memory. Each is a queue in the order of arrival."""

from __future__ import annotations

from dataclasses import dataclass

from gemmlab.emulator.counters.rules import SECTOR_BYTES
from gemmlab.timing import instructions as kinds
from gemmlab.timing.parameters import Parameters

_MOST_LOADED = 0.92  # of device memory's time, at most


@dataclass(slots=True)
class Traffic:
    """What one execution of a memory instruction by one warp moves, on average.

    wavefronts: of the banks of shared memory or L1; copies, if bulk. lines: looked up in L1.
    misses: sectors that L1 requests from L2, or writes to it. dram: sectors of those from or to
    device memory. late: the share of executions that wait for device memory, also for what another
    block has just requested. serial: nanoseconds of the whole L2, of an atomic operation. words: of
    4 bytes, returned to each lane by a shared load. own: the share of executions that hit in L1
    what the warp itself has requested, which may not be there yet. active: the share of executions
    in which a lane accesses memory; the other numbers but `late` are means over all executions.
    """

    wavefronts: float = 1.0
    lines: float = 0.0
    sectors: float = 0.0
    misses: float = 0.0
    dram: float = 0.0
    late: float = 0.0
    serial: float = 0.0
    words: float = 1.0
    own: float = 0.0
    active: float = 1.0


class Memory:
    """The state of the queues. Times are in cycles. Methods return when an instruction leaves the
    queue of the load and store unit, and when its result is there."""

    def __init__(self, gpu: Parameters, active: int) -> None:
        """active: multiprocessors that have work, and share L2 and device memory."""
        self.gpu = gpu
        self.unit = self.engine = self.l2 = self.atomics = self.dram = 0.0  # when each is free
        self.busy = [0.0, 0.0, 0.0]  # cycles of each
        share = gpu.clock_ghz * active  # GB/s of all: bytes per cycle of each
        self.l2_cycles = max(SECTOR_BYTES / gpu.l1_fill_bytes, SECTOR_BYTES * share / gpu.l2_gbs)
        self.dram_cycles = SECTOR_BYTES * share / gpu.dram_gbs
        self.atomic_cycles = share  # per nanosecond of the whole L2
        self.seed = 1

    def serve(self, kind: int, now: float, traffic: Traffic) -> tuple[float, float]:
        """Execute a memory instruction of any kind."""
        if kind in kinds.ON_CHIP:
            leaves, done = self.shared(now, traffic)
            if kind == kinds.SHUFFLE:
                done += self.gpu.shuffle_latency - self.gpu.shared_latency
            return leaves, done
        if kind == kinds.GLOBAL_STORE:
            return self.store(now, traffic)
        if kind == kinds.ATOMIC:
            return self.atomic(now, traffic)
        if kind in kinds.BULK:
            return self.bulk(now, traffic)
        return self.load(now, traffic)

    def shared(self, now: float, traffic: Traffic) -> tuple[float, float]:
        gpu = self.gpu
        least = max(gpu.least_shared_cycles * traffic.active, traffic.words * gpu.return_cycles)
        start = self._enter(now, max(least, traffic.wavefronts))
        return start, self.unit + gpu.shared_latency

    def load(self, now: float, traffic: Traffic) -> tuple[float, float]:
        gpu = self.gpu
        start = self._enter(now, self._global_cycles(traffic))
        if not traffic.misses:
            return start, self.unit + gpu.l1_latency
        # The distance of L2's slices varies. Without that, blocks would stay in lockstep.
        self.seed = (self.seed * 1103515245 + 12345) & 0x7FFFFFFF
        jitter = gpu.jitter_cycles * (self.seed / 0x7FFFFFFF)
        return start, self._below(traffic, self.unit) + gpu.l2_latency + jitter

    def store(self, now: float, traffic: Traffic) -> tuple[float, float]:
        start = self._enter(now, self._global_cycles(traffic))
        return start, self._below(traffic, self.unit)

    def bulk(self, now: float, traffic: Traffic) -> tuple[float, float]:
        """The lanes of a warp hand over their copies one after another, and the copy engine moves
        their bytes. They do not use the queue of the load and store unit."""
        gpu, nbytes = self.gpu, traffic.sectors * SECTOR_BYTES
        start = max(now + gpu.queue_cycles, self.engine)
        self.engine = start + nbytes / gpu.bulk_bytes
        over = now + gpu.bulk_cycles * traffic.wavefronts
        return over, self._below(traffic, max(over, self.engine)) + gpu.bulk_latency

    def atomic(self, now: float, traffic: Traffic) -> tuple[float, float]:
        start = self._enter(
            now, max(self.gpu.least_global_cycles * traffic.active, traffic.sectors)
        )
        cycles = self.atomic_cycles * traffic.serial
        # Atomics on few addresses queue at their L2 slices; loads of other addresses overtake them.
        self.atomics = max(self.atomics, start) + cycles
        self.busy[1] += cycles
        return start, self.atomics + self.gpu.l2_latency

    def _global_cycles(self, traffic: Traffic) -> float:
        lines = traffic.lines * self.gpu.line_cycles
        return max(self.gpu.least_global_cycles * traffic.active, lines, traffic.wavefronts)

    def _enter(self, now: float, cycles: float) -> float:
        start = max(now + self.gpu.queue_cycles, self.unit)
        self.unit = start + cycles
        self.busy[0] += cycles
        return start

    def _below(self, traffic: Traffic, above: float) -> float:
        """Queue at L2 and device memory, from when the unit `above` asks for the last sector.
        Returns when that has left both."""
        cycles = traffic.misses * self.l2_cycles
        self.l2 = done = max(self.l2, above) + cycles
        self.busy[1] += cycles
        if traffic.dram:
            cycles = traffic.dram * self.dram_cycles
            self.dram = max(self.dram, above) + cycles
            self.busy[2] += cycles
            done = max(done, self.dram) + (self.gpu.dram_latency + self._turns()) * traffic.late
        return done

    def _turns(self) -> float:
        """Return the mean wait of a request to device memory for others to the same place: that of
        a queue with random arrivals and constant service time (M/D/1), at the load so far."""
        load = min(_MOST_LOADED, self.busy[2] / max(1.0, self.dram))
        return self.gpu.dram_turn * load / (2 * (1 - load))
