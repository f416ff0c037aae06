"""Passes the global memory accesses of a chunk of blocks to the records of the launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP, Mask, Value, three_axes
from gemmlab.emulator.checks.blocks import UNINITIALIZED, Accesses, GlobalShadow
from gemmlab.emulator.checks.findings import SHOWN
from gemmlab.emulator.checks.shadow import ATOMIC, PLAIN, strength
from gemmlab.emulator.checks.stores import overwritten
from gemmlab.emulator.execution.coordinates import block_index
from gemmlab.emulator.memory.arena import GLOBAL_BASE
from gemmlab.emulator.memory.spaces import offsets_of
from gemmlab.emulator.observer import Observer, Request

if TYPE_CHECKING:
    from gemmlab.emulator.checks.monitor import Monitor


class GlobalAccesses(Observer):
    """The global memory accesses of one chunk. blocks: the records of the launch, if needed."""

    def __init__(self, monitor: Monitor, blocks: GlobalShadow | None) -> None:
        self.monitor, self.blocks = monitor, blocks
        self.memory = monitor.machine.launch.memory.data
        self.starts: np.ndarray  # per active lane, offset in the arena of the current access
        self.changed: np.ndarray | None  # per granule, whether the current store changes it

    def accessing(self, request: Request) -> None:
        access, mask = request.access, request.mask
        offsets = offsets_of(access, request.address) - GLOBAL_BASE
        offsets = self.monitor.machine.chunk.spread(offsets)
        self.starts = offsets.reshape(-1) if mask is None else offsets[mask.array]
        self.changed = None
        if request.kind == "store" and self.blocks is not None:
            cells = self.monitor.pieces(self.starts, access.width)
            old = self.monitor.values(self.memory, cells)
            self.changed = (old != self.monitor.written(request)).any(axis=2)

    def accessed(self, request: Request, result: Any) -> None:
        name, access, mask = request.kind, request.access, request.mask
        starts, site = self.starts, access.instruction
        cells = self.monitor.pieces(starts, access.width)
        if name == "load" and self.blocks is not None:
            words = self.blocks.written.when.take(cells)
            is_bad = words.min(initial=0) == UNINITIALIZED
            unwritten = words == UNINITIALIZED if is_bad else None
            self.monitor.undefined.load(site, "global", mask, cells, unwritten)
        elif name == "store":
            self.monitor.undefined.store(site, "global", mask, cells)
        self.touch(name, site, starts, access.width, mask, self.changed)
        if self.changed is not None and strength(self.monitor.code[site]) == PLAIN:
            written = self.monitor.written(request)
            self._check_conflicts(site, self.monitor.rows(mask), cells, written)

    def _check_conflicts(
        self, site: int, rows: np.ndarray, cells: np.ndarray, written: np.ndarray
    ) -> None:
        """Check for threads that write to one location with the same instruction, in one warp or in
        several."""
        left = self.monitor.values(self.memory, cells)
        starts = cells[:, 0] * self.monitor.granule
        within = overwritten(rows // WARP, cells, written, left).any(axis=1)
        if within.any():
            what = "lanes of one instruction write different values to one location"
            self._report("order dependent", what, site, None, rows[within], starts[within])
        at_all = overwritten(np.zeros_like(rows), cells, written, left).any(axis=1)
        between = at_all & ~within
        if between.any():
            what = "write after write, by one instruction of several warps"
            self._report("global race", what, site, site, rows[between], starts[between])

    def touch(
        self,
        name: str,
        site: int,
        starts: np.ndarray,
        nbytes: int,
        mask: Mask | None,
        changed: np.ndarray | None,
    ) -> None:
        """Record that each active thread has accessed `nbytes` bytes of global memory at `starts`.

        name: the kind of the request, or "copy" for the source of an asynchronous copy.
        """
        rows, strong = self.monitor.rows(mask), strength(self.monitor.code[site])
        cells = self.monitor.pieces(starts, nbytes)
        if strong and self.monitor.has_flags:
            self.monitor.flags("global", rows, cells[:, 0], site)
        if self.blocks is None:
            return
        # Strong accesses by lanes of one warp do not race, even if volatile: their threads poll.
        accesses = self._accesses(site, rows[:, None], cells, ATOMIC if strong else PLAIN)
        if strong:
            self.blocks.synchronize(accesses)
        self._record(name, accesses, changed)

    def touch_pieces(self, name: str, site: int, row: np.ndarray, cells: np.ndarray) -> None:
        """Record that a bulk copy of one thread has read or written granules of global memory."""
        if self.blocks is None or not cells.size:
            return
        strong = ATOMIC if name == "update" else PLAIN
        rows = np.broadcast_to(row[:, None], (len(cells), 1))
        accesses = self._accesses(site, rows, cells[:, None], strong)
        self._record(name, accesses._replace(in_flight=name != "copy"), None)

    def _accesses(self, site: int, rows: np.ndarray, cells: np.ndarray, strong: int) -> Accesses:
        """rows: (n, 1); cells: (n, granules per access)."""

        def report(
            what: str, at: int, other: int, block: int | None, column: int | None, which: np.ndarray
        ) -> None:
            if block is not None:
                by = f"block {block_index(self.monitor.machine.launch.grid, block)}"
            else:
                assert column is not None
                by = f"thread {column % self.monitor.clocks.threads}"
            what += f": not ordered after {by}"
            starts = cells[which, 0] * self.monitor.granule
            self._report("global race", what, at, other, rows[which, 0], starts)

        owners = self.monitor.cluster_numbers(rows // self.monitor.clocks.threads)
        return Accesses(self.monitor.clocks, owners, rows, cells, site, strong, report)

    def _record(self, name: str, a: Accesses, changed: np.ndarray | None) -> None:
        assert self.blocks is not None
        if name in ("copy", "update"):
            self._uninitialized(a)
        if a.strength and name != "store":
            self.blocks.looked[a.cells] = True
        if name in ("copy", "load"):
            self.blocks.load(a)
        else:
            self.blocks.store(a, np.ones(a.cells.shape, bool) if changed is None else changed)

    def _uninitialized(self, a: Accesses) -> None:
        assert self.blocks is not None
        words = self.blocks.written.when.take(a.cells)
        if words.min(initial=0) != UNINITIALIZED:
            return
        bad = (words == UNINITIALIZED).any(axis=1)
        what, at = "memory that was never written is read", a.cells[bad, 0] * self.monitor.granule
        self._report("uninitialized read", what, a.site, None, a.rows[bad, 0], at)

    def _report(
        self,
        kind: str,
        what: str,
        site: int,
        other: int | None,
        rows: np.ndarray,
        starts: np.ndarray,
    ) -> None:
        self.monitor.findings.has_races |= other is not None
        if not self.monitor.findings.wants(kind, site, other):
            return
        memory, threads = self.monitor.machine.launch.memory, self.monitor.clocks.threads
        address = int(starts[0]) + GLOBAL_BASE
        message = f"{what}, in {memory.name_of(address)}"
        block = self.monitor.machine.block_index(int(rows[0]) // threads)
        here = dict.fromkeys((rows[rows // threads == rows[0] // threads] % threads).tolist())
        addresses = (starts[:SHOWN] + GLOBAL_BASE).tolist()
        self.monitor.findings.add(kind, message, site, other, block, here, addresses)

    def allocated(self, addresses: np.ndarray, sizes: Value) -> None:
        """Mark memory from malloc as uninitialized."""
        if self.blocks is not None:
            nbytes = self.monitor.machine.chunk.spread(three_axes(sizes))
            for at in map(tuple, np.argwhere(addresses > 0)):
                first = -(-(int(addresses[at]) - GLOBAL_BASE) // self.monitor.granule)
                end = (int(addresses[at]) - GLOBAL_BASE + int(nbytes[at])) // self.monitor.granule
                self.blocks.written.when[first:end] = UNINITIALIZED
