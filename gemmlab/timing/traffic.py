"""What each memory instruction moves: how much of a load comes from L2 and from device memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict
from math import exp

from gemmlab.emulator.counters.rules import SECTOR_BYTES
from gemmlab.timing import instructions as kinds
from gemmlab.timing.caches import Lookups, Shared
from gemmlab.timing.facts import Facts
from gemmlab.timing.instructions import Op
from gemmlab.timing.memory import Traffic
from gemmlab.timing.parameters import Parameters

MB = 2**20
WARP = 32
_WHOLE = 0.9  # of a sector's bytes, from which on a store does not count as partial


class Sources:
    """Where the sectors that miss in L1 come from, and what is written to device memory.

    A wave is the blocks that run at the same time. A buffer stays in L2 if it fits there together
    with what a wave reads from the other buffers and writes; each of its sectors then comes from
    device memory once. A sector of another buffer comes once per wave, with the first load that
    requests it, and all blocks that request it meanwhile wait for it. A sector that a
    multiprocessor misses again has left L2 with a probability that grows with the number of
    sectors that all have requested since.

    A sector that is read alone costs device memory as much as several adjacent ones.

    A launch finds L2 full of lines, of which other kernels have written a part. These go to device
    memory as lines of the launch replace them. At the end, L2 still holds as many lines that the
    launch itself wrote.
    """

    def __init__(self, facts: Facts, gpu: Parameters) -> None:
        self.facts, self.gpu = facts, gpu
        loads, stores = self._sectors(is_store=False), self._sectors(is_store=True)
        shared = {line: facts.shared.get(line, Shared()) for line in loads}
        # PTX line -> share of misses that no block of the wave has had before
        new = {line: _fresh(facts.lookups[line]) * shared[line].new for line in loads}
        waves = max(1.0, facts.blocks / (gpu.sms * facts.resident))
        of_buffer, per_wave = Counter[str](), Counter[str]()  # sectors; bytes
        sizes: dict[str, int] = {}
        for line, n in loads.items():
            name = self._buffer(line)
            sizes[name] = facts.allocations.get(line, ("", facts.loaded_bytes))[1]
            of_buffer[name] += n * new[line]  # type: ignore[assignment]
            per_wave[name] += n * new[line] * SECTOR_BYTES / waves  # type: ignore[assignment]
        room = gpu.l2_mb * MB * gpu.l2_share
        passing = facts.stored_bytes / waves
        passing += sum(min(sizes[name], n) for name, n in per_wave.items())
        asked = sum(n * shared[line].distinct for line, n in loads.items())
        span = SECTOR_BYTES * min(facts.blocks, gpu.sms) * asked / max(1.0, sum(loads.values()))
        # PTX line -> share of sectors from device memory, share of executions that wait for it
        self.of_line: dict[int, tuple[float, float]] = {}
        fetched = waited = 0.0
        for line, n in loads.items():
            name, looked = self._buffer(line), facts.lookups[line]
            wave, others = shared[line].distinct, passing - min(sizes[name], per_wave[name])
            if facts.loaded_bytes <= room or sizes[name] + others <= room:
                once = sizes[name] / SECTOR_BYTES / max(1.0, of_buffer[name])
                far = new[line] * min(1.0, once)
                self.of_line[line] = far, min(1.0, far / wave)
            else:
                left = 1 - exp(-looked.distance * span / (gpu.l2_mb * MB))
                again = (1 - _fresh(looked)) * left
                far = new[line] + again
                self.of_line[line] = far, min(1.0, new[line] / wave + again)
            fetched += self.of_line[line][0] * n
            waited += self.of_line[line][1] * n
        # PTX line -> what a sector from device memory costs, in adjacent sectors
        self.cost = {x: 1 + (gpu.lone_sectors - 1) * shared[x].alone for x in loads}
        self.sectors = sum(loads.values())
        self.mean = (1.0, 1.0)
        if self.sectors:
            self.mean = fetched / self.sectors, waited / self.sectors
        # Cost of writes to device memory, in sectors read. written: of the launch's own lines, each
        # written once, per sector stored. evicted: of other kernels' lines in excess of the
        # launch's own, per sector fetched.
        stored = sum(stores.values())
        own = min(stored, (facts.loaded_bytes + facts.stored_bytes) / SECTOR_BYTES)
        foreign = min(gpu.dirty_share * (fetched + own), gpu.dirty_mb * MB / SECTOR_BYTES)
        self.written = gpu.dram_writes * own / max(1.0, stored)
        self.evicted = gpu.dram_writes * max(0.0, foreign - own) / max(1.0, fetched)
        self.active = _active(facts)

    def _sectors(self, is_store: bool) -> dict[int, float]:
        """How many sectors the launch asks of L2 or stores, by PTX line."""
        return {
            line: of.misses * self.facts.requests.get(line, 0)
            for line, of in self.facts.lookups.items()
            if of.is_store == is_store
        }

    def _buffer(self, line: int) -> str:
        return self.facts.allocations.get(line, ("", 0))[0]

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
                waves = site.wavefronts / site.requests
                if op.code.root in kinds.MATRICES:  # wmma counts the registers of a fragment apart
                    waves = max(waves, words)
                return Traffic(waves, words=returned)
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
            dram = missed * far * (self.cost.get(line, 1.0) + self.evicted)
            own = looked.own if looked else 0.0
            return Traffic(waves, lines, sectors, missed, dram, late, own=own)
        if kind == kinds.GLOBAL_STORE:
            filled = lanes * op.code.width / (sectors * SECTOR_BYTES)
            cost = 1.0 if filled > _WHOLE else self.gpu.partial_sectors
            return Traffic(waves, lines, sectors, sectors * cost, sectors * self.written)
        if kind == kinds.ATOMIC:
            same = self.gpu.same_float_g if line in facts.floats else self.gpu.same_address_g
            each = max(1 / self.gpu.l2_atomics_g, facts.hottest.get(line, 0.0) / same)
            return Traffic(1, 1, sectors, serial=sectors * each)
        return None

    def _copy(self, kind: int, line: int, looked: Lookups | None) -> Traffic:
        sectors, copies = (looked.sectors, looked.wavefronts) if looked else (0.0, 0.0)
        if kind == kinds.BULK_LOAD:
            far, late = self.of_line.get(line, self.mean)
            return Traffic(copies, 0, sectors, sectors, sectors * far * (1 + self.evicted), late)
        return Traffic(copies, 0, sectors, sectors, sectors * self.written)


def _fresh(looked: Lookups) -> float:
    """The share of misses in L1 that the multiprocessor has not had before."""
    return min(1.0, looked.fresh / looked.misses) if looked.misses else 0.0


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
