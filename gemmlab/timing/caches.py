"""How many sectors of each load miss in L1 and in L2, from the addresses of a few executions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from gemmlab.emulator.counters.rules import LINE_BYTES, SECTOR_BYTES
from gemmlab.timing.sample import Load

_SECTORS = LINE_BYTES // SECTOR_BYTES


@dataclass
class Lookups:
    """Per execution of a load by one warp, on average. fresh: sectors that the multiprocessor had
    not accessed before. distance: of the other sectors that miss, how many sectors
    the multiprocessor has requested from L2 since it last accessed them. own: share of executions
    that hit sectors which the warp itself has requested."""

    requests: int = 0
    lines: float = 0.0
    sectors: float = 0.0
    misses: float = 0.0
    wavefronts: float = 0.0
    fresh: float = 0.0
    distance: float = 0.0
    own: float = 0.0
    is_store: bool = False

    def mean(self) -> Lookups:
        n = max(1, self.requests)
        found = (self.lines / n, self.sectors / n, self.misses / n, self.wavefronts / n)
        distance = self.distance / max(1.0, self.misses - self.fresh)
        return Lookups(1, *found, self.fresh / n, distance, self.own / n, self.is_store)


class L1:
    """A cache of lines, of which sectors are filled on demand; the least recently used leaves."""

    def __init__(self, nbytes: float) -> None:
        self.most = max(1, int(nbytes // LINE_BYTES))
        self.lines: OrderedDict[int, int] = OrderedDict()

    def load(self, sectors: Iterable[int]) -> list[int]:
        """Look up distinct sectors. Returns those that miss."""
        missed, lines = list[int](), self.lines
        for sector in sectors:
            line, bit = sector // _SECTORS, 1 << sector % _SECTORS
            held = lines.get(line)
            if held is None:
                missed.append(sector)
                lines[line] = bit
                if len(lines) > self.most:
                    lines.popitem(last=False)
            else:
                if not held & bit:
                    missed.append(sector)
                    lines[line] = held | bit
                lines.move_to_end(line)
        return missed


def l1(loads: Sequence[Load], nbytes: float, bypass: frozenset[int]) -> dict[int, Lookups]:
    """Return the lookups of each load by its instruction, after its first execution if there are
    several. bypass: loads that leave nothing in L1."""
    cache, found, first = L1(nbytes), dict[int, Lookups](), dict[int, Lookups]()
    seen, asked = dict[int, int](), 0  # sectors asked of L2, by when a sector was accessed last
    asker = dict[int, int]()  # the warp that asked for a sector
    for load in (load for load in loads if load.kind != "update"):
        target = first if load.turn == 0 else found
        counts = target.setdefault(load.instruction, Lookups(is_store=load.is_store))
        for warp, row in enumerate(load.sectors.reshape(-1, load.sectors.shape[-1])):
            some = np.unique(row)
            sectors = some[some >= 0].tolist()
            if not sectors:
                continue
            counts.requests += 1
            counts.sectors += len(sectors)
            counts.lines += len({sector // _SECTORS for sector in sectors})
            through = load.is_store or load.instruction in bypass
            missed = sectors if through else cache.load(sectors)
            again = [seen[sector] for sector in missed if sector in seen]
            counts.misses += len(missed)
            counts.wavefronts += load.wavefronts
            counts.fresh += len(missed) - len(again)
            counts.distance += asked * len(again) - sum(again)
            counts.own += any(asker.get(x) == warp for x in set(sectors).difference(missed))
            asker.update(dict.fromkeys(missed, warp))
            asked += len(missed)
            seen.update(dict.fromkeys(sectors, asked))
    return {i: (found.get(i) or one).mean() for i, one in first.items()}


@dataclass(frozen=True)
class Shared:
    """Sectors of a load by all blocks of a wave, over those of each multiprocessor, summed.
    distinct: of all. new: of those that no multiprocessor had accessed before, over those that the
    same multiprocessor had not. alone: share of the sectors in whose pair, 64 bytes, no load
    accesses the other one."""

    distinct: float = 1.0
    new: float = 1.0
    alone: float = 0.0


def shared_by_blocks(loads: Sequence[Load], blocks: Sequence[int], sms: int) -> dict[int, Shared]:
    """Return what the blocks of a wave have in common of each load, by its instruction."""
    found, sums = dict[int, Shared](), dict[int, list[int]]()
    loads = [load for load in loads if load.kind == "load" and (load.sectors >= 0).any()]
    if not loads:
        return found
    where = (np.array(blocks) % sms)[:, None]
    least = min(int(load.sectors[load.sectors >= 0].min()) for load in loads)
    most = max(int(load.sectors.max()) for load in loads)
    first = np.full(most - least + 1, -1, np.int16)  # the multiprocessor that accessed a sector
    for load in loads:
        rows = load.sectors.reshape(len(where), -1)
        on = rows >= 0
        pairs = _distinct((rows.astype(np.int64) - least + (where << 44))[on])
        sectors, sm = pairs & (1 << 44) - 1, pairs >> 44
        before = first[sectors]
        unknown = sectors[before < 0]
        first[unknown] = sm[before < 0]
        counts = sums.setdefault(load.instruction, [0, 0, 0, 0])
        own = before == sm
        for i, n in enumerate((len(_distinct(sectors)), len(pairs), len(_distinct(unknown)))):
            counts[i] += n
        counts[3] += int((~own).sum())
    alone = _alone(loads, np.flatnonzero(first >= 0) + least)
    for instruction, (distinct, all_, new, fresh) in sums.items():
        rest = new / fresh if fresh else 0.0, alone[instruction]
        found[instruction] = Shared(distinct / all_, *rest)
    return found


def _alone(loads: Sequence[Load], accessed: np.ndarray) -> dict[int, float]:
    """Return, by instruction, the share of its sectors that are alone in their pair.

    accessed: all sectors, in order. A lane that moves to the same or the next sector from one turn
    to the next will access the other one, too.
    """
    found, before = dict[int, float](), dict[int, np.ndarray]()
    for load in loads:
        rows, last = load.sectors, before.get(load.instruction)
        on = rows >= 0
        pairs = rows[on] ^ 1
        at = np.minimum(np.searchsorted(accessed, pairs), len(accessed) - 1)
        share = float((accessed[at] != pairs).mean()) if on.any() else 0.0
        if last is not None and last.shape == rows.shape:
            both = on & (last >= 0)
            near = np.abs(rows[both].astype(np.int64) - last[both]) <= 1
            share *= 1 - float(near.mean()) if both.any() else 1.0
        before[load.instruction] = rows
        found[load.instruction] = share  # of the last turn, which knows how lanes move
    return found


def _distinct(numbers: np.ndarray) -> np.ndarray:
    """Return distinct numbers in order. np.unique takes up to eight times as long."""
    ordered = np.sort(numbers)
    is_first = np.ones(len(ordered), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_first]
