"""Barriers, mbarriers and cluster barriers that update vector clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Mask, Value, three_axes
from gemmlab.emulator.checks.warps import ALL
from gemmlab.emulator.memory.spaces import Access
from gemmlab.emulator.program import Block
from gemmlab.emulator.synchronization.barriers import Barriers
from gemmlab.emulator.synchronization.clusters import ClusterBarrier
from gemmlab.emulator.synchronization.mbarriers import Mbarriers, Parked, State
from gemmlab.emulator.translation.liveness import read_registers, results
from gemmlab.ptx.opcodes import FENCES

OBJECT_BYTES = 8  # size of an mbarrier

if TYPE_CHECKING:
    from gemmlab.emulator.checks.monitor import Monitor


def watch_waits(monitor: Monitor) -> None:
    machine = monitor.machine
    machine.barriers = WatchedBarriers(monitor)
    machine.mbarriers = WatchedMbarriers(monitor)
    machine.clusters = WatchedClusterBarrier(monitor)


class WatchedBarriers(Barriers):
    """bar and barrier."""

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor.machine)
        self.monitor = monitor

    def arrive(
        self, block: Block, operands: tuple[Value, ...], predicate: Value, mask: Mask | None
    ) -> None:
        monitor, on = self.monitor, self.machine.active(mask)
        code = self.machine.launch.program.function.instructions
        if (
            mask is None
            and "sync" in code[block.last - 1].modifiers
            and self._is_everyone(operands)
        ):
            monitor.clocks.barrier(np.arange(len(on)))
        elif "arrive" in code[block.last - 1].modifiers:
            ids = np.broadcast_to(three_axes(operands[0]), on.shape)
            self._leave(on, ids)
        super().arrive(block, operands, predicate, mask)

    def _open(self) -> bool:
        before = [(w, w.lanes) for w in self.waiting]
        expected, arrived = self.expected.copy(), self.arrived.copy()
        is_over = super()._open()
        opened: dict[tuple[int, int], list[tuple[Block, np.ndarray]]] = {}
        for w, lanes in before:
            free = lanes & ~w.lanes
            for number in np.flatnonzero(free.any(axis=(1, 2))).tolist():
                opened.setdefault((number, w.barrier), []).append((w.block, free[number]))
        for (number, barrier), groups in opened.items():
            counted = bool(expected[barrier, number])
            self._go_on(number, barrier, groups, counted, int(arrived[barrier, number]))
        return is_over

    def _go_on(
        self,
        number: int,
        barrier: int,
        groups: list[tuple[Block, np.ndarray]],
        counted: bool,
        arrived: int,
    ) -> None:
        """Threads of one block leave a barrier. groups: by the instruction at which they waited.
        counted: the barrier has a thread count. arrived: number of threads by bar.arrive."""
        clocks, live = self.monitor.clocks, self.machine.live[number]
        lanes = np.logical_or.reduce([lanes for _, lanes in groups])
        place = number, barrier
        if (live & ~lanes).any() or arrived:
            rows = number * clocks.threads + np.flatnonzero(lanes)
            self.monitor.sync_objects.release(place, clocks.release(rows))
            self.monitor.sync_objects.acquire(place, rows)
        else:
            clocks.barrier(np.array([number]))
        self.monitor.sync_objects.clear(place)
        self._examine(number, groups, counted)

    def _examine(self, number: int, groups: list[tuple[Block, np.ndarray]], counted: bool) -> None:
        """Check that the threads that met at a barrier were allowed to."""
        monitor, machine = self.monitor, self.machine
        code, kind = monitor.code, "divergent barrier"
        at, threads = machine.block_index(number), machine.launch.threads
        first, lanes = groups[0][0].last - 1, groups[0][1]
        for block, others in groups[1:]:
            other = block.last - 1
            shared = lanes.any(axis=1) & others.any(axis=1)
            aligned = code[other].root == "bar" or "aligned" in code[other].modifiers
            if other == first or (not (aligned and shared.any()) and counted):
                continue
            participants = "lanes of one warp" if shared.any() else "warps of one block"
            message = f"{participants} meet at different barrier instructions"
            where = np.flatnonzero(others).tolist()
            monitor.findings.add(kind, message, other, first, at, where)
        gone = threads - int(machine.live[number].sum())
        if gone and not counted:
            message = f"{gone} of the block's {threads} threads have exited and will not arrive"
            monitor.findings.add(kind, message, first, None, at, np.flatnonzero(lanes).tolist())
        elif gone:
            on = np.zeros(machine.extent.shape, bool)
            on[number] = lanes
            if monitor.participation.left(on, np.broadcast_to(ALL, on.shape)) is not None:
                message = "lanes of the same warp took another path and exited"
                monitor.findings.add(kind, message, first, None, at, np.flatnonzero(lanes).tolist())

    def _leave(self, on: np.ndarray, ids: np.ndarray) -> None:
        """bar.arrive: release the clocks of the threads to the barrier."""
        clocks = self.monitor.clocks
        for number in np.flatnonzero(on.any(axis=(1, 2))).tolist():
            for barrier in np.unique(ids[number][on[number]]).tolist():
                lanes = np.flatnonzero(on[number] & (ids[number] == barrier))
                released = clocks.release(number * clocks.threads + lanes)
                self.monitor.sync_objects.release((number, barrier), released)


class WatchedMbarriers(Mbarriers):
    """mbarriers: a wait that observes the completion of a phase acquires the phase's arrivals."""

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor.machine)
        self.monitor = monitor
        # A wait may return false, so it acquires nothing if the kernel ignores its result.
        read = read_registers(monitor.code)
        self.ignored = {k for k, i in enumerate(monitor.code) if not read & {*results(i)}}

    def init(self, access: Access, address: Value, count: Value, mask: Mask | None) -> None:
        super().init(access, address, count, mask)
        rows, cells = self._touched(access, address, mask)
        self.monitor.shadow.store(rows, cells, access.instruction)

    def arrive(
        self,
        access: Access,
        address: Value,
        count: Value,
        tx: Value,
        mask: Mask | None,
        drops: bool = False,
    ) -> np.ndarray:
        self._use(access, address, mask)
        rows = self.monitor.rows(mask)
        cells = self.cells(access, address, mask)
        size = OBJECT_BYTES // self.monitor.granule
        self.monitor.exits.reach(rows, cells * size, access.instruction)
        for cell in np.unique(cells).tolist():
            released = self.monitor.clocks.release(rows[cells == cell])
            self.monitor.sync_objects.release(("pending", cell), released)
        return super().arrive(access, address, count, tx, mask, drops)

    def wait(self, block: Block, operands: tuple[Any, ...], mask: Mask | None) -> None:
        access, address, _ = operands
        self._use(access, address, mask)
        waiting = len(self.parked)
        super().wait(block, operands, mask)
        is_ignored = block.last - 1 in self.ignored
        if len(self.parked) == waiting and not is_ignored:  # the phase was already complete
            cells = np.zeros(self.machine.extent.shape, np.int64)
            on = self.machine.active(mask)
            cells[on] = self.cells(access, address, mask)
            self._learn(on, cells)

    def _release(self, p: Parked, lanes: np.ndarray, answer: np.bool_) -> None:
        if answer and lanes.any() and p.block.last - 1 not in self.ignored:
            self._learn(lanes, p.cells)
        super()._release(p, lanes, answer)

    def _store(self, access: Access, objects: np.ndarray, state: State) -> None:
        before = State.of(self.all_words[objects]).phase
        super()._store(access, objects, state)
        for cell in objects[before != State.of(self.all_words[objects]).phase].tolist():
            self.monitor.sync_objects.move(("pending", cell), ("complete", cell))

    def _learn(self, lanes: np.ndarray, cells: np.ndarray) -> None:
        rows = np.flatnonzero(lanes)
        of = cells.reshape(-1)[rows]
        for cell in np.unique(of).tolist():
            self.monitor.sync_objects.acquire(("complete", cell), rows[of == cell])

    def _use(self, access: Access, address: Value, mask: Mask | None) -> None:
        """Check an arrival or a wait, which are atomic, against the object's initialization."""
        rows, cells = self._touched(access, address, mask)
        self.monitor.shadow.use(rows, cells, access.instruction)

    def _touched(
        self, access: Access, address: Value, mask: Mask | None
    ) -> tuple[np.ndarray, np.ndarray]:
        size = OBJECT_BYTES // self.monitor.granule
        cells = self.cells(access, address, mask)[:, None] * size + np.arange(size)
        return self.monitor.rows(mask)[:, None], cells


class WatchedClusterBarrier(ClusterBarrier):
    """barrier.cluster"""

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor.machine)
        self.monitor = monitor

    def arrive(self, index: int, mask: Mask | None) -> None:
        rows, clocks, code = self.monitor.rows(mask), self.monitor.clocks, self.monitor.code
        clusters = rows // clocks.members
        # A relaxed arrival releases only what an earlier fence has released.
        releases = "relaxed" not in code[index].modifiers or any(
            i.root in FENCES for i in code[:index]
        )
        for cluster in np.unique(clusters).tolist() if releases else ():
            released = clocks.release(rows[clusters == cluster])
            self.monitor.sync_objects.release(("pending cluster", cluster), released)
        super().arrive(index, mask)

    def release(self) -> None:
        before, waiting = self.completed.copy(), list(self.waiting)
        super().release()
        size, clocks = self.size, self.monitor.clocks
        for block in np.flatnonzero((self.completed != before).reshape(-1)).tolist():
            if block % size == 0:
                cluster = block // size
                self.monitor.sync_objects.move(("pending cluster", cluster), ("cluster", cluster))
        for _, lanes in waiting:
            rows = np.flatnonzero(lanes & (self.arrivals <= self.completed))
            clusters = rows // clocks.members
            for cluster in np.unique(clusters).tolist():
                self.monitor.sync_objects.acquire(("cluster", cluster), rows[clusters == cluster])
