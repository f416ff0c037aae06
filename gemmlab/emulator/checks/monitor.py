"""Monitors the memory accesses and synchronization of one chunk of blocks.

Observers of the machine check its events: the memory accesses of each state space, waits, exits,
copies. They share a State.
"""

from __future__ import annotations

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Mask
from gemmlab.emulator.checks.blocks import GlobalShadow, is_fence
from gemmlab.emulator.checks.copies import AsyncCopyChecks, BulkCopyChecks
from gemmlab.emulator.checks.exits import Exits
from gemmlab.emulator.checks.findings import Findings
from gemmlab.emulator.checks.global_accesses import GlobalAccesses
from gemmlab.emulator.checks.local_accesses import LocalAccesses
from gemmlab.emulator.checks.matrices import MatrixAccesses
from gemmlab.emulator.checks.shared_accesses import SharedAccesses
from gemmlab.emulator.checks.state import State
from gemmlab.emulator.checks.undefined import Undefined
from gemmlab.emulator.checks.waits import BarrierWaits, ClusterWaits, MbarrierWaits
from gemmlab.emulator.checks.warps import Participation
from gemmlab.emulator.checks.wgmma import Accumulators, TileReads
from gemmlab.emulator.execution.machine import Machine
from gemmlab.emulator.observer import Observer
from gemmlab.emulator.program import Block
from gemmlab.emulator.translation.emit.instructions import is_warp_barrier


class Monitor(Observer):
    """Monitors one machine from its start."""

    def __init__(self, machine: Machine, findings: Findings, shadow: GlobalShadow | None) -> None:
        self.state = state = State(machine, findings, shadow)
        blocks = machine.launch.program.blocks
        self.fences = [
            [k for k in range(b.first, b.last) if is_fence(state.code[k])] for b in blocks
        ]
        exits, participation = Exits(state), Participation(state)
        undefined = Undefined(state, participation)
        global_accesses = GlobalAccesses(state, undefined, shadow)
        machine.space_global.observers.append(global_accesses)
        machine.space_local.observers.append(LocalAccesses(state, undefined, machine.space_local))
        for space in (machine.space_shared, machine.space_cluster):
            space.observers.append(SharedAccesses(state, undefined, exits, space))
        machine.space_matrices.observers.append(MatrixAccesses(state))
        machine.observers += [
            self,
            global_accesses,
            exits,
            BarrierWaits(state, participation),
            MbarrierWaits(state, exits),
            ClusterWaits(state),
            AsyncCopyChecks(state, global_accesses),
            BulkCopyChecks(state, exits, global_accesses),
            TileReads(state),
            Accumulators(state),
            participation,
            undefined,  # after participation, which finds undefined results of shuffles
        ]

    def before(self, number: int, block: Block, mask: Mask | None) -> None:
        state = self.state
        if state.blocks is not None:
            state.blocks.step += 1
            for index in self.fences[number]:
                rows = np.flatnonzero(state.machine.active(mask))
                owners = state.cluster_numbers(rows // state.clocks.threads)
                state.blocks.fence(state.clocks, owners, rows, index)
        if block.members is not None and is_warp_barrier(state.code[block.first]):
            self._meet(number, mask)

    def _meet(self, number: int, mask: Mask | None) -> None:
        """bar.warp.sync, once for all lanes, which may be at several instructions."""
        machine = self.state.machine
        rendezvous = machine.warps.rendezvous
        if rendezvous is None:
            members = np.broadcast_to(machine.warps.members(number), machine.extent.shape)
            self.state.warp_barrier(machine.active(mask), members)
        elif rendezvous.first == number:
            self.state.warp_barrier(rendezvous.lanes, rendezvous.named)
