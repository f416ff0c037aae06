"""Monitors the memory accesses and synchronization of one chunk of blocks.

Observers of the machine check its events: the memory accesses of each state space, waits, exits,
copies. They share the clocks and records of a monitor.
"""

from __future__ import annotations

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP, Mask, three_axes
from gemmlab.emulator.checks.blocks import GlobalShadow, is_fence
from gemmlab.emulator.checks.clocks import Clocks, SyncObjects
from gemmlab.emulator.checks.copies import AsyncCopyChecks, BulkCopyChecks
from gemmlab.emulator.checks.exits import Exits
from gemmlab.emulator.checks.findings import Findings
from gemmlab.emulator.checks.global_accesses import GlobalAccesses
from gemmlab.emulator.checks.local_accesses import LocalAccesses
from gemmlab.emulator.checks.matrices import MatrixAccesses
from gemmlab.emulator.checks.places import shared_place
from gemmlab.emulator.checks.shadow import ATOMIC, Shadow, pack
from gemmlab.emulator.checks.shared_accesses import SharedAccesses
from gemmlab.emulator.checks.undefined import Undefined
from gemmlab.emulator.checks.variables import variables_meant
from gemmlab.emulator.checks.waits import BarrierWaits, ClusterWaits, MbarrierWaits
from gemmlab.emulator.checks.warps import Participation
from gemmlab.emulator.checks.wgmma import Accumulators, TileReads
from gemmlab.emulator.execution.machine import Machine
from gemmlab.emulator.memory.arena import GLOBAL_BASE
from gemmlab.emulator.observer import Observer, Request
from gemmlab.emulator.program import Block, Program
from gemmlab.emulator.translation.emit.instructions import is_warp_barrier
from gemmlab.emulator.translation.liveness import read_registers, results
from gemmlab.ptx import layout
from gemmlab.ptx.opcodes import FENCES, FETCHES, LOADS, SCALAR_ACCESSES, WITHOUT_RESULT


def granule_of(program: Program) -> int:
    """The width of the kernel's narrowest access in bytes, at most 16."""
    widths = (access.width for access in program.accesses.values())
    return min((16, *widths))


def has_flags(program: Program) -> bool:
    """Whether threads may synchronize through memory: the kernel polls or uses results of atomic
    operations, and has fences, or accesses with acquire or release semantics."""
    code = program.function.instructions
    read = read_registers(code)
    draws = any(i.root in FETCHES and read & {*results(i)} for i in code)
    polls = any(b.spins or b.locks for b in program.blocks)
    return (polls or draws) and any(
        i.name in FENCES
        or (i.root in SCALAR_ACCESSES and {"acquire", "release", "acq_rel"} & {*i.modifiers})
        for i in code
    )


class Monitor(Observer):
    """Monitors one machine from its start."""

    def __init__(self, machine: Machine, findings: Findings, shadow: GlobalShadow | None) -> None:
        self.machine, self.findings, self.blocks = machine, findings, shadow
        self.code = machine.launch.program.function.instructions
        self.granule = granule_of(machine.launch.program)
        cluster = machine.space_cluster.cluster_size
        self.cluster_size = cluster
        self.clocks = Clocks(machine.extent, cluster)
        self.sync_objects = SyncObjects(self.clocks)
        self.shared = machine.space_shared.data
        self.row = self.shared.shape[1] // self.granule  # granules of a block
        self.shadow = Shadow(self.shared.size // self.granule, self.clocks, self.report_shared)
        reserved = layout.reserved_shared_bytes(machine.launch.program.function) // self.granule
        if reserved:  # CUDA initializes it with zeros
            zeros = pack(0, np.array(0), np.array(0), ATOMIC)
            self.shadow.written.reshape(-1, self.row)[:, :reserved] = zeros
        self.everyone = np.arange(machine.live.size)
        self.variables = variables_meant(machine.launch.program)
        self.word = np.dtype(f"u{min(self.granule, 8)}")  # for comparing values
        local = LocalAccesses(self, machine.space_local)
        machine.space_local.observers.append(local)
        self.granules = {"shared": self.shadow.written.size, "local": local.written.size}
        self.undefined = Undefined(self)
        self.has_flags = has_flags(machine.launch.program)
        self.fences = [
            [k for k in range(b.first, b.last) if is_fence(self.code[k])]
            for b in machine.launch.program.blocks
        ]
        self.exits = Exits(self)
        self.participation = Participation(self)
        self.global_accesses = GlobalAccesses(self, shadow)
        machine.space_global.observers.append(self.global_accesses)
        for space in (machine.space_shared, machine.space_cluster):
            space.observers.append(SharedAccesses(self, space))
        machine.space_matrices.observers.append(MatrixAccesses(self))
        machine.observers += [
            self,
            self.global_accesses,
            self.exits,
            BarrierWaits(self),
            MbarrierWaits(self),
            ClusterWaits(self),
            AsyncCopyChecks(self),
            BulkCopyChecks(self),
            TileReads(self),
            Accumulators(self),
            self.participation,
            self.undefined,  # after participation, which finds undefined results of shuffles
        ]

    def before(self, number: int, block: Block, mask: Mask | None) -> None:
        if self.blocks is not None:
            self.blocks.step += 1
            for index in self.fences[number]:
                rows = np.flatnonzero(self.machine.active(mask))
                owners = self.cluster_numbers(rows // self.clocks.threads)
                self.blocks.fence(self.clocks, owners, rows, index)
        if block.members is not None and is_warp_barrier(self.code[block.first]):
            self._meet(number, mask)

    def _meet(self, number: int, mask: Mask | None) -> None:
        """bar.warp.sync, once for all lanes, which may be at several instructions."""
        machine, rendezvous = self.machine, self.machine.warps.rendezvous
        if rendezvous is None:
            members = np.broadcast_to(machine.warps.members(number), machine.extent.shape)
            self.warp_barrier(machine.active(mask), members)
        elif rendezvous.first == number:
            self.warp_barrier(rendezvous.lanes, rendezvous.named)

    def warp_barrier(self, on: np.ndarray, members: np.ndarray) -> None:
        """bar.warp.sync: synchronize the lanes of each warp that have the same membermask."""
        for block, warp in np.argwhere(on.any(axis=2)).tolist():
            lanes = np.flatnonzero(on[block, warp])
            named = members[block, warp, lanes]
            for bits in {*named.tolist()}:
                rows = (block * on.shape[1] + warp) * WARP + lanes[named == bits]
                if len(rows) > 1:
                    self.clocks.synchronize(rows)

    def rows(self, mask: Mask | None) -> np.ndarray:
        """Flat indices of the active threads."""
        return self.everyone if mask is None else np.flatnonzero(mask.array)

    def cluster_numbers(self, blocks: np.ndarray) -> np.ndarray:
        """The number in the launch of each block's cluster."""
        numbers: np.ndarray = self.machine.blocks[blocks // self.cluster_size * self.cluster_size]
        return numbers

    # Memory accesses

    def pieces(self, starts: np.ndarray, nbytes: int) -> np.ndarray:
        """The granules of accesses that start at the given bytes, (n, granules per access)."""
        pieces: np.ndarray = (starts // self.granule)[:, None] + np.arange(nbytes // self.granule)
        return pieces

    def values(self, memory: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """The contents of granules, (n, granules, words per granule)."""
        words = memory.view(self.word).reshape(-1, self.granule // self.word.itemsize)
        found: np.ndarray = words.take(cells, axis=0, mode="clip")
        return found

    def written(self, store: Request) -> np.ndarray:
        """The values that a store writes, in the format of `values`."""
        mask, shape = store.mask, self.machine.extent.shape
        columns = [np.broadcast_to(three_axes(v), shape) for v in store.values]
        columns = [v.reshape(-1) if mask is None else v[mask.array] for v in columns]
        bits = np.ascontiguousarray(
            np.stack(columns, axis=1).astype(store.access.dtype, copy=False)
        )
        words = self.granule // self.word.itemsize
        return bits.view(self.word).reshape(len(bits), -1, words)

    def flags(self, space: str, rows: np.ndarray, cells: np.ndarray, site: int) -> None:
        """Release and acquire by strong accesses, in kernels that synchronize through memory."""
        root = self.code[site].root
        for cell in np.unique(cells).tolist():
            here = rows[cells == cell]
            clusters = here // self.clocks.members
            for cluster in np.unique(clusters).tolist():
                some, place = here[clusters == cluster], (space, cell, cluster)
                # Threads with equal addresses execute one after another, as in `memory.atomics`.
                for turn in some[:, None] if root in FETCHES else (some,):
                    if root not in WITHOUT_RESULT:
                        self.sync_objects.acquire(place, turn)
                    if root not in LOADS:
                        self.sync_objects.release(place, self.clocks.release(turn))

    def report_shared(
        self,
        kind: str,
        what: str,
        site: int,
        other: int | None,
        rows: np.ndarray,
        columns: np.ndarray,
        cells: np.ndarray,
    ) -> None:
        self.findings.has_races |= other is not None
        if not self.findings.wants(kind, site, other):
            return
        threads = self.clocks.threads
        block = int(rows[0]) // threads
        here = rows // threads == block
        addresses = cells[here] % self.row * self.granule
        message = what
        if other is not None:
            column = int(columns[0])
            by = "an asynchronous operation"
            if column < self.clocks.members:
                by = f"thread {column % threads}"
            message = f"{what}: not ordered after {by}"
        message += f", in {shared_place(self.machine.launch.program, int(addresses[0]))}"
        at = self.machine.block_index(block)
        numbers = dict.fromkeys((rows[here] % threads).tolist())
        self.findings.add(kind, message, site, other, at, numbers, addresses.tolist())

    def place_of(self, space: str, cell: int) -> str:
        """The location of a granule, for messages."""
        start = cell * self.granule
        if space == "global":
            return self.machine.launch.memory.name_of(start + GLOBAL_BASE)
        if space == "shared":
            return shared_place(self.machine.launch.program, start % self.shared.shape[1])
        return f"local memory+{start % self.machine.space_local.data.shape[3]}"
