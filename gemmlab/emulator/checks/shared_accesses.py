"""Checks the loads, stores and atomic operations on shared memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Mask, Value
from gemmlab.emulator.checks import advice
from gemmlab.emulator.checks.exits import Exits
from gemmlab.emulator.checks.shadow import column_of, strength
from gemmlab.emulator.checks.state import State
from gemmlab.emulator.checks.undefined import Undefined
from gemmlab.emulator.memory.chunk import offsets_of
from gemmlab.emulator.memory.names import plain_name
from gemmlab.emulator.memory.spaces import SharedSpace
from gemmlab.emulator.observer import Observer, Request
from gemmlab.emulator.program import Access

MAX_PLACES = 256  # cached patterns of accesses


class Place(NamedTuple):
    """The granules of an access."""

    cells: np.ndarray  # (n, granules per access)
    beyond: np.ndarray | None  # which are outside the intended variable; None if none are


class SharedAccesses(Observer):
    """Observes .shared::cta or .shared::cluster."""

    def __init__(
        self, state: State, undefined: Undefined, exits: Exits, space: SharedSpace
    ) -> None:
        self.state, self.undefined, self.exits, self.space = state, undefined, exits, space
        self.places: dict[tuple[Access, tuple[int, ...], bytes], Place] = {}
        self.place: Place  # of the current access
        self.changed: np.ndarray | None  # per granule, whether the current store changes it

    def accessing(self, request: Request) -> None:
        state = self.state
        self.place = self._place(request.access, request.address, request.mask)
        self.changed = None
        if request.kind == "store":
            old = state.values(state.shared, self.place.cells)
            self.changed = (old != state.written(request)).any(axis=2)

    def accessed(self, request: Request, result: Any) -> None:
        state, (cells, beyond) = self.state, self.place
        kind, site, mask = request.kind, request.access.instruction, request.mask
        rows = state.rows(mask)[:, None]
        if beyond is not None and kind != "load":
            self._report_beyond(site, rows, cells, beyond)
        self.exits.reach(rows[:, 0], cells[:, 0], site)
        strong = strength(state.code[site])
        if strong and state.has_flags:
            state.flags("shared", rows[:, 0], cells[:, 0], site)
        if kind == "load":
            unwritten = state.shadow.load(rows, cells, site, strong)
            if beyond is not None:
                unwritten = beyond if unwritten is None else unwritten | beyond
            self.undefined.load(site, "shared", mask, cells, unwritten)
            return
        self.undefined.store(site, "shared", mask, cells)
        if kind == "update":
            self._unwritten(rows, cells, site)
        state.shadow.store(rows, cells, site, strong, self.changed)
        if kind == "store" and not strong:
            left = state.values(state.shared, cells)
            lost = (left != state.written(request)).any(axis=2)
            if lost.any():
                winners = state.shadow.written[cells[lost]]
                rows = np.broadcast_to(rows, cells.shape)[lost]
                columns = column_of(winners)
                what = "write after write"
                state.report_shared("shared race", what, site, site, rows, columns, cells[lost])

    def _place(self, access: Access, address: Value, mask: Mask | None) -> Place:
        """The granules that the active threads access."""
        offsets, nbytes = offsets_of(access, address), self.state.shared.shape[1]
        key = access, offsets.shape, offsets.tobytes()
        is_pattern = self.space.has_one_pattern(offsets, mask)
        if is_pattern and key in self.places:
            return self.places[key]
        block, index = self.space.locate(access, address, mask)
        starts = block * nbytes + index * access.dtype.itemsize
        cells = self.state.pieces(starts, access.width)
        place = Place(cells, self._beyond(access.instruction, starts % nbytes, cells))
        if is_pattern:
            if len(self.places) == MAX_PLACES:
                self.places.clear()
            self.places[key] = place
        return place

    def _beyond(self, site: int, starts: np.ndarray, cells: np.ndarray) -> np.ndarray | None:
        """Which granules are outside the intended variable; None if none are."""
        if site not in self.state.variables:
            return None
        _, inside = self.state.variables[site]
        granule = self.state.granule
        last = cells.shape[1] * granule
        if not starts.size or (inside.start <= starts.min() and starts.max() + last <= inside.stop):
            return None
        at = cells * granule % self.state.shared.shape[1]
        beyond: np.ndarray = (at < inside.start) | (at + granule > inside.stop)
        return beyond

    def _report_beyond(
        self, site: int, rows: np.ndarray, cells: np.ndarray, beyond: np.ndarray
    ) -> None:
        name, inside = self.state.variables[site]
        what = (
            f"{{by}} writes {{place}} at {{here}}, beyond {plain_name(name)}, which has "
            f"{len(inside)} bytes: check the index"
        )
        rows = np.broadcast_to(rows, cells.shape)[beyond]
        none = np.zeros(len(rows), np.int64)
        self.state.report_shared("beyond variable", what, site, None, rows, none, cells[beyond])

    def _unwritten(self, rows: np.ndarray, cells: np.ndarray, site: int) -> None:
        bad = self.state.shadow.written[cells] == 0
        if bad.any():
            what = advice.UNWRITTEN_UPDATE
            rows = np.broadcast_to(rows, cells.shape)[bad]
            none = np.zeros(len(rows), np.int64)
            self.state.report_shared("uninitialized read", what, site, None, rows, none, cells[bad])
