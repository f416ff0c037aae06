"""The counting rules: what one warp's memory instruction costs in L1, from its addresses alone.

A *request* is one memory instruction of one warp with at least one enabled lane. Global requests
are served in 32-byte *sectors*; shared requests in *wavefronts*, each of which reads every one of
the 32 four-byte banks at most once. The terms are Nsight Compute's (Kernel Profiling Guide, "Memory
Tables").

Arrays of addresses have one row per warp and one column per lane; `enabled` is None for all lanes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LANES = 32
SECTOR_BYTES = 32
LINE_BYTES = 128
TAG_BANKS = 4
BANKS = 32
BANK_BYTES = 4


@dataclass
class SiteCounts:
    """What one memory instruction has cost so far."""

    requests: int = 0  # warps that executed it with a lane enabled
    threads: int = 0  # lanes enabled
    sectors: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0

    def add(self, other: SiteCounts) -> None:
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)


def distinct_per_row(rows: np.ndarray, enabled: np.ndarray | None) -> np.ndarray:
    """How many different values each row has in its enabled columns. rows: (n, lanes) int64 ≥ 0."""
    if rows.shape[1] == 1:
        count: np.ndarray = np.ones(len(rows), np.int64)
        return count if enabled is None else count * enabled.any(axis=1)
    if enabled is not None:
        rows = np.where(enabled, rows, -1)
    before, after = rows[:, :-1], rows[:, 1:]
    if (after < before).any():
        rows = np.sort(rows, axis=1)
        before, after = rows[:, :-1], rows[:, 1:]
    count = 1 + np.count_nonzero(after != before, axis=1)
    # Disabled lanes sort to the front as one value of their own.
    return count if enabled is None else count - (rows[:, 0] < 0)


def sectors(addresses: np.ndarray, enabled: np.ndarray | None = None) -> int:
    """Sectors that the warps of `addresses` (n, 32) touch; no access straddles a sector."""
    if enabled is not None:
        some = enabled.any(axis=1)
        addresses, enabled = addresses[some], enabled[some]
        enabled = None if enabled.all() else enabled
    rows = addresses >> 5
    if enabled is None and rows.shape[1] > 1:
        before, after = rows[:, :-1], rows[:, 1:]
        if not (after < before).any():
            return len(rows) + int(np.count_nonzero(after != before))
    return int(distinct_per_row(rows, enabled).sum())


def atomic_sectors(addresses: np.ndarray, enabled: np.ndarray | None = None) -> int:
    """Sectors of atomic operations: lanes that meet at one address go one after another, so each
    sector is served as often as the most wanted of its addresses has lanes."""
    rows = addresses if enabled is None else np.where(enabled, addresses, -1)
    rows = np.sort(np.broadcast_to(rows, (len(rows), LANES)), axis=1)
    lane = np.arange(LANES)
    first = np.full(rows.shape, True)
    first[:, 1:] = rows[:, 1:] != rows[:, :-1]
    turn = lane - np.maximum.accumulate(np.where(first, lane, 0), axis=1) + 1
    first[:, 1:] = rows[:, 1:] // SECTOR_BYTES != rows[:, :-1] // SECTOR_BYTES
    turns = np.maximum.reduceat(turn.reshape(-1), np.flatnonzero(first))
    return int(turns[rows[first] >= 0].sum())


def wavefronts(
    addresses: np.ndarray, enabled: np.ndarray | None, width: int, is_load: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Wavefronts of each warp's shared-memory access, and what they would be without conflicts.

    addresses: (n, 32) byte offsets, multiples of `width` (1 to 16 bytes per lane). A phase costs
    the largest number of different words that fall into one bank.
    """
    cost = _largest_bank(phases(addresses, enabled, width, is_load))  # (warp, phase)
    return cost.sum(axis=1), (cost > 0).sum(axis=1)


def phases(
    addresses: np.ndarray, enabled: np.ndarray | None, width: int, is_load: bool
) -> np.ndarray:
    """The words that each phase of a shared-memory access touches, (n, phases, slots); -1 for none.

    A warp is served in phases of 32, 16 or 8 lanes (4, 8 or 16 bytes per lane). For loads two
    neighbouring phases merge into one where in both each lane reads what lane l^1 reads, or each
    what lane l^2 reads: 64-bit accesses over the whole warp, 128-bit accesses inside each
    half-warp. With w words per lane, slot s of phase p is lane p·32/w + s/w.
    """
    on = np.ones(addresses.shape, bool) if enabled is None else enabled
    words = max(width // BANK_BYTES, 1)
    num_phases = words
    lanes = LANES // num_phases
    first = (addresses >> 2).reshape(-1, num_phases, lanes)  # (warp, phase, lane)
    on = on.reshape(-1, num_phases, lanes)
    # (warp, phase, lane * word): every word that the phase touches, -1 where the lane is off
    touched = first[..., None] + np.arange(words)
    touched = np.where(on[..., None], touched, -1).reshape(*first.shape[:2], lanes * words)
    if num_phases > 1 and is_load:
        touched = _merge(touched, first, on)
    return touched


def _merge(touched: np.ndarray, first: np.ndarray, on: np.ndarray) -> np.ndarray:
    """Join phases 2i and 2i+1 of the warps where the pair rule holds for both."""
    lanes = np.arange(first.shape[2])
    pairs = touched.reshape(len(touched), -1, 2, touched.shape[2])
    mergeable = np.zeros(pairs.shape[:2], bool)
    for step in (1, 2):
        partner = first[:, :, lanes ^ step]
        same = (first == partner) | ~on | ~on[:, :, lanes ^ step]
        mergeable |= same.all(axis=2).reshape(pairs.shape[:3]).all(axis=2)
    joined = np.full((*pairs.shape[:2], 2, 2 * touched.shape[2]), -1, touched.dtype)
    flat = pairs.reshape(*pairs.shape[:2], -1)
    joined[:, :, 0] = np.where(mergeable[..., None], flat, -1)
    joined[:, :, :, : touched.shape[2]] = np.where(
        mergeable[..., None, None], joined[:, :, :, : touched.shape[2]], pairs
    )
    return joined.reshape(len(touched), -1, 2 * touched.shape[2])


def _largest_bank(touched: np.ndarray) -> np.ndarray:
    """Most different words in one bank, per (warp, phase); -1 marks no word."""
    words = np.sort(touched.reshape(-1, touched.shape[-1]), axis=1)
    new = words >= 0
    new[:, 1:] &= words[:, 1:] != words[:, :-1]
    row, _ = np.nonzero(new)
    bank = words[new] % BANKS
    load = np.bincount(row * BANKS + bank, minlength=len(words) * BANKS)
    largest: np.ndarray = load.reshape(len(words), BANKS).max(axis=1)
    return largest.reshape(touched.shape[:2])


def bypass_sectors(sources: np.ndarray, targets: np.ndarray, reading: np.ndarray) -> int:
    """Sectors of copies that go past L1: one per line of the source and sector of the target.

    Of lanes that write to the same place the last one counts. Shapes as in `copy_wavefronts`.
    """
    same = (targets[:, :, None] == targets[:, None, :]) & reading[:, None, :]
    last = reading & ~np.triu(same, 1).any(axis=2)
    pairs = (sources // LINE_BYTES << 32) | targets // SECTOR_BYTES
    return int(distinct_per_row(pairs, last).sum())


def copy_wavefronts(
    sources: np.ndarray, targets: np.ndarray, reading: np.ndarray, zeroed: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Wavefronts of each warp's cp.async, and how many of them no conflict causes.

    sources, targets: (n, 32) byte addresses of copies of `width` (4, 8 or 16) bytes. Lanes whose
    lines L1 looks up at a time go on together. In each of their phases each word of the source
    goes its own way to the target, so a phase costs the largest number of words that one bank reads
    or writes, with no word shared. Lanes that write zeros store them like any other.
    """
    words = width // BANK_BYTES
    turn = _turns(sources // LINE_BYTES, reading)
    row, lane = np.nonzero(reading)
    group = ((row * LANES + turn[reading]) * words + lane // (LANES // words)) * BANKS
    which, group = np.unique(group, return_inverse=True)
    load = np.zeros((2, len(which) * BANKS), np.int64)
    for side, addresses in enumerate((sources[reading], targets[reading])):
        for word in range(words):
            bank = (addresses // BANK_BYTES + word) % BANKS
            load[side] += np.bincount(group * BANKS + bank, minlength=load.shape[1])
    cost = load.reshape(2, -1, BANKS).max(axis=(0, 2))
    row = which // (BANKS * words * LANES)
    waves = np.bincount(row, weights=cost, minlength=len(sources)).astype(np.int64)
    ideal = np.bincount(row, minlength=len(sources))
    zeros, zeros_ideal = wavefronts(targets, zeroed, width, is_load=False)
    return waves + zeros, ideal + zeros_ideal


def _turns(lines: np.ndarray, on: np.ndarray) -> np.ndarray:
    """When L1 looks up each lane's line, (n, 32), counted from 0 in each warp.

    The tags are in four banks; each looks up one line at a time, in the order of lanes. A line's
    bank is the exclusive or of its number's pairs of bits.
    """
    lines = np.where(on, lines, -1)
    order = np.argsort(lines, axis=1, kind="stable")
    ordered = np.take_along_axis(lines, order, axis=1)
    starts = np.zeros(lines.shape, np.int64)
    starts[:, 1:] = np.where(ordered[:, 1:] != ordered[:, :-1], np.arange(1, LANES), 0)
    starts = np.maximum.accumulate(starts, axis=1)
    leader = np.empty_like(order)  # of each lane: the first lane that wants the same line
    np.put_along_axis(leader, order, np.take_along_axis(order, starts, axis=1), axis=1)
    leads = on & (leader == np.arange(LANES))
    bank = np.zeros(lines.shape, np.int64)
    for shift in range(0, 64 - LINE_BYTES.bit_length(), 2):
        bank ^= lines >> shift & TAG_BANKS - 1
    turn = np.zeros(lines.shape, np.int64)
    for number in range(TAG_BANKS):
        here = bank == number
        turn = np.where(here, np.cumsum(leads & here, axis=1) - 1, turn)
    return np.take_along_axis(turn, leader, axis=1)
