"""Checks of asynchronous copies: their bytes must not be accessed before the wait, and the copy
engine sees earlier writes of threads only after a proxy fence."""

from __future__ import annotations

import numpy as np

from gemmlab.core.tensor_map import CHUNK
from gemmlab.emulator.arithmetic.lanes import Mask, Value, three_axes
from gemmlab.emulator.checks import advice
from gemmlab.emulator.checks.exits import Exits
from gemmlab.emulator.checks.global_accesses import GlobalAccesses
from gemmlab.emulator.checks.shadow import ATOMIC, PLAIN, site_of
from gemmlab.emulator.checks.state import State
from gemmlab.emulator.copies.places import Bytes, SharedBox, TensorBox, Words
from gemmlab.emulator.memory.arena import GLOBAL_BASE
from gemmlab.emulator.memory.chunk import offsets_of
from gemmlab.emulator.observer import Observer, Origin, Pending, Place, Request, Transfer
from gemmlab.emulator.synchronization.mbarriers import OBJECT_BYTES


class AsyncCopyChecks(Observer):
    """cp.async: the copies of a thread count as its writes at the time of the wait."""

    def __init__(self, state: State, global_accesses: GlobalAccesses) -> None:
        self.state, self.global_accesses = state, global_accesses

    def copy_issued(self, source: Request, nbytes: Value, copy: Pending) -> None:
        self._read(source, nbytes)
        rows, cells = copy.lanes[:, None], self._granules(copy)
        self.state.shadow.store(rows, cells, source.access.instruction, in_flight=True)

    def copy_completed(self, copy: Pending) -> None:
        clocks, cells = self.state.clocks, self._granules(copy)
        column, now = clocks.column(copy.lanes)[:, None], clocks.now[copy.lanes][:, None]
        self.state.shadow.complete_writes(cells, column, now)
        self.state.shadow.unfenced[cells] = True

    def _granules(self, copy: Pending) -> np.ndarray:
        """The granules of each lane's copy, (lanes, granules)."""
        itemsize, granule = copy.values[0].dtype.itemsize, self.state.granule
        first = copy.cells * itemsize // granule
        return np.asarray(first[:, None] + np.arange(itemsize * len(copy.values) // granule))

    def _read(self, source: Request, nbytes: Value) -> None:
        """Record the read of the source, which happens when the copy is issued."""
        machine, granule = self.state.machine, self.state.granule
        on = machine.active(source.mask)
        offsets = offsets_of(source.access, source.address) - GLOBAL_BASE
        starts = np.broadcast_to(offsets, on.shape)
        sizes = np.broadcast_to(three_axes(nbytes), on.shape) // granule * granule
        for size in np.unique(sizes[on & (sizes > 0)]).tolist():
            part = on & (sizes == size)
            among, site = Mask(part, machine.extent), source.access.instruction
            self.global_accesses.touch("copy", site, starts[part], size, among, None)


class BulkCopyChecks(Observer):
    """Bulk copies: a thread acquires them by waiting for the mbarrier phase that they complete."""

    def __init__(self, state: State, exits: Exits, global_accesses: GlobalAccesses) -> None:
        self.state, self.exits, self.global_accesses = state, exits, global_accesses
        self.unfinished: list[Transfer] = []  # copies of which only the reads have been waited for

    def exited(self, lanes: np.ndarray) -> None:
        """Check that no copy uses the shared memory of a block whose last thread has exited."""
        state, threads = self.state, self.state.clocks.threads
        for transfer in state.machine.bulk.transfers:
            block = transfer.thread // threads
            places = [self._in_shared(place) for place in (transfer.source, *transfer.targets)]
            known = [int(cells[0]) for cells in places if cells is not None and cells.size]
            left = [cell for cell in known if not state.machine.live[cell // state.row].any()]
            if left:
                site, thread = transfer.instruction, transfer.thread % threads
                place = state.place_of("shared", left[0], site)
                at = advice.line(state.code[site].site)
                what = (
                    f"the asynchronous operation of thread {thread}, started at {at}, may still "
                    f"use {place} when the block exits: wait for its completion before the end"
                )
                where = state.machine.block_index(block)
                state.findings.add("missing wait", what, site, self.exits.site, where, [thread])

    def transfer_started(self, transfer: Transfer) -> None:
        state, shadow = self.state, self.state.shadow
        source, cells = transfer.source, transfer.cells
        row, site = np.array([[transfer.thread]]), transfer.instruction
        for cell in cells:
            shadow.check_fence(row, self._object(cell), site, "uses")
            self.exits.reach(row[0], self._object(cell)[:, 0], site)
        read = self._in_shared(source)
        if read is not None:
            shadow.load_initialized(row, read[None], site, in_flight=True)
            shadow.check_fence(row, read[None], site, "reads")
        elif not isinstance(source, Words):
            self.global_accesses.touch_pieces("copy", site, row[0], self._in_global(source))
        for target in transfer.targets:
            written = self._in_shared(target)
            if written is not None:
                self.exits.reach(row[0], written[:1], site)
                if not isinstance(source, Words):
                    shadow.check_fence(row, written[None], site, "overwrites")
                strength = PLAIN if transfer.combine is None else ATOMIC
                shadow.store(row, written[None], site, strength, in_flight=True)
            else:
                name = "update" if transfer.combine is not None else "store"
                self.global_accesses.touch_pieces(name, site, row[0], self._in_global(target))
        for cell in cells:
            state.sync_objects.release(("pending", cell), state.clocks.release(row[0]))

    def transfer_completed(self, transfer: Transfer, only_reads: bool) -> None:
        state, clocks, shadow = self.state, self.state.clocks, self.state.shadow
        clocks.engine_epoch += 1
        holder = column = transfer.thread % clocks.members
        epoch = int(clocks.now[transfer.thread])
        for cell in transfer.cells:
            column, epoch = clocks.engine(cell), clocks.engine_epoch
            released = np.zeros(clocks.known.shape[1], np.int32)
            released[column] = epoch
            state.sync_objects.release(("pending", cell), released)
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
            done = self.state.machine.bulk.awaited(self.unfinished, most, mask)
            completed = set(map(id, done))
            self.unfinished = [t for t in self.unfinished if id(t) not in completed]
            for transfer in done:
                for target in transfer.targets:
                    self._arrive(transfer, target, False)

    def _arrive(self, transfer: Transfer, target: Place, only_reads: bool) -> None:
        """The thread acquires the copy's writes to global memory, unless it waited for the reads
        only."""
        clocks, blocks = self.state.clocks, self.state.blocks
        if only_reads:
            self.unfinished.append(transfer)
        elif blocks is not None:
            column = transfer.thread % clocks.members
            blocks.complete_writes(
                self._in_global(target), column, int(clocks.now[transfer.thread])
            )

    def proxy_fenced(self, mask: Mask | None) -> None:
        self._show(mask, np.flatnonzero(self.state.shadow.unfenced))

    def mbarrier_init_fenced(self, mask: Mask | None) -> None:
        shadow, code = self.state.shadow, self.state.code
        unfenced = np.flatnonzero(shadow.unfenced)
        sites = site_of(shadow.written[unfenced])
        inits = [k for k in np.unique(sites).tolist() if code[k].name == "mbarrier.init"]
        self._show(mask, unfenced[np.isin(sites, inits)])

    def _show(self, mask: Mask | None, unfenced: np.ndarray) -> None:
        """Make writes to the granules visible to the async proxy, if the fencing threads have
        acquired them."""
        clocks, shadow = self.state.clocks, self.state.shadow
        rows = self.state.rows(mask)
        of_cell, of_row = (
            unfenced // (self.state.row * self.state.cluster_size),
            rows // clocks.members,
        )
        for cluster in np.intersect1d(of_cell, of_row).tolist():
            shadow.fence(unfenced[of_cell == cluster], clocks.joined(rows[of_row == cluster]))

    def _object(self, cell: int) -> np.ndarray:
        """The granules of an mbarrier, (1, granules)."""
        size = OBJECT_BYTES // self.state.granule
        return cell * size + np.arange(size)[None]

    def _in_shared(self, place: Origin) -> np.ndarray | None:
        """The granules of a source or target in shared memory; None if it is in global memory."""
        granule = self.state.granule
        if isinstance(place, SharedBox):
            start = _pointer(place.rows) - _pointer(self.state.shared)
            bytes_ = start + place.chunks[:, None] * CHUNK + np.arange(0, CHUNK, granule)
            return np.asarray(bytes_.reshape(-1) // granule)
        if isinstance(place, Bytes):
            start = _pointer(place.view) - _pointer(self.state.shared)
            if 0 <= start < self.state.shared.size:
                return np.arange(start // granule, (start + place.view.size) // granule)
        return None

    def _in_global(self, place: Origin) -> np.ndarray:
        """The granules of a source or target in global memory."""
        assert isinstance(place, (Bytes, TensorBox))
        view = place.view
        first = np.full(
            (1,) * view.ndim, _pointer(view) - _pointer(self.state.machine.launch.memory.data)
        )
        for axis, (size, stride) in enumerate(zip(view.shape, view.strides, strict=True)):
            steps = np.arange(size) * stride
            first = first + np.expand_dims(steps, tuple(k for k in range(view.ndim) if k != axis))
        return np.unique(first.reshape(-1) // self.state.granule)


def _pointer(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])
