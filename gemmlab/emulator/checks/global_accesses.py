"""Passes the global memory accesses of a chunk of blocks to the records of the launch."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP, Mask, Value, three_axes
from gemmlab.emulator.checks import advice
from gemmlab.emulator.checks.blocks import UNINITIALIZED, Accesses, GlobalShadow
from gemmlab.emulator.checks.findings import SHOWN
from gemmlab.emulator.checks.shadow import ATOMIC, PLAIN, strength
from gemmlab.emulator.checks.state import State
from gemmlab.emulator.checks.stores import overwritten
from gemmlab.emulator.checks.undefined import Undefined
from gemmlab.emulator.launch.coordinates import block_index
from gemmlab.emulator.memory.arena import GLOBAL_BASE
from gemmlab.emulator.memory.chunk import offsets_of
from gemmlab.emulator.observer import Observer, Request


class GlobalAccesses(Observer):
    """The global memory accesses of one chunk. blocks: the records of the launch, if needed."""

    def __init__(self, state: State, undefined: Undefined, blocks: GlobalShadow | None) -> None:
        self.state, self.undefined, self.blocks = state, undefined, blocks
        self.memory = state.machine.launch.memory.data
        self.starts: np.ndarray  # per active lane, offset in the arena of the current access
        self.changed: np.ndarray | None  # per granule, whether the current store changes it

    def accessing(self, request: Request) -> None:
        access, mask = request.access, request.mask
        offsets = offsets_of(access, request.address) - GLOBAL_BASE
        offsets = self.state.machine.chunk.spread(offsets)
        self.starts = offsets.reshape(-1) if mask is None else offsets[mask.array]
        self.changed = None
        if request.kind == "store" and self.blocks is not None:
            cells = self.state.pieces(self.starts, access.width)
            old = self.state.values(self.memory, cells)
            self.changed = (old != self.state.written(request)).any(axis=2)

    def accessed(self, request: Request, result: Any) -> None:
        name, access, mask = request.kind, request.access, request.mask
        starts, site = self.starts, access.instruction
        cells = self.state.pieces(starts, access.width)
        if name == "load" and self.blocks is not None:
            words = self.blocks.written.when.take(cells)
            is_bad = words.min(initial=0) == UNINITIALIZED
            unwritten = words == UNINITIALIZED if is_bad else None
            self.undefined.load(site, "global", mask, cells, unwritten)
        elif name == "store":
            self.undefined.store(site, "global", mask, cells)
        self.touch(name, site, starts, access.width, mask, self.changed)
        if self.changed is not None and strength(self.state.code[site]) == PLAIN:
            written = self.state.written(request)
            self._check_conflicts(site, self.state.rows(mask), cells, written)

    def _check_conflicts(
        self, site: int, rows: np.ndarray, cells: np.ndarray, written: np.ndarray
    ) -> None:
        """Check for threads that write to one location with the same instruction, in one warp or in
        several."""
        left = self.state.values(self.memory, cells)
        starts = cells[:, 0] * self.state.granule
        within = overwritten(rows // WARP, cells, written, left).any(axis=1)
        if within.any():
            self._report(
                "order dependent", advice.LANES_DIFFER, site, None, rows[within], starts[within]
            )
        at_all = overwritten(np.zeros_like(rows), cells, written, left).any(axis=1)
        between = at_all & ~within
        if between.any():
            some, at, threads = rows[between], starts[between], self.state.clocks.threads
            overlaps = np.isin(cells, cells[between][0]).any(axis=1)
            other = int(rows[overlaps & (rows != some[0])][0])
            by, scope = f"thread {other % threads}", "block"
            if other // threads != some[0] // threads:
                by = f"block {self.state.machine.block_index(other // threads)}"
                scope = "grid"
            what = "write after write"
            self._report("global race", what, site, site, some, at, by, scope)

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
        rows, strong = self.state.rows(mask), strength(self.state.code[site])
        cells = self.state.pieces(starts, nbytes)
        if strong and self.state.has_flags:
            self.state.flags("global", rows, cells[:, 0], site)
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
            threads, scope = self.state.clocks.threads, "grid"
            if block is not None:
                by = f"block {block_index(self.state.machine.launch.grid, block)}"
            else:
                assert column is not None
                by, now = f"thread {column % threads}", rows[which, 0] % self.state.clocks.members
                scope = "warp" if (now // WARP == column // WARP).all() else "block"
                scope = scope if (now // threads == column // threads).all() else "cluster"
            starts = cells[which, 0] * self.state.granule
            self._report("global race", what, at, other, rows[which, 0], starts, by, scope)

        owners = self.state.cluster_numbers(rows // self.state.clocks.threads)
        return Accesses(self.state.clocks, owners, rows, cells, site, strong, report)

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
        at = a.cells[bad, 0] * self.state.granule
        what = advice.UNWRITTEN_READ
        self._report("uninitialized read", what, a.site, None, a.rows[bad, 0], at)

    def _report(
        self,
        kind: str,
        what: str,
        site: int,
        other: int | None,
        rows: np.ndarray,
        starts: np.ndarray,
        by: str = "",
        scope: str = "block",
    ) -> None:
        """by: who made the other access. scope: the threads that must be ordered."""
        self.state.findings.has_races |= other is not None
        if not self.state.findings.wants(kind, site, other):
            return
        memory, threads = self.state.machine.launch.memory, self.state.clocks.threads
        address = int(starts[0]) + GLOBAL_BASE
        place = memory.name_of(address, self.state.itemsize(site, other))
        block = self.state.machine.block_index(int(rows[0]) // threads)
        of, code = f" of block {block}" if scope == "grid" else "", self.state.code
        later = advice.Access(f"thread {int(rows[0]) % threads}{of}", code[site].site)
        earlier = None if other is None else advice.Access(by, code[other].site)
        if earlier is not None and what in advice.VERBS:
            message = advice.race(what, place, later, earlier, scope)
        else:
            message = advice.fill(what, place, later, earlier)
        here = dict.fromkeys((rows[rows // threads == rows[0] // threads] % threads).tolist())
        addresses = (starts[:SHOWN] + GLOBAL_BASE).tolist()
        self.state.findings.add(kind, message, site, other, block, here, addresses)

    def allocated(self, addresses: np.ndarray, sizes: Value) -> None:
        """Mark memory from malloc as uninitialized."""
        if self.blocks is not None:
            nbytes = self.state.machine.chunk.spread(three_axes(sizes))
            for at in map(tuple, np.argwhere(addresses > 0)):
                first = -(-(int(addresses[at]) - GLOBAL_BASE) // self.state.granule)
                end = (int(addresses[at]) - GLOBAL_BASE + int(nbytes[at])) // self.state.granule
                self.blocks.written.when[first:end] = UNINITIALIZED
