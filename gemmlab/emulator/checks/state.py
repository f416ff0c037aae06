"""What the checks of one chunk of blocks share: clocks, records of accesses, and findings."""

from __future__ import annotations

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP, Mask, three_axes
from gemmlab.emulator.checks import advice
from gemmlab.emulator.checks.blocks import GlobalShadow
from gemmlab.emulator.checks.clocks import Clocks, SyncObjects
from gemmlab.emulator.checks.findings import Findings
from gemmlab.emulator.checks.shadow import ATOMIC, Shadow, pack
from gemmlab.emulator.checks.variables import variables_meant
from gemmlab.emulator.execution.machine import Machine
from gemmlab.emulator.memory.arena import GLOBAL_BASE
from gemmlab.emulator.memory.names import shared_place
from gemmlab.emulator.observer import Request
from gemmlab.emulator.program import Program
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


class State:
    """What the checks of one machine share.

    A granule is the piece of memory that one record describes.
    """

    def __init__(self, machine: Machine, findings: Findings, blocks: GlobalShadow | None) -> None:
        self.machine, self.findings, self.blocks = machine, findings, blocks
        program = machine.launch.program
        self.code = program.function.instructions
        self.granule = granule_of(program)
        self.cluster_size = machine.space_cluster.cluster_size
        self.clocks = Clocks(machine.extent, self.cluster_size)
        self.sync_objects = SyncObjects(self.clocks)
        self.shared = machine.space_shared.data
        self.row = self.shared.shape[1] // self.granule  # granules of a block
        self.shadow = Shadow(self.shared.size // self.granule, self.clocks, self.report_shared)
        reserved = layout.reserved_shared_bytes(program.function) // self.granule
        if reserved:  # CUDA initializes it with zeros
            zeros = pack(0, np.array(0), np.array(0), ATOMIC)
            self.shadow.written.reshape(-1, self.row)[:, :reserved] = zeros
        self.everyone = np.arange(machine.live.size)
        self.variables = variables_meant(program)
        self.word = np.dtype(f"u{min(self.granule, 8)}")  # for comparing values
        local = machine.space_local.data.size // self.granule
        self.granules = {"shared": self.shadow.written.size, "local": local}
        self.has_flags = has_flags(program)

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
        place = self.shared_element(int(addresses[0]), site, other)
        if other is None:
            by = f"thread {int(rows[0]) % threads}"
            message = advice.fill(what, place, advice.Access(by, self.code[site].site), None)
        else:
            columns = columns[here]
            message = self._conflict(kind, what, place, site, other, rows[here], columns)
        at = self.machine.block_index(block)
        numbers = dict.fromkeys((rows[here] % threads).tolist())
        self.findings.add(kind, message, site, other, at, numbers, addresses.tolist())

    def _conflict(
        self,
        kind: str,
        what: str,
        place: str,
        site: int,
        other: int,
        rows: np.ndarray,
        columns: np.ndarray,
    ) -> str:
        """The message of two conflicting accesses to shared memory. rows: threads of one block."""
        threads, members = self.clocks.threads, self.clocks.members
        now, before = rows % members, columns
        thread = int(before[0])
        is_engine = thread >= members
        by = f"thread {thread % threads}"
        if not is_engine and thread // threads != now[0] // threads:
            by += f" of block {thread // threads} of the cluster"
        later = advice.Access(f"thread {int(now[0]) % threads}", self.code[site].site)
        earlier = advice.Access(by, self.code[other].site)
        if is_engine:
            what = advice.unfinished(what, "")
        elif kind == "missing wait":
            what = advice.unfinished(what)
        if what not in advice.VERBS:
            return advice.fill(what, place, later, earlier)
        scope = "warp"
        if (now // WARP != before // WARP).any():
            scope = "block"
        if (now // threads != before // threads).any():
            scope = "cluster"
        return advice.race(what, place, later, earlier, scope)

    def itemsize(self, *sites: int | None) -> int:
        """Bytes of an element of the first of these instructions that is a memory access; 0 if none
        is."""
        accesses = self.machine.launch.program.accesses
        return next((accesses[k].dtype.itemsize for k in sites if k in accesses), 0)

    def shared_element(self, address: int, *sites: int | None) -> str:
        """The location at a shared address, as an element of these instructions' accesses."""
        return shared_place(self.machine.launch.program, address, self.itemsize(*sites))

    def place_of(self, space: str, cell: int, site: int) -> str:
        """The location of a granule that an instruction accesses, for messages."""
        start = cell * self.granule
        if space == "global":
            return self.machine.launch.memory.name_of(start + GLOBAL_BASE, self.itemsize(site))
        if space == "shared":
            return self.shared_element(start % self.shared.shape[1], site)
        return f"local memory+{start % self.machine.space_local.data.shape[3]}"
