"""What each memory instruction moves: how much of a load comes from L2 and from device memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict

from gemmlab.emulator.counters.rules import SECTOR_BYTES
from gemmlab.timing import instructions as kinds
from gemmlab.timing.caches import Lookups
from gemmlab.timing.facts import Facts
from gemmlab.timing.instructions import Op
from gemmlab.timing.memory import Traffic
from gemmlab.timing.parameters import Parameters

MB = 2**20
WARP = 32
_WHOLE = 0.9  # of a sector's bytes, from which on a store does not count as partial
_STAYS = 0.8  # of L2's capacity, all data of a launch that need not reach device memory


class Sources:
    """Where the sectors that miss in L1 come from.

    A sector that a multiprocessor misses for the second time is in L2. A wave is the blocks that
    run at the same time. A buffer stays in L2 if it fits there together with what a wave reads from
    the other buffers and writes; each of its sectors then comes from device memory once. A sector
    of another buffer comes once per wave, and all blocks that request it meanwhile wait for it.
    """

    def __init__(self, facts: Facts, gpu: Parameters) -> None:
        self.facts, self.gpu = facts, gpu
        loads = {
            line: of.misses * facts.requests.get(line, 0)
            for line, of in facts.lookups.items()
            if not of.is_store
        }
        waves = max(1.0, facts.blocks / (gpu.sms * facts.resident))
        of_buffer, per_wave = Counter[str](), Counter[str]()  # sectors that miss; bytes
        sizes: dict[str, int] = {}
        again: dict[int, float] = {}  # PTX line -> share of misses that no block has had before
        for line, n in loads.items():
            name, nbytes = facts.allocations.get(line, ("", facts.loaded_bytes))
            looked = facts.lookups[line]
            fresh = min(1.0, looked.fresh / looked.misses) if looked.misses else 0.0
            again[line] = fresh * facts.shared.get(line, 1.0)
            sizes[name] = nbytes
            of_buffer[name] += n  # type: ignore[assignment]
            per_wave[name] += n * again[line] * SECTOR_BYTES / waves  # type: ignore[assignment]
        room = gpu.l2_mb * MB * gpu.l2_share
        passing = facts.stored_bytes / waves
        passing += sum(min(sizes[name], n) for name, n in per_wave.items())
        # PTX line -> share of sectors from device memory, share of executions that wait for it
        self.of_line: dict[int, tuple[float, float]] = {}
        fetched = waited = 0.0
        for line, n in loads.items():
            name, nbytes = facts.allocations.get(line, ("", facts.loaded_bytes))
            once = min(1.0, nbytes / SECTOR_BYTES / max(1.0, of_buffer[name]))
            wave, others = facts.shared.get(line, 1.0), passing - min(nbytes, per_wave[name])
            if not facts.lookups[line].fresh:  # in L2, as the multiprocessor has just used it
                far = (0.0, 0.0)
            elif facts.loaded_bytes <= room or nbytes + others <= room:
                far = (once, min(1.0, once / wave))
            else:
                far = (max(once, again[line]), min(1.0, again[line] / wave))
            self.of_line[line] = far
            fetched += far[0] * n
            waited += far[1] * n
        self.sectors = sum(loads.values())
        self.mean = (1.0, 1.0)
        if self.sectors:
            self.mean = fetched / self.sectors, waited / self.sectors
        everything = facts.loaded_bytes + facts.stored_bytes
        self.written = 0.0 if everything <= gpu.l2_mb * MB * _STAYS else 1.0

        self.active = _active(facts)

    def traffic(self, op: Op) -> Traffic | None:
        """Return what an instruction moves on average; None if it accesses no memory."""
        found, active = self._request(op), self.active.get((op.code.line or 0, op.kind), 1.0)
        if found is None or active == 1:
            return found
        means = {name: x * active for name, x in asdict(found).items() if name != "late"}
        return Traffic(**means, late=found.late)

    def _request(self, op: Op) -> Traffic | None:
        """Return what an execution with at least one accessing lane moves."""
        facts, kind, line = self.facts, op.kind, op.code.line or 0
        sites, looked = facts.sites.get(line, {}), facts.lookups.get(line)
        words = max(1, op.code.width // 4)
        if kind == kinds.SHUFFLE:
            return Traffic()
        if kind in (kinds.SHARED_LOAD, kinds.SHARED_STORE, kinds.SHARED_ATOMIC):
            site = sites.get("shared")
            returned = words if kind == kinds.SHARED_LOAD else 0
            if site and site.requests:
                return Traffic(site.wavefronts / site.requests, words=returned)
            return Traffic(words, words=returned)
        if kind in kinds.BULK:
            return self._copy(kind, line, looked)
        site = sites.get("global") or sites.get("local")
        sectors = site.sectors / site.requests if site and site.requests else float(words * 4)
        lanes = site.threads / site.requests if site and site.requests else float(WARP)
        lines = looked.lines if looked else max(1.0, sectors / 4)
        waves = float(words)
        if looked and kind in (kinds.GLOBAL_LOAD, kinds.GLOBAL_STORE):
            waves = max(waves, looked.wavefronts)
        if kind == kinds.COPY and "shared" in sites:  # through L1, it is also a store
            waves = max(waves, sites["shared"].wavefronts / max(1, sites["shared"].requests))
        if kind in (kinds.GLOBAL_LOAD, kinds.COPY):
            far, late = self.of_line.get(line, self.mean)
            missed = looked.misses if looked else sectors if site else 0.0
            return Traffic(waves, lines, sectors, missed, missed * far, late)
        if kind == kinds.GLOBAL_STORE:
            filled = lanes * op.code.width / (sectors * SECTOR_BYTES)
            cost = 1.0 if filled > _WHOLE else self.gpu.partial_sectors
            return Traffic(
                waves, lines, sectors, sectors * cost, sectors * self.written * self.gpu.dram_writes
            )
        if kind == kinds.ATOMIC:
            same = self.gpu.same_float_g if line in facts.floats else self.gpu.same_address_g
            each = max(1 / self.gpu.l2_atomics_g, facts.hottest.get(line, 0.0) / same)
            return Traffic(1, 1, sectors, serial=sectors * each)
        return None

    def _copy(self, kind: int, line: int, looked: Lookups | None) -> Traffic:
        sectors, copies = (looked.sectors, looked.wavefronts) if looked else (0.0, 0.0)
        if kind == kinds.BULK_LOAD:
            far, late = self.of_line.get(line, self.mean)
            return Traffic(copies, 0, sectors, sectors, sectors * far, late)
        written = sectors * self.written * self.gpu.dram_writes
        return Traffic(copies, 0, sectors, sectors, written)


def _active(facts: Facts) -> dict[tuple[int, int], float]:
    """Return the share of executions in which a lane accesses memory, by PTX line and kind.

    Machine code executes predicated instructions also where the predicate is false for all lanes.
    """
    executed: dict[tuple[int, int], float] = defaultdict(float)
    for body, times in zip(facts.ops, facts.executions(), strict=True):
        for op in body:
            if op.kind in kinds.QUEUED:
                executed[op.code.line or 0, op.kind] += times * facts.blocks
    # of the launch over those counted
    sampled = {line: of["global"].requests for line, of in facts.sites.items() if "global" in of}
    scales = (n / sampled[line] for line, n in facts.requests.items() if sampled.get(line))
    scale = max(scales, default=1.0)
    found = {}
    for (line, kind), n in executed.items():
        spaces = facts.sites.get(line, {})
        site = spaces.get("shared") if kind in kinds.ON_CHIP else spaces.get("global")
        if site and n:
            found[line, kind] = min(1.0, site.requests * scale / n)
    return found
