"""The events of a machine that its observers see, such as the checks and traces, and the data of
these events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import (
    Any,
    Concatenate,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
)

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Mask, Value
from gemmlab.emulator.program import Access, Block

# The operation of a bulk reduction, on byte arrays: (target, source) -> new target.
Combine = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Request(NamedTuple):
    """The execution of a memory instruction."""

    kind: Literal["load", "store", "update"]  # the method of the state space
    access: Access
    address: Value
    values: Sequence[Value]  # of a store
    mask: Mask | None


class Pending(NamedTuple):
    """The in-flight copies of one instruction. All arrays have one entry per lane."""

    lanes: np.ndarray  # flat index in the chunk
    group: np.ndarray  # number of the copy's group
    cells: np.ndarray  # flat index of the first element in shared memory
    values: list[np.ndarray]  # one array per element of a lane's copy

    def part(self, keep: np.ndarray) -> Pending:
        values = [v[keep] for v in self.values]
        return Pending(self.lanes[keep], self.group[keep], self.cells[keep], values)


class Origin(Protocol):
    """The source of a copy."""

    def read(self) -> np.ndarray:
        """The bytes to copy, flat uint8."""


class Place(Origin, Protocol):
    """The source or target of a copy, in memory."""

    def write(self, data: np.ndarray) -> None: ...


@dataclass
class Transfer:
    """An in-flight copy. It completes either at an mbarrier per target, or as part of a bulk group
    of the issuing thread."""

    instruction: int
    thread: int  # flat index in the chunk
    group: int
    source: Origin
    targets: list[Place]
    combine: Combine | None
    cells: list[int]  # of the mbarriers; empty for a copy that completes by group
    nbytes: int


class Observer:
    """Observes one machine. The machine calls these methods for each object in its `observers`, and
    a state space calls `accessing` and `accessed` for each object in its own list.

    A subclass overrides the events it needs and must not change the machine. lanes: (blocks, warps,
    32) bool. mask: the active lanes, None for all. cells: for each active lane, the index of its
    mbarrier among the 8-byte words of the chunk's shared memory. index: of the instruction.
    """

    # Threads

    def before(self, number: int, block: Block, mask: Mask | None) -> None:
        """A basic block is about to run."""

    def after(self, number: int, block: Block, mask: Mask | None) -> None:
        """A basic block has run. Its lanes have not moved on yet."""

    def exited(self, lanes: np.ndarray) -> None:
        """Lanes have exited. They are no longer live."""

    def allocated(self, addresses: np.ndarray, sizes: Value) -> None:
        """malloc has returned memory. addresses: per lane, 0 if the lane received none. sizes: in
        bytes."""

    def deadlocked(self, number: int) -> None:
        """No thread can run. number: of the first block of the chunk that has live threads."""

    # Memory

    def accessing(self, request: Request) -> None:
        """A load, store or atomic operation is about to execute. It may fail."""

    def accessed(self, request: Request, result: Any) -> None:
        """The access has executed. result: what the method of the state space returned."""

    # Asynchronous copies

    def copy_issued(self, source: Request, nbytes: Value, copy: Pending) -> None:
        """cp.async has read global memory. nbytes: per lane, how much of the access width."""

    def copy_completed(self, copy: Pending) -> None:
        """Copies of cp.async have written shared memory, since their threads wait for them."""

    def transfer_started(self, transfer: Transfer) -> None:
        """A thread has started a bulk copy."""

    def transfer_completed(self, transfer: Transfer, only_reads: bool) -> None:
        """A bulk copy has written its targets and is about to signal its mbarriers.

        only_reads: the thread waits only until the copy has read its source.
        """

    def transfers_awaited(self, most: int, only_reads: bool, mask: Mask | None) -> None:
        """cp.async.bulk.wait_group is over. most: groups that may remain pending."""

    def proxy_fenced(self, mask: Mask | None) -> None:
        """fence.proxy.async"""

    def mbarrier_init_fenced(self, mask: Mask | None) -> None:
        """fence.mbarrier_init"""

    # Tensor cores

    def wgmma_read(self, index: int, at: tuple[np.ndarray, ...], chunks: np.ndarray) -> None:
        """wgmma is about to read a tile.

        at: block and warp of each warp that reads. chunks: (warps, …), the numbers of the 16-byte
        chunks of the block's shared memory.
        """

    def wgmma_committed(self, mask: Mask | None) -> None:
        """wgmma.commit_group"""

    def wgmma_awaited(self, most: int, mask: Mask | None) -> None:
        """wgmma.wait_group. most: groups that may remain pending."""

    # Barriers of a block

    def barrier_passed(self) -> None:
        """All threads of each block have arrived at a barrier together, and pass it."""

    def barrier_arrived(self, barrier: int, lanes: np.ndarray) -> None:
        """bar.arrive: lanes arrive at a barrier without waiting."""

    def barrier_opened(
        self,
        barrier: int,
        groups: list[tuple[Block, np.ndarray]],
        counted: np.ndarray,
        arrived: np.ndarray,
    ) -> None:
        """A phase of a barrier is complete in some blocks.

        groups: the lanes that stop waiting, by the basic block that ends with the instruction at
        which they waited. counted: per block, whether the barrier has a thread count. arrived: per
        block, the threads that executed bar.arrive in this phase.
        """

    # mbarriers

    def mbarrier_initialized(self, index: int, cells: np.ndarray, mask: Mask | None) -> None:
        """mbarrier.init has written the objects."""

    def mbarrier_arrived(self, index: int, cells: np.ndarray, mask: Mask | None) -> None:
        """Lanes arrive. Called before their arrivals can complete a phase."""

    def mbarrier_awaited(
        self, index: int, cells: np.ndarray, parity: np.ndarray, mask: Mask | None
    ) -> None:
        """Lanes begin to wait for a phase. parity: of the phase, for each active lane."""

    def mbarrier_passed(self, index: int, cells: np.ndarray, lanes: np.ndarray) -> None:
        """Lanes see that the phase is complete. cells: (blocks, warps, 32), valid at `lanes`."""

    def mbarrier_completed(self, cells: np.ndarray) -> None:
        """A phase of each object is complete. cells: one per object."""

    # Barriers of a cluster

    def cluster_arrived(self, index: int, mask: Mask | None) -> None:
        """Lanes arrive. Called before their arrivals can complete a phase."""

    def cluster_completed(self, clusters: np.ndarray) -> None:
        """A phase of each cluster's barrier is complete. clusters: their numbers in the chunk."""

    def cluster_passed(self, lanes: np.ndarray) -> None:
        """Lanes stop waiting at their cluster's barrier."""


class Observable(Protocol):
    """A state space with observers."""

    observers: list[Observer]


S = TypeVar("S", bound=Observable)
P = ParamSpec("P")
R = TypeVar("R")


def observed(
    method: Callable[Concatenate[S, Access, Value, P], R],
) -> Callable[Concatenate[S, Access, Value, P], R]:
    """Report the calls of a space's `load`, `store` or `update` to the observers of the space."""
    kind: Any = method.__name__

    def access_memory(
        space: S, access: Access, address: Value, /, *rest: P.args, **options: P.kwargs
    ) -> R:
        if not space.observers:
            return method(space, access, address, *rest, **options)
        values: Any = rest[0] if kind == "store" else ()
        mask: Any = rest[-1]
        request = Request(kind, access, address, values, mask)
        for observer in space.observers:
            observer.accessing(request)
        result = method(space, access, address, *rest, **options)
        for observer in space.observers:
            observer.accessed(request, result)
        return result

    return access_memory
