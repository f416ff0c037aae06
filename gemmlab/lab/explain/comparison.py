"""Compare a traffic model with the emulator's counts, and give reasons for differences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gemmlab.emulator.counters.rules import BANK_BYTES, BANKS, LANES, SECTOR_BYTES
from gemmlab.hardware.formula import Quantity
from gemmlab.hardware.traffic import Traffic
from gemmlab.lab.explain.counted import Counted, Totals

WAVE_BYTES = BANKS * BANK_BYTES
_NOTABLE = 0.0005  # a smaller difference is rounding


@dataclass(frozen=True)
class Row:
    """One number by the model and by the emulator; None if either is missing."""

    name: str
    formula: str  # with the numbers put in
    model: float | None
    counted: float | None
    reason: str = ""  # why they differ

    @property
    def difference(self) -> float | None:
        """counted / model - 1; None if one is missing or the model's value is 0."""
        if self.counted is None or not self.model:
            return None
        return self.counted / self.model - 1


def compare(traffic: Traffic, counted: Counted) -> tuple[Row, ...]:
    """Return a row for every number that is not zero on both sides, at the counted shape.

    The model's requests, sectors and wavefronts assume the best pattern of one-element accesses: 32
    adjacent lanes.
    """
    return tuple(row for row in _rows(traffic, counted) if row.model or row.counted)


def _rows(traffic: Traffic, counted: Counted) -> Iterator[Row]:
    more = traffic.more
    if traffic.flops.value:
        yield _row("FLOPs", traffic.flops, 1, counted.flops, more.get("flops", ""))
    for name, totals, size in _kinds(traffic, counted):
        space, operation = name.split()
        field = f"{space}_{operation}s"
        quantity, why = getattr(traffic, field), more.get(field, "")
        yield _row(f"{name}s, elements", quantity, 1, totals.bytes_asked / size, why)
        yield _row(f"{name} requests", quantity, LANES, totals.requests, _few(totals, size) or why)
        if space == "global":
            cost, unit, unit_bytes, reason = totals.sectors, "sectors", SECTOR_BYTES, _sectors
        else:
            cost, unit, unit_bytes, reason = totals.wavefronts, "wavefronts", WAVE_BYTES, _waves
        yield _row(f"{name} {unit}", quantity, unit_bytes // size, cost, reason(totals) or why)


def _kinds(traffic: Traffic, counted: Counted) -> Iterator[tuple[str, Totals, int]]:
    """Yield the name, the counts and the bytes per element of each kind of access."""
    for space in ("global", "shared"):
        for operation in ("load", "store", "atomic"):
            name = f"{space} {operation}"
            yield name, counted.of(name), traffic.load_bytes if name == "global load" else 4


def _row(
    name: str, quantity: Quantity | None, divisor: int, counted: float | None, reason: str
) -> Row:
    if quantity is None:
        return Row(name, "", None, counted)
    formula = quantity.numbers if divisor == 1 else quantity.numbers_over(divisor)
    row = Row(name, formula, quantity.value / divisor, counted, reason)
    notable = row.difference is not None and abs(row.difference) > _NOTABLE
    return row if notable else Row(name, formula, row.model, counted)


def _few(totals: Totals, size: int) -> str:
    """Explain why the number of requests is not elements / 32."""
    if not totals.requests:
        return ""
    reasons = []
    elements = totals.bytes_asked / totals.lanes / size
    if elements > 1:
        reasons.append(f"a lane accesses {elements:.3g} elements per request")
    if totals.lanes < LANES * totals.requests:
        reasons.append(f"{totals.lanes / totals.requests:.3g} of 32 lanes are active on average")
    return "; ".join(reasons)


def _sectors(totals: Totals) -> str:
    reasons = []
    if totals.shares_sectors:
        reasons.append("lanes that access the same bytes share a sector")
    if totals.wastes_sectors:
        share = totals.bytes_asked / (SECTOR_BYTES * totals.sectors)
        reasons.append(f"sectors are partly used, {share:.3g} bytes requested per byte moved")
    return "; ".join(reasons)


def _waves(totals: Totals) -> str:
    reasons = []
    if totals.bytes_asked > WAVE_BYTES * totals.ideal_wavefronts:
        reasons.append("a word that several lanes access is served once")
    elif totals.bytes_asked < WAVE_BYTES * totals.ideal_wavefronts:
        reasons.append("wavefronts have fewer than 32 words")
    if totals.wavefronts > totals.ideal_wavefronts:
        excess = totals.wavefronts - totals.ideal_wavefronts
        reasons.append(f"bank conflicts cost {excess:,} wavefronts")
    return "; ".join(reasons)
