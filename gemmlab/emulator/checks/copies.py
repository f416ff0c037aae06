"""Checks of asynchronous copies: their bytes must not be accessed before the wait, and the copy
engine sees earlier writes of threads only after a proxy fence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gemmlab.core.tensor_map import CHUNK
from gemmlab.emulator.arithmetic.lanes import Mask, Value, three_axes
from gemmlab.emulator.checks.shadow import ATOMIC, PLAIN, site_of
from gemmlab.emulator.memory.arena import GLOBAL_BASE
from gemmlab.emulator.memory.async_copies import Pending
from gemmlab.emulator.memory.bulk_copies import (
    Bytes,
    Origin,
    Place,
    SharedBox,
    TensorBox,
    Transfer,
    Words,
)
from gemmlab.emulator.memory.spaces import offsets_of
from gemmlab.emulator.observer import Observer, Request
from gemmlab.emulator.synchronization.mbarriers import OBJECT_BYTES

if TYPE_CHECKING:
    from gemmlab.emulator.checks.monitor import Monitor


class AsyncCopyChecks(Observer):
    """cp.async: the copies of a thread count as its writes at the time of the wait."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor

    def copy_issued(self, source: Request, nbytes: Value, copy: Pending) -> None:
        self._read(source, nbytes)
        rows, cells = copy.lanes[:, None], self._granules(copy)
        self.monitor.shadow.store(rows, cells, source.access.instruction, in_flight=True)

    def copy_completed(self, copy: Pending) -> None:
        clocks, cells = self.monitor.clocks, self._granules(copy)
        column, now = clocks.column(copy.lanes)[:, None], clocks.now[copy.lanes][:, None]
        self.monitor.shadow.complete_writes(cells, column, now)
        self.monitor.shadow.unfenced[cells] = True

    def _granules(self, copy: Pending) -> np.ndarray:
        """The granules of each lane's copy, (lanes, granules)."""
        itemsize, granule = copy.values[0].dtype.itemsize, self.monitor.granule
        first = copy.cells * itemsize // granule
        return np.asarray(first[:, None] + np.arange(itemsize * len(copy.values) // granule))

    def _read(self, source: Request, nbytes: Value) -> None:
        """Record the read of the source, which happens when the copy is issued."""
        machine, granule = self.monitor.machine, self.monitor.granule
        on = machine.active(source.mask)
        offsets = offsets_of(source.access, source.address) - GLOBAL_BASE
        starts = np.broadcast_to(offsets, on.shape)
        sizes = np.broadcast_to(three_axes(nbytes), on.shape) // granule * granule
        for size in np.unique(sizes[on & (sizes > 0)]).tolist():
            part = on & (sizes == size)
            among, site = Mask(part, machine.extent), source.access.instruction
            self.monitor.global_accesses.touch("copy", site, starts[part], size, among, None)


class BulkCopyChecks(Observer):
    """Bulk copies: a thread acquires them by waiting for the mbarrier phase that they complete."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self.unfinished: list[Transfer] = []  # copies of which only the reads have been waited for

    def exited(self, lanes: np.ndarray) -> None:
        """Check that no copy uses the shared memory of a block whose last thread has exited."""
        monitor, threads = self.monitor, self.monitor.clocks.threads
        for transfer in monitor.machine.bulk.transfers:
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

    def transfer_started(self, transfer: Transfer) -> None:
        monitor, shadow = self.monitor, self.monitor.shadow
        source, cells = transfer.source, transfer.cells
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
        for target in transfer.targets:
            written = self._in_shared(target)
            if written is not None:
                monitor.exits.reach(row[0], written[:1], site)
                if not isinstance(source, Words):
                    shadow.check_fence(row, written[None], site, "a write and an overwrite")
                strength = PLAIN if transfer.combine is None else ATOMIC
                shadow.store(row, written[None], site, strength, in_flight=True)
            else:
                name = "update" if transfer.combine is not None else "store"
                monitor.global_accesses.touch_pieces(name, site, row[0], self._in_global(target))
        for cell in cells:
            monitor.sync_objects.release(("pending", cell), monitor.clocks.release(row[0]))

    def transfer_completed(self, transfer: Transfer, only_reads: bool) -> None:
        monitor, clocks, shadow = self.monitor, self.monitor.clocks, self.monitor.shadow
        clocks.engine_epoch += 1
        holder = column = transfer.thread % clocks.members
        epoch = int(clocks.now[transfer.thread])
        for cell in transfer.cells:
            column, epoch = clocks.engine(cell), clocks.engine_epoch
            released = np.zeros(clocks.known.shape[1], np.int32)
            released[column] = epoch
            monitor.sync_objects.release(("pending", cell), released)
        for k, target in enumerate(transfer.targets):
            written = self._in_shared(target)
            if written is None:
                self._arrive(transfer, target, only_reads)
            elif transfer.cells:
                shadow.complete_writes(written, clocks.engine(transfer.cells[k]), epoch)
        read = self._in_shared(transfer.source)
        if read is not None:
            shadow.complete_reads(read, holder, column, epoch)

    def transfers_awaited(self, most: int, only_reads: bool, mask: Mask | None) -> None:
        if not only_reads and self.unfinished:
            done = self.monitor.machine.bulk.awaited(self.unfinished, most, mask)
            completed = set(map(id, done))
            self.unfinished = [t for t in self.unfinished if id(t) not in completed]
            for transfer in done:
                for target in transfer.targets:
                    self._arrive(transfer, target, False)

    def _arrive(self, transfer: Transfer, target: Place, only_reads: bool) -> None:
        """The thread acquires the copy's writes to global memory, unless it waited for the reads
        only."""
        clocks, blocks = self.monitor.clocks, self.monitor.blocks
        if only_reads:
            self.unfinished.append(transfer)
        elif blocks is not None:
            column = transfer.thread % clocks.members
            blocks.complete_writes(
                self._in_global(target), column, int(clocks.now[transfer.thread])
            )

    def proxy_fenced(self, mask: Mask | None) -> None:
        self._show(mask, np.flatnonzero(self.monitor.shadow.unfenced))

    def mbarrier_init_fenced(self, mask: Mask | None) -> None:
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
        of_cell, of_row = (
            unfenced // (self.monitor.row * self.monitor.cluster_size),
            rows // clocks.members,
        )
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
            start = _pointer(place.rows) - _pointer(self.monitor.shared)
            bytes_ = start + place.chunks[:, None] * CHUNK + np.arange(0, CHUNK, granule)
            return np.asarray(bytes_.reshape(-1) // granule)
        if isinstance(place, Bytes):
            start = _pointer(place.view) - _pointer(self.monitor.shared)
            if 0 <= start < self.monitor.shared.size:
                return np.arange(start // granule, (start + place.view.size) // granule)
        return None

    def _in_global(self, place: Origin) -> np.ndarray:
        """The granules of a source or target in global memory."""
        assert isinstance(place, (Bytes, TensorBox))
        view = place.view
        first = np.full(
            (1,) * view.ndim, _pointer(view) - _pointer(self.monitor.machine.launch.memory.data)
        )
        for axis, (size, stride) in enumerate(zip(view.shape, view.strides, strict=True)):
            steps = np.arange(size) * stride
            first = first + np.expand_dims(steps, tuple(k for k in range(view.ndim) if k != axis))
        return np.unique(first.reshape(-1) // self.monitor.granule)


def _pointer(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])
