"""Counting rules: the L1 cost of a warp's memory instruction, computed from its addresses.

A *request* is one memory instruction of one warp with at least one enabled lane. Global requests
are served in 32-byte *sectors*, shared requests in *wavefronts*, each of which accesses each of the
32 four-byte banks at most once. The terms are those of Nsight Compute (Kernel Profiling Guide,
"Memory Tables").

Address arrays have one row per warp and one column per lane. `enabled` is None if all lanes are
enabled.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Value

LANES = 32
SECTOR_BYTES = 32
LINE_BYTES = 128
TAG_BANKS = 4
BANKS = 32
BANK_BYTES = 4
# Two phases of a load merge if all lanes read the same address as lane ^ 1, or all as lane ^ 2.
PAIRS = (1, 2)
MOST_KNOWN = 2048  # most addresses of an access whose wavefronts are remembered


@dataclass
class SiteCounts:
    """The accumulated cost of one memory instruction."""

    requests: int = 0  # executions by a warp with at least one enabled lane
    threads: int = 0  # enabled lanes
    sectors: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0  # without bank conflicts

    def add(self, other: SiteCounts) -> None:
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)


# Rules of both tiers, on integers. The native tier calls them with values of its IR.


def sector(address: Value) -> Value:
    """The number of the sector that contains an address."""
    return address >> SECTOR_BYTES.bit_length() - 1


def line(address: Value) -> Value:
    """The number of the cache line that contains an address."""
    return address >> LINE_BYTES.bit_length() - 1


def word(address: Value) -> Value:
    """The number of the bank word that contains an address."""
    return address >> BANK_BYTES.bit_length() - 1


def words_per_lane(width: Value) -> Value:
    """The words that an access of `width` bytes takes per lane, which is also its number of
    phases."""
    return np.maximum(word(width), 1)


def reads_alike(address: Value, on: Value, partner: Value, partner_on: Value) -> Value:
    """Whether a lane lets its phase merge: it reads the same address as its partner lane, or one of
    the two is disabled."""
    return (address == partner) | ~on | ~partner_on


def local_address(word: Value, lane: Value) -> Value:
    """Where hardware keeps a word of a lane's local memory: it interleaves the words of a warp."""
    return (word * LANES + lane) * BANK_BYTES


def bypass_key(source: Value, target: Value) -> Value:
    """Copies that bypass L1 read one sector per distinct key: per source line and target sector."""
    return line(source) << 32 | sector(target)


def tag_bank(line: Value) -> Value:
    """The tag bank that looks up a line: the exclusive or of all 2-bit groups of its number."""
    for shift in (32, 16, 8, 4, 2):
        line = line ^ line >> shift
    return line & TAG_BANKS - 1


# The NumPy tier


def distinct_per_row(rows: np.ndarray, enabled: np.ndarray | None) -> np.ndarray:
    """Number of distinct values in the enabled columns of each row. rows: (n, lanes) int64 ≥ 0."""
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
    # Disabled lanes sort to the front and add one distinct value, -1.
    return count if enabled is None else count - (rows[:, 0] < 0)


def sectors(addresses: np.ndarray, enabled: np.ndarray | None = None) -> int:
    """Total sectors that the warps touch. addresses: (n, 32); no access straddles a sector."""
    if enabled is not None:
        some = enabled.any(axis=1)
        addresses, enabled = addresses[some], enabled[some]
        enabled = None if enabled.all() else enabled
    rows = sector(addresses)
    if enabled is None and rows.shape[1] > 1:
        before, after = rows[:, :-1], rows[:, 1:]
        if not (after < before).any():
            return len(rows) + int(np.count_nonzero(after != before))
    return int(distinct_per_row(rows, enabled).sum())


def atomic_sectors(addresses: np.ndarray, enabled: np.ndarray | None = None) -> int:
    """Total sectors of atomic operations. Lanes with equal addresses are serialized, so each sector
    is served once per lane of its most contended address."""
    rows = addresses if enabled is None else np.where(enabled, addresses, -1)
    rows = np.sort(np.broadcast_to(rows, (len(rows), LANES)), axis=1)
    lane = np.arange(LANES)
    first = np.full(rows.shape, True)
    first[:, 1:] = rows[:, 1:] != rows[:, :-1]
    turn = lane - np.maximum.accumulate(np.where(first, lane, 0), axis=1) + 1
    first[:, 1:] = sector(rows[:, 1:]) != sector(rows[:, :-1])
    turns = np.maximum.reduceat(turn.reshape(-1), np.flatnonzero(first))
    return int(turns[rows[first] >= 0].sum())


def wavefronts(
    addresses: np.ndarray, enabled: np.ndarray | None, width: int, is_load: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Wavefronts of each warp's shared memory access, and their number without bank conflicts.

    addresses: (n, 32) byte offsets, multiples of `width` (1 to 16 bytes per lane). A phase takes as
    many wavefronts as the largest number of distinct words in one bank.
    """
    if addresses.size > MOST_KNOWN:
        return _wavefronts(addresses, enabled, width, is_load)
    rows = addresses.astype(np.int64, copy=False).tobytes()
    on = None if enabled is None else enabled.tobytes()
    return known_wavefronts(rows, on, width, is_load)


@lru_cache(maxsize=1024)  # loops access the same addresses over and over
def known_wavefronts(
    addresses: bytes, enabled: bytes | None, width: int, is_load: bool
) -> tuple[np.ndarray, np.ndarray]:
    rows = np.frombuffer(addresses, np.int64).reshape(-1, LANES)
    on = None if enabled is None else np.frombuffer(enabled, bool).reshape(rows.shape)
    return _wavefronts(rows, on, width, is_load)


def _wavefronts(
    addresses: np.ndarray, enabled: np.ndarray | None, width: int, is_load: bool
) -> tuple[np.ndarray, np.ndarray]:
    cost = _largest_bank(phases(addresses, enabled, width, is_load))  # (warp, phase)
    return cost.sum(axis=1), (cost > 0).sum(axis=1)


def phases(
    addresses: np.ndarray, enabled: np.ndarray | None, width: int, is_load: bool
) -> np.ndarray:
    """The words that each phase of a shared memory access touches, (n, phases, slots); -1 is none.

    A warp is served in phases of 32, 16 or 8 lanes, for 4, 8 or 16 bytes per lane. Two adjacent
    phases of a load merge if, in both, every lane l reads the same address as lane l^1, or every
    lane l the same as lane l^2: phases of the whole warp for 64-bit accesses, of one half-warp for
    128-bit accesses. With w words per lane, slot s of phase p belongs to lane p·32/w + s/w.
    """
    on = np.ones(addresses.shape, bool) if enabled is None else enabled
    words = num_phases = int(words_per_lane(width))
    lanes = LANES // num_phases
    first = word(addresses).reshape(-1, num_phases, lanes)  # (warp, phase, lane)
    on = on.reshape(-1, num_phases, lanes)
    # (warp, phase, lane * word): the words that the phase touches, -1 for disabled lanes
    touched = first[..., None] + np.arange(words)
    touched = np.where(on[..., None], touched, -1).reshape(*first.shape[:2], lanes * words)
    if num_phases > 1 and is_load:
        touched = _merge(touched, first, on)
    return touched


def _merge(touched: np.ndarray, first: np.ndarray, on: np.ndarray) -> np.ndarray:
    """Merge phases 2i and 2i+1 where the merge rule of `phases` holds for both."""
    lanes = np.arange(first.shape[2])
    pairs = touched.reshape(len(touched), -1, 2, touched.shape[2])
    mergeable = np.zeros(pairs.shape[:2], bool)
    for step in PAIRS:
        same = reads_alike(first, on, first[:, :, lanes ^ step], on[:, :, lanes ^ step])
        mergeable |= same.all(axis=2).reshape(pairs.shape[:3]).all(axis=2)
    joined = np.full((*pairs.shape[:2], 2, 2 * touched.shape[2]), -1, touched.dtype)
    flat = pairs.reshape(*pairs.shape[:2], -1)
    joined[:, :, 0] = np.where(mergeable[..., None], flat, -1)
    joined[:, :, :, : touched.shape[2]] = np.where(
        mergeable[..., None, None], joined[:, :, :, : touched.shape[2]], pairs
    )
    return joined.reshape(len(touched), -1, 2 * touched.shape[2])


def _largest_bank(touched: np.ndarray) -> np.ndarray:
    """Largest number of distinct words in one bank, per (warp, phase); -1 marks no word."""
    words = np.sort(touched.reshape(-1, touched.shape[-1]), axis=1)
    new = words >= 0
    new[:, 1:] &= words[:, 1:] != words[:, :-1]
    row, _ = np.nonzero(new)
    bank = words[new] % BANKS
    load = np.bincount(row * BANKS + bank, minlength=len(words) * BANKS)
    largest: np.ndarray = load.reshape(len(words), BANKS).max(axis=1)
    return largest.reshape(touched.shape[:2])


def bypass_sectors(sources: np.ndarray, targets: np.ndarray, reading: np.ndarray) -> int:
    """Total sectors of copies that bypass L1: one per pair of source line and target sector.

    If several lanes write the same target, only the last counts. Shapes as in `copy_wavefronts`.
    """
    same = (targets[:, :, None] == targets[:, None, :]) & reading[:, None, :]
    last = reading & ~np.triu(same, 1).any(axis=2)
    return int(distinct_per_row(bypass_key(sources, targets), last).sum())


def copy_wavefronts(
    sources: np.ndarray, targets: np.ndarray, reading: np.ndarray, zeroed: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Wavefronts of each warp's cp.async, and their number without bank conflicts.

    sources, targets: (n, 32) byte addresses of copies of `width` (4, 8 or 16) bytes. reading,
    zeroed: lanes that read the source, and lanes that write any zeros. Lanes whose lines L1 looks
    up at the same time are processed together, in phases. Each source word moves to its target
    separately, so a phase takes as many wavefronts as the largest number of words that one bank
    reads or writes; equal words are not shared. Zeros are stored like ordinary data.
    """
    words = int(words_per_lane(width))
    turn = _turns(line(sources), reading)
    row, lane = np.nonzero(reading)
    group = ((row * LANES + turn[reading]) * words + lane // (LANES // words)) * BANKS
    which, group = np.unique(group, return_inverse=True)
    load = np.zeros((2, len(which) * BANKS), np.int64)
    for side, addresses in enumerate((sources[reading], targets[reading])):
        for k in range(words):
            bank = (word(addresses) + k) % BANKS
            load[side] += np.bincount(group * BANKS + bank, minlength=load.shape[1])
    cost = load.reshape(2, -1, BANKS).max(axis=(0, 2))
    row = which // (BANKS * words * LANES)
    waves = np.bincount(row, weights=cost, minlength=len(sources)).astype(np.int64)
    ideal = np.bincount(row, minlength=len(sources))
    zeros, zeros_ideal = wavefronts(targets, zeroed, width, is_load=False)
    return waves + zeros, ideal + zeros_ideal


def _turns(lines: np.ndarray, on: np.ndarray) -> np.ndarray:
    """The turn in which L1 looks up each lane's line, (n, 32), counted from 0 per warp.

    The tags form four banks. Each bank looks up one line per turn, in lane order.
    """
    lines = np.where(on, lines, -1)
    order = np.argsort(lines, axis=1, kind="stable")
    ordered = np.take_along_axis(lines, order, axis=1)
    starts = np.zeros(lines.shape, np.int64)
    starts[:, 1:] = np.where(ordered[:, 1:] != ordered[:, :-1], np.arange(1, LANES), 0)
    starts = np.maximum.accumulate(starts, axis=1)
    leader = np.empty_like(order)  # for each lane, the first lane with the same line
    np.put_along_axis(leader, order, np.take_along_axis(order, starts, axis=1), axis=1)
    leads = on & (leader == np.arange(LANES))
    bank = tag_bank(lines)
    turn = np.zeros(lines.shape, np.int64)
    for number in range(TAG_BANKS):
        here = bank == number
        turn = np.where(here, np.cumsum(leads & here, axis=1) - 1, turn)
    return np.take_along_axis(turn, leader, axis=1)
