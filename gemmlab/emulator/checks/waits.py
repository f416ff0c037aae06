"""Updates vector clocks at barriers, mbarriers and cluster barriers."""

from __future__ import annotations

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Mask
from gemmlab.emulator.checks import advice
from gemmlab.emulator.checks.exits import Exits
from gemmlab.emulator.checks.state import State
from gemmlab.emulator.checks.warps import ALL, Participation
from gemmlab.emulator.observer import Observer
from gemmlab.emulator.program import Block
from gemmlab.emulator.synchronization.mbarriers import OBJECT_BYTES
from gemmlab.emulator.translation.liveness import read_registers, results
from gemmlab.ptx.opcodes import FENCES


class BarrierWaits(Observer):
    """bar and barrier."""

    def __init__(self, state: State, participation: Participation) -> None:
        self.state, self.machine, self.participation = state, state.machine, participation

    def barrier_passed(self) -> None:
        self.state.clocks.barrier(np.arange(self.machine.num_blocks))

    def barrier_arrived(self, barrier: int, lanes: np.ndarray) -> None:
        clocks = self.state.clocks
        for number in np.flatnonzero(lanes.any(axis=(1, 2))).tolist():
            rows = number * clocks.threads + np.flatnonzero(lanes[number])
            self.state.sync_objects.release((number, barrier), clocks.release(rows))

    def barrier_opened(
        self,
        barrier: int,
        groups: list[tuple[Block, np.ndarray]],
        counted: np.ndarray,
        arrived: np.ndarray,
    ) -> None:
        opened: dict[int, list[tuple[Block, np.ndarray]]] = {}
        for block, lanes in groups:
            for number in np.flatnonzero(lanes.any(axis=(1, 2))).tolist():
                opened.setdefault(number, []).append((block, lanes[number]))
        for number, here in opened.items():
            self._go_on(number, barrier, here, bool(counted[number]), int(arrived[number]))

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
        clocks, live = self.state.clocks, self.machine.live[number]
        lanes = np.logical_or.reduce([lanes for _, lanes in groups])
        place = number, barrier
        if (live & ~lanes).any() or arrived:
            rows = number * clocks.threads + np.flatnonzero(lanes)
            self.state.sync_objects.release(place, clocks.release(rows))
            self.state.sync_objects.acquire(place, rows)
        else:
            clocks.barrier(np.array([number]))
        self.state.sync_objects.clear(place)
        self._examine(number, groups, counted)

    def _examine(self, number: int, groups: list[tuple[Block, np.ndarray]], counted: bool) -> None:
        """Check that the threads that met at a barrier were allowed to."""
        state, machine = self.state, self.machine
        code, kind = state.code, "divergent barrier"
        at, threads = machine.block_index(number), machine.launch.threads
        first, lanes = groups[0][0].last - 1, groups[0][1]
        for block, others in groups[1:]:
            other = block.last - 1
            shared = lanes.any(axis=1) & others.any(axis=1)
            aligned = code[other].root == "bar" or "aligned" in code[other].modifiers
            if other == first or (not (aligned and shared.any()) and counted):
                continue
            together = "warp" if shared.any() else "block"
            where = np.flatnonzero(others).tolist()
            message = (
                f"thread {int(lanes.argmax())} waits at {advice.line(code[first].site)}, thread "
                f"{where[0]} of the same {together} at {advice.line(code[other].site)}: use one "
                "barrier for both, outside the branch"
            )
            state.findings.add(kind, message, other, first, at, where)
        gone = threads - int(machine.live[number].sum())
        if gone and not counted:
            message = (
                f"{gone} of the block's {threads} threads have exited and will not reach "
                f"{advice.line(code[first].site)}: let all threads reach the barrier"
            )
            state.findings.add(kind, message, first, None, at, np.flatnonzero(lanes).tolist())
        elif gone:
            on = np.zeros(machine.extent.shape, bool)
            on[number] = lanes
            if self.participation.left(on, np.broadcast_to(ALL, on.shape)) is not None:
                message = (
                    f"lanes of the same warp took another path and exited before "
                    f"{advice.line(code[first].site)}: let all lanes reach the barrier"
                )
                state.findings.add(kind, message, first, None, at, np.flatnonzero(lanes).tolist())


class MbarrierWaits(Observer):
    """mbarriers: a wait that observes the completion of a phase acquires the phase's arrivals."""

    def __init__(self, state: State, exits: Exits) -> None:
        self.state, self.exits = state, exits
        # A wait may return false, so it acquires nothing if the kernel ignores its result.
        read = read_registers(state.code)
        self.ignored = {k for k, i in enumerate(state.code) if not read & {*results(i)}}

    def mbarrier_initialized(self, index: int, cells: np.ndarray, mask: Mask | None) -> None:
        self.state.shadow.store(*self._touched(cells, mask), index)

    def mbarrier_arrived(self, index: int, cells: np.ndarray, mask: Mask | None) -> None:
        self.state.shadow.use(*self._touched(cells, mask), index)
        rows = self.state.rows(mask)
        size = OBJECT_BYTES // self.state.granule
        self.exits.reach(rows, cells * size, index)
        for cell in np.unique(cells).tolist():
            released = self.state.clocks.release(rows[cells == cell])
            self.state.sync_objects.release(("pending", cell), released)

    def mbarrier_awaited(
        self, index: int, cells: np.ndarray, parity: np.ndarray, mask: Mask | None
    ) -> None:
        self.state.shadow.use(*self._touched(cells, mask), index)

    def mbarrier_passed(self, index: int, cells: np.ndarray, lanes: np.ndarray) -> None:
        if index in self.ignored:
            return
        rows = np.flatnonzero(lanes)
        of = cells.reshape(-1)[rows]
        for cell in np.unique(of).tolist():
            self.state.sync_objects.acquire(("complete", cell), rows[of == cell])

    def mbarrier_completed(self, cells: np.ndarray) -> None:
        for cell in cells.tolist():
            self.state.sync_objects.move(("pending", cell), ("complete", cell))

    def _touched(self, cells: np.ndarray, mask: Mask | None) -> tuple[np.ndarray, np.ndarray]:
        """The rows of the active threads and the granules of their objects."""
        size = OBJECT_BYTES // self.state.granule
        return self.state.rows(mask)[:, None], cells[:, None] * size + np.arange(size)


class ClusterWaits(Observer):
    """barrier.cluster"""

    def __init__(self, state: State) -> None:
        self.state = state

    def cluster_arrived(self, index: int, mask: Mask | None) -> None:
        rows, clocks, code = self.state.rows(mask), self.state.clocks, self.state.code
        clusters = rows // clocks.members
        # A relaxed arrival releases only what an earlier fence has released.
        releases = "relaxed" not in code[index].modifiers or any(
            i.root in FENCES for i in code[:index]
        )
        for cluster in np.unique(clusters).tolist() if releases else ():
            released = clocks.release(rows[clusters == cluster])
            self.state.sync_objects.release(("pending cluster", cluster), released)

    def cluster_completed(self, clusters: np.ndarray) -> None:
        for cluster in clusters.tolist():
            self.state.sync_objects.move(("pending cluster", cluster), ("cluster", cluster))

    def cluster_passed(self, lanes: np.ndarray) -> None:
        rows = np.flatnonzero(lanes)
        clusters = rows // self.state.clocks.members
        for cluster in np.unique(clusters).tolist():
            self.state.sync_objects.acquire(("cluster", cluster), rows[clusters == cluster])
