"""Checks the loads, stores and atomic operations on shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Mask, Value
from gemmlab.emulator.checks.places import plain_name
from gemmlab.emulator.checks.shadow import column_of, strength
from gemmlab.emulator.memory.spaces import Access, SharedSpace, offsets_of
from gemmlab.emulator.observer import Observer, Request

if TYPE_CHECKING:
    from gemmlab.emulator.checks.monitor import Monitor

MAX_PLACES = 256  # cached patterns of accesses


class Place(NamedTuple):
    """The granules of an access."""

    cells: np.ndarray  # (n, granules per access)
    beyond: np.ndarray | None  # which are outside the intended variable; None if none are


class SharedAccesses(Observer):
    """Observes .shared::cta or .shared::cluster."""

    def __init__(self, monitor: Monitor, space: SharedSpace) -> None:
        self.monitor, self.space = monitor, space
        self.places: dict[tuple[Access, tuple[int, ...], bytes], Place] = {}
        self.place: Place  # of the current access
        self.changed: np.ndarray | None  # per granule, whether the current store changes it

    def accessing(self, request: Request) -> None:
        monitor = self.monitor
        self.place = self._place(request.access, request.address, request.mask)
        self.changed = None
        if request.kind == "store":
            old = monitor.values(monitor.shared, self.place.cells)
            self.changed = (old != monitor.written(request)).any(axis=2)

    def accessed(self, request: Request, result: Any) -> None:
        monitor, (cells, beyond) = self.monitor, self.place
        kind, site, mask = request.kind, request.access.instruction, request.mask
        rows = monitor.rows(mask)[:, None]
        if beyond is not None and kind != "load":
            self._report_beyond(site, rows, cells, beyond)
        monitor.exits.reach(rows[:, 0], cells[:, 0], site)
        strong = strength(monitor.code[site])
        if strong and monitor.has_flags:
            monitor.flags("shared", rows[:, 0], cells[:, 0], site)
        if kind == "load":
            unwritten = monitor.shadow.load(rows, cells, site, strong)
            if beyond is not None:
                unwritten = beyond if unwritten is None else unwritten | beyond
            monitor.undefined.load(site, "shared", mask, cells, unwritten)
            return
        monitor.undefined.store(site, "shared", mask, cells)
        if kind == "update":
            self._unwritten(rows, cells, site)
        monitor.shadow.store(rows, cells, site, strong, self.changed)
        if kind == "store" and not strong:
            left = monitor.values(monitor.shared, cells)
            lost = (left != monitor.written(request)).any(axis=2)
            if lost.any():
                winners = monitor.shadow.written[cells[lost]]
                rows = np.broadcast_to(rows, cells.shape)[lost]
                columns = column_of(winners)
                what = "write after write, by one instruction"
                monitor.report_shared("shared race", what, site, site, rows, columns, cells[lost])

    def _place(self, access: Access, address: Value, mask: Mask | None) -> Place:
        """The granules that the active threads access."""
        offsets, nbytes = offsets_of(access, address), self.monitor.shared.shape[1]
        key = access, offsets.shape, offsets.tobytes()
        is_pattern = self.space.has_one_pattern(offsets, mask)
        if is_pattern and key in self.places:
            return self.places[key]
        block, index = self.space.locate(access, address, mask)
        starts = block * nbytes + index * access.dtype.itemsize
        cells = self.monitor.pieces(starts, access.width)
        place = Place(cells, self._beyond(access.instruction, starts % nbytes, cells))
        if is_pattern:
            if len(self.places) == MAX_PLACES:
                self.places.clear()
            self.places[key] = place
        return place

    def _beyond(self, site: int, starts: np.ndarray, cells: np.ndarray) -> np.ndarray | None:
        """Which granules are outside the intended variable; None if none are."""
        if site not in self.monitor.variables:
            return None
        _, inside = self.monitor.variables[site]
        granule = self.monitor.granule
        last = cells.shape[1] * granule
        if not starts.size or (inside.start <= starts.min() and starts.max() + last <= inside.stop):
            return None
        at = cells * granule % self.monitor.shared.shape[1]
        beyond: np.ndarray = (at < inside.start) | (at + granule > inside.stop)
        return beyond

    def _report_beyond(
        self, site: int, rows: np.ndarray, cells: np.ndarray, beyond: np.ndarray
    ) -> None:
        name, inside = self.monitor.variables[site]
        what = f"a store past the bounds of {plain_name(name)}, which has {len(inside)} bytes"
        rows = np.broadcast_to(rows, cells.shape)[beyond]
        none = np.zeros(len(rows), np.int64)
        self.monitor.report_shared("beyond variable", what, site, None, rows, none, cells[beyond])

    def _unwritten(self, rows: np.ndarray, cells: np.ndarray, site: int) -> None:
        bad = self.monitor.shadow.written[cells] == 0
        if bad.any():
            what = "an atomic operation updates memory that was never written"
            rows = np.broadcast_to(rows, cells.shape)[bad]
            none = np.zeros(len(rows), np.int64)
            self.monitor.report_shared(
                "uninitialized read", what, site, None, rows, none, cells[bad]
            )
