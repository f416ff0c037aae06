"""Checks of asynchronous copies: their bytes must not be accessed before the wait, and the copy
engine sees earlier writes of threads only after a proxy fence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gemmlab.core.tensor_map import CHUNK
from gemmlab.emulator.arithmetic.lanes import Mask, Value, three_axes
from gemmlab.emulator.checks.shadow import ATOMIC, PLAIN, site_of
from gemmlab.emulator.checks.waits import OBJECT_BYTES
from gemmlab.emulator.memory.arena import GLOBAL_BASE
from gemmlab.emulator.memory.async_copies import AsyncCopies, Pending, Target
from gemmlab.emulator.memory.bulk_copies import (
    BulkCopies,
    Bytes,
    Lane,
    Origin,
    Place,
    SharedBox,
    TensorBox,
    Transfer,
    Words,
)
from gemmlab.emulator.memory.reductions import Combine
from gemmlab.emulator.memory.spaces import Access, offsets_of
from gemmlab.emulator.observer import Observer

if TYPE_CHECKING:
    from gemmlab.emulator.checks.monitor import Monitor


def watch_copies(monitor: Monitor) -> None:
    monitor.machine.copies = WatchedCopies(monitor)
    monitor.machine.bulk = bulk = WatchedBulkCopies(monitor)
    monitor.machine.observers.append(bulk)


class WatchedTarget(Target):
    """Shared memory: the copies of a thread count as its writes at the time of the wait."""

    monitor: Monitor

    def granules(self, copy: Pending) -> np.ndarray:
        """The granules of each lane's copy, (lanes, granules)."""
        itemsize, granule = copy.values[0].dtype.itemsize, self.monitor.granule
        first = copy.cells * itemsize // granule
        return np.asarray(first[:, None] + np.arange(itemsize * len(copy.values) // granule))

    def put(self, copy: Pending) -> None:
        super().put(copy)
        clocks = self.monitor.clocks
        column, now = clocks.column(copy.lanes)[:, None], clocks.now[copy.lanes][:, None]
        self.monitor.shadow.complete_writes(self.granules(copy), column, now)
        self.monitor.shadow.unfenced[self.granules(copy)] = True


class WatchedCopies(AsyncCopies):
    """cp.async"""

    def __init__(self, monitor: Monitor) -> None:
        copies, self.monitor = monitor.machine.copies, monitor
        to = copies.target
        self.watched = WatchedTarget(to.data, to.nbytes, to.chunk)
        self.watched.monitor = monitor
        super().__init__(copies.source, self.watched, copies.chunk)

    def issue(
        self,
        to: Access,
        target: Value,
        origin: Access,
        source: Value,
        nbytes: Value,
        bypass: bool,
        mask: Mask | None,
    ) -> None:
        super().issue(to, target, origin, source, nbytes, bypass, mask)
        self._read(origin, source, nbytes, mask)
        copy, shadow = self.pending[-1], self.monitor.shadow
        rows, cells = copy.lanes[:, None], self.watched.granules(copy)
        shadow.store(rows, cells, to.instruction, in_flight=True)

    def _read(self, access: Access, address: Value, nbytes: Value, mask: Mask | None) -> None:
        """Record the read of the source, which happens when the copy is issued."""
        machine, granule = self.monitor.machine, self.monitor.granule
        on = machine.active(mask)
        starts = np.broadcast_to(offsets_of(access, address) - GLOBAL_BASE, on.shape)
        sizes = np.broadcast_to(three_axes(nbytes), on.shape) // granule * granule
        for size in np.unique(sizes[on & (sizes > 0)]).tolist():
            part = on & (sizes == size)
            among, site = Mask(part, machine.extent), access.instruction
            self.monitor.global_accesses.touch("copy", site, starts[part], size, among, None)


class WatchedBulkCopies(BulkCopies, Observer):
    """Bulk copies: a thread acquires them by waiting for the mbarrier phase that they complete."""

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor.machine)
        self.monitor = monitor
        self.only_reads = False  # the current wait is wait_group.read
        self.unfinished: list[Transfer] = []  # copies of which only the reads have been waited for

    def exited(self, lanes: np.ndarray) -> None:
        """Check that no copy uses the shared memory of a block whose last thread has exited."""
        monitor, threads = self.monitor, self.monitor.clocks.threads
        for transfer in self.transfers:
            block = transfer.thread // threads
            places = [self._in_shared(place) for place in (transfer.source, *transfer.targets)]
            known = [cells for cells in places if cells is not None and cells.size]
            at = [int(cells[0]) // monitor.row for cells in known]
            if any(not monitor.machine.live[b].any() for b in at):
                what = "a block exits while a copy that was not waited for uses its shared memory"
                where, thread = monitor.machine.block_index(block), transfer.thread % threads
                monitor.findings.add(
                    "missing wait", what, transfer.instruction, monitor.exits.site, where, [thread]
                )

    def _start(
        self,
        lane: Lane,
        source: Origin,
        targets: list[Place],
        combine: Combine | None,
        cells: list[int],
        nbytes: int,
    ) -> None:
        super()._start(lane, source, targets, combine, cells, nbytes)
        monitor, shadow, transfer = self.monitor, self.monitor.shadow, self.transfers[-1]
        row, site = np.array([[transfer.thread]]), transfer.instruction
        for cell in cells:
            shadow.check_fence(
                row, self._object(cell), site, "an mbarrier's initialization and its use"
            )
            monitor.exits.reach(row[0], self._object(cell)[:, 0], site)
        read = self._in_shared(source)
        if read is not None:
            shadow.load_initialized(row, read[None], site, in_flight=True)
            shadow.check_fence(row, read[None], site, "a write and a read")
        elif not isinstance(source, Words):
            monitor.global_accesses.touch_pieces("copy", site, row[0], self._in_global(source))
        for target in targets:
            written = self._in_shared(target)
            if written is not None:
                monitor.exits.reach(row[0], written[:1], site)
                if not isinstance(source, Words):
                    shadow.check_fence(row, written[None], site, "a write and an overwrite")
                strength = PLAIN if combine is None else ATOMIC
                shadow.store(row, written[None], site, strength, in_flight=True)
            else:
                name = "update" if combine is not None else "store"
                monitor.global_accesses.touch_pieces(name, site, row[0], self._in_global(target))
        for cell in cells:
            monitor.sync_objects.release(("pending", cell), monitor.clocks.release(row[0]))

    def _complete(self, due: list[Transfer]) -> None:
        clocks, sync_objects, shadow = (
            self.monitor.clocks,
            self.monitor.sync_objects,
            self.monitor.shadow,
        )
        for transfer in due:
            clocks.engine_epoch += 1
            holder = column = transfer.thread % clocks.members
            epoch = int(clocks.now[transfer.thread])
            for cell in transfer.cells:
                column, epoch = clocks.engine(cell), clocks.engine_epoch
                released = np.zeros(clocks.known.shape[1], np.int32)
                released[column] = epoch
                sync_objects.release(("pending", cell), released)
            for k, target in enumerate(transfer.targets):
                written = self._in_shared(target)
                if written is None:
                    self._arrive(transfer, target)
                elif written is not None and transfer.cells:
                    shadow.complete_writes(written, clocks.engine(transfer.cells[k]), epoch)
            read = self._in_shared(transfer.source)
            if read is not None:
                shadow.complete_reads(read, holder, column, epoch)
            super()._complete([transfer])  # after the release, because it may complete the phase

    def wait(self, most: int, only_reads: bool, mask: Mask | None) -> None:
        self.only_reads = only_reads
        super().wait(most, only_reads, mask)
        self.only_reads = False
        if not only_reads and self.unfinished:
            done = self._awaited(self.unfinished, most, mask)
            completed = set(map(id, done))
            self.unfinished = [t for t in self.unfinished if id(t) not in completed]
            for transfer in done:
                for target in transfer.targets:
                    self._arrive(transfer, target)

    def _arrive(self, transfer: Transfer, target: Place) -> None:
        """The thread acquires the copy's writes to global memory, unless it waited for the reads
        only."""
        clocks, blocks = self.monitor.clocks, self.monitor.blocks
        if self.only_reads:
            self.unfinished.append(transfer)
        elif blocks is not None:
            column = transfer.thread % clocks.members
            blocks.complete_writes(
                self._in_global(target), column, int(clocks.now[transfer.thread])
            )

    def fence(self, mask: Mask | None) -> None:
        self._show(mask, np.flatnonzero(self.monitor.shadow.unfenced))

    def fence_init(self, mask: Mask | None) -> None:
        shadow, code = self.monitor.shadow, self.monitor.code
        unfenced = np.flatnonzero(shadow.unfenced)
        sites = site_of(shadow.written[unfenced])
        inits = [k for k in np.unique(sites).tolist() if code[k].name == "mbarrier.init"]
        self._show(mask, unfenced[np.isin(sites, inits)])

    def _show(self, mask: Mask | None, unfenced: np.ndarray) -> None:
        """Make writes to the granules visible to the async proxy, if the fencing threads have
        acquired them."""
        clocks, shadow = self.monitor.clocks, self.monitor.shadow
        rows = self.monitor.rows(mask)
        of_cell, of_row = unfenced // (self.monitor.row * self.cluster_size), rows // clocks.members
        for cluster in np.intersect1d(of_cell, of_row).tolist():
            shadow.fence(unfenced[of_cell == cluster], clocks.joined(rows[of_row == cluster]))

    def _object(self, cell: int) -> np.ndarray:
        """The granules of an mbarrier, (1, granules)."""
        size = OBJECT_BYTES // self.monitor.granule
        return cell * size + np.arange(size)[None]

    def _in_shared(self, place: Origin) -> np.ndarray | None:
        """The granules of a source or target in shared memory; None if it is in global memory."""
        granule = self.monitor.granule
        if isinstance(place, SharedBox):
            start = _pointer(place.rows) - _pointer(self.shared)
            bytes_ = start + place.chunks[:, None] * CHUNK + np.arange(0, CHUNK, granule)
            return np.asarray(bytes_.reshape(-1) // granule)
        if isinstance(place, Bytes):
            start = _pointer(place.view) - _pointer(self.shared)
            if 0 <= start < self.shared.size:
                return np.arange(start // granule, (start + place.view.size) // granule)
        return None

    def _in_global(self, place: Origin) -> np.ndarray:
        """The granules of a source or target in global memory."""
        assert isinstance(place, (Bytes, TensorBox))
        view = place.view
        first = np.full((1,) * view.ndim, _pointer(view) - _pointer(self.memory.data))
        for axis, (size, stride) in enumerate(zip(view.shape, view.strides, strict=True)):
            steps = np.arange(size) * stride
            first = first + np.expand_dims(steps, tuple(k for k in range(view.ndim) if k != axis))
        return np.unique(first.reshape(-1) // self.monitor.granule)


def _pointer(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])
