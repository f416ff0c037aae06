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
    """Per execution of a load by one warp, on average. fresh: sectors that the
    multiprocessor had not accessed before."""

    requests: int = 0
    lines: float = 0.0
    sectors: float = 0.0
    misses: float = 0.0
    wavefronts: float = 0.0
    fresh: float = 0.0
    is_store: bool = False

    def mean(self) -> Lookups:
        n = max(1, self.requests)
        found = (self.lines / n, self.sectors / n, self.misses / n, self.wavefronts / n)
        return Lookups(1, *found, self.fresh / n, self.is_store)


class L1:
    """A cache of lines, of which sectors are filled on demand; the least recently used leaves."""

    def __init__(self, nbytes: float) -> None:
        self.most = max(1, int(nbytes // LINE_BYTES))
        self.lines: OrderedDict[int, int] = OrderedDict()

    def load(self, sectors: Iterable[int]) -> int:
        """Look up distinct sectors. Returns how many miss."""
        missed, lines = 0, self.lines
        for sector in sectors:
            line, bit = sector // _SECTORS, 1 << sector % _SECTORS
            held = lines.get(line)
            if held is None:
                missed += 1
                lines[line] = bit
                if len(lines) > self.most:
                    lines.popitem(last=False)
            else:
                if not held & bit:
                    missed += 1
                    lines[line] = held | bit
                lines.move_to_end(line)
        return missed


def l1(loads: Sequence[Load], nbytes: float, bypass: frozenset[int]) -> dict[int, Lookups]:
    """Return the lookups of each load by its instruction, after its first execution if there are
    several. bypass: loads that leave nothing in L1."""
    cache, found, first = L1(nbytes), dict[int, Lookups](), dict[int, Lookups]()
    seen = set[int]()
    for load in (load for load in loads if load.kind != "update"):
        target = first if load.turn == 0 else found
        counts = target.setdefault(load.instruction, Lookups(is_store=load.is_store))
        for row in load.sectors.reshape(-1, load.sectors.shape[-1]):
            some = np.unique(row)
            sectors = some[some >= 0].tolist()
            if not sectors:
                continue
            counts.requests += 1
            counts.sectors += len(sectors)
            counts.lines += len({sector // _SECTORS for sector in sectors})
            through = load.is_store or load.instruction in bypass
            counts.misses += len(sectors) if through else cache.load(sectors)
            counts.wavefronts += load.wavefronts
            counts.fresh += len(sectors) - len(seen.intersection(sectors))
            seen.update(sectors)
    return {i: (found.get(i) or one).mean() for i, one in first.items()}


def shared_by_blocks(loads: Sequence[Load], blocks: Sequence[int], sms: int) -> dict[int, float]:
    """Return, for each load, the distinct sectors of all blocks over those of each
    multiprocessor, summed."""
    found: dict[int, float] = {}
    where = np.array(blocks) % sms
    for load in (load for load in loads if not load.is_store):
        rows = load.sectors.reshape(len(where), -1)
        on = rows >= 0
        if not on.any():
            continue
        keys = rows.astype(np.int64) + (where[:, None].astype(np.int64) << 44)
        found[load.instruction] = len(np.unique(rows[on])) / len(np.unique(keys[on]))
    return found
