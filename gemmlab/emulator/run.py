"""Launch PTX on the emulator: arguments in, results in place, counters out."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

import numpy as np

from gemmlab.core.tensor_map import CHUNK
from gemmlab.emulator import tiers
from gemmlab.emulator.arguments import Argument, Buffer, bind, buffer_of
from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.checks import Finding, kinds_of, run_checked
from gemmlab.emulator.counters import pipes, totals
from gemmlab.emulator.counters.trace import Trace
from gemmlab.emulator.execution.budget import MOST_INSTRUCTIONS
from gemmlab.emulator.execution.coordinates import (
    GRID_WORKSPACE,
    GRID_WORKSPACE_BITS,
    Dim3,
    blocks_of_clusters,
)
from gemmlab.emulator.execution.machine import Launch, Machine
from gemmlab.emulator.execution.schedule import Order, WarpOrder
from gemmlab.emulator.execution.standstill import Chunk, Standstill
from gemmlab.emulator.execution.tally import Tally
from gemmlab.emulator.memory.arena import Allocation, GlobalMemory
from gemmlab.emulator.memory.heap import HEAP_BYTES, Heap
from gemmlab.emulator.translation.translate import Program, translate
from gemmlab.errors import InputError, LaunchError, TierError
from gemmlab.ptx import layout
from gemmlab.ptx.ir import Variable

# Chunks of about this many lanes keep the working set of one instruction inside a core's L2.
CHUNK_LANES = 8192
# Blocks that run together see each other's progress step by step, which hides what they do to each
# other: in orders other than the first, so many parts of a grid go one after the other.
APART = 16
# Threads that are on a GPU at the same time: 132 multiprocessors of 64 warps.
RESIDENT_LANES = 132 * 64 * WARP
# Bytes that no GPU exceeds; gemmlab.hardware knows the limits of each.
MOST_SHARED, MOST_LOCAL = 228 << 10, 512 << 10
MAX_CLUSTER = 16  # blocks; more than 8 only where a launch allows it
DONE = object()


@dataclass(frozen=True)
class Run:
    """What an emulated launch told. `counters` maps Nsight Compute's names to exact integers;
    what is counted on PTX instructions instead of machine instructions is named ptx_….
    `tier` is "numpy" or "native"; both give the same counters and the same bits.
    """

    counters: dict[str, int]
    program: Program = field(repr=False, compare=False)
    tally: Tally = field(repr=False, compare=False)
    tier: str = "numpy"
    findings: tuple[Finding, ...] = ()  # of the checks; the last one is what stopped the launch

    def by_ptx_line(self) -> dict[int, dict[str, int]]:
        """The same counters for each line of the PTX that has instructions, from 1; those of the
        tensor cores and of the copy engine are the launch's alone."""
        return totals.by(self.program, self.tally, lambda instruction: instruction.line)

    def by_source_line(self) -> dict[str, dict[str, int]]:
        """The same counters for each "file:line" of the Python or CUDA text.

        What the compiler ascribes to no line is under "".
        """
        return totals.by(self.program, self.tally, lambda instruction: instruction.source or "")


def run(
    ptx: str,
    entry: str | None,
    grid: Dim3,
    block: Dim3,
    args: Sequence[Argument],
    dynamic_smem: int = 0,
    order: WarpOrder = "in-order",
    cluster: Dim3 | None = None,
    trace: Trace | None = None,
    *,
    tier: str = "auto",
    tensor: str = "exact",
    check: str | Iterable[str] | None = None,
    uninitialized: Sequence[np.ndarray] = (),
    max_instructions: int = MOST_INSTRUCTIONS,
    variables: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> Run:
    """Run one entry of a PTX text. grid, block: counts in x, y, z. dynamic_smem: bytes. order: of
    warps and blocks, as schedule.Order has it. cluster: blocks in x, y, z; by default what the
    kernel's .reqnctapercluster says. tier: "auto", "numpy" or "native" (see tiers.py). tensor:
    "exact" for products of tensor cores with the hardware's rounding, "fast" for float32 sums.
    variables: bytes of the module's variables by their names in the PTX, in place of the initial
    values there.

    NumPy arrays, those too, are device buffers, updated in place when the whole launch has
    succeeded. A trace, where one is given, is filled. Raises PtxSyntaxError, InputError,
    LaunchError, EmulationError, and what `tiers.run` does.
    """
    warp_order = Order(order)
    tiers.check(tier)
    if tensor not in ("exact", "fast"):
        raise InputError(f"tensor {tensor!r} is not 'exact' or 'fast'")
    kinds = kinds_of(check) if check is not None else frozenset[str]()
    noted = check is not None
    prepared = prepare(
        ptx, entry, grid, block, args, dynamic_smem, cluster, noted=noted, values=variables
    )
    launch = replace(
        prepared.launch,
        trace=trace,
        exact_tensor=tensor == "exact",
        max_instructions=max_instructions,
    )
    program, memory, buffers = launch.program, launch.memory, prepared.buffers
    special = trace is not None or check is not None or order != "in-order" or tensor == "fast"
    if (special or math.prod(launch.cluster) > 1) and tier == "native":
        raise TierError(
            "a trace, a check, a cluster, another order and fast tensor cores need the NumPy tier"
        )
    findings: tuple[Finding, ...] = ()
    if check is None:
        chosen = "numpy" if special or math.prod(launch.cluster) > 1 else tier
        numpy_tier = partial(execute, order=warp_order)
        tally, used = tiers.run(launch, chosen, numpy_tier, prepared.restart)
    else:
        spans = [(*buffer_of(x, buffers).span, x.itemsize) for x in uninitialized]
        done, findings = run_checked(launch, warp_order, kinds, spans, _in_order)
        used = "numpy"
        if done is None:  # something stopped it
            nothing = Tally.of(program)
            return Run(totals.counters(program, nothing), program, nothing, used, findings)
        tally = done
    if trace is not None:
        trace.program, trace.tally, trace.allocations = program, tally, memory.allocations
    for buffer in buffers:
        if buffer.is_read_only and not np.array_equal(buffer.bytes, buffer.on_device(memory)):
            raise InputError(f"the kernel wrote to {buffer.name}, a read-only array")
    for buffer in buffers:
        if not buffer.is_read_only:
            buffer.bytes[:] = buffer.on_device(memory)
    for variable, allocation in prepared.variables:
        if variable.name in variables:
            variables[variable.name][:] = memory.bytes_of(allocation)
    counters = totals.counters(program, tally) | pipes.counters(program, tally)
    return Run(counters, program, tally, used, findings)


@dataclass(frozen=True)
class Prepared:
    """A launch, and what its memory is filled from."""

    launch: Launch
    buffers: list[Buffer]
    variables: list[tuple[Variable, Allocation]]  # and tensor maps that arguments point to

    def restart(self) -> None:
        """Make the memory what it is before the launch."""
        memory = self.launch.memory
        memory.commit()
        for buffer in self.buffers:
            buffer.on_device(memory)[:] = buffer.bytes
        for variable, allocation in self.variables:
            data = np.frombuffer(variable.initial, np.uint8)
            there = memory.bytes_of(allocation)
            there[: data.size] = data
            for offset, symbol in variable.pointers:
                there[offset : offset + 8].view(np.uint64)[:] = self.launch.address_of(symbol)


def prepare(
    ptx: str,
    entry: str | None,
    grid: Dim3,
    block: Dim3,
    args: Sequence[Argument],
    dynamic_smem: int = 0,
    cluster: Dim3 | None = None,
    *,
    noted: bool = False,
    values: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> Prepared:
    """A launch with its memory filled. noted: for checks. values: of variables, as `run` has them.
    Raises PtxSyntaxError, InputError, LaunchError."""
    program = translate(ptx, entry, noted)
    most, threads = program.function.maxntid, math.prod(block)
    if most is not None and threads > math.prod(most):
        raise LaunchError(f"{threads} threads per block; the kernel's .maxntid is {most}")
    shape = cluster_shape(program.function.reqnctapercluster, cluster, grid)
    memory = GlobalMemory()
    parameters, buffers, maps = bind(program.function.parameters, args, memory)
    variables = allocate_variables(program, memory, values)
    module, function = program.module, program.function
    if not program.callees.isdisjoint(("malloc", "free")):
        memory.heap = Heap(memory, memory.reserve(HEAP_BYTES))
    reserved = layout.reserved_shared_bytes(function)
    shared = reserved + layout.static_shared_bytes(module, function)
    if dynamic_smem:
        shared = layout.dynamic_shared_offset(module, function) + dynamic_smem
    local = layout.local_layout(function)[1]
    for what, nbytes, limit in (
        ("shared memory per block", shared, MOST_SHARED),
        ("local memory per thread", local, MOST_LOCAL),
    ):
        if nbytes > limit:
            raise LaunchError(f"{nbytes:,} bytes of {what}; no GPU has more than {limit:,}")
    launch = Launch(
        program=program,
        grid=grid,
        block=block,
        parameters=parameters,
        memory=memory,
        variables={v.name: a.address for v, a in variables},
        shared_bytes=shared,
        local_bytes=local,
        dynamic_bytes=dynamic_smem,
        cluster=shape,
    )
    prepared = Prepared(launch, buffers, [*variables, *maps])
    prepared.restart()
    return prepared


def cluster_shape(compiled: Dim3 | None, asked: Dim3 | None, grid: Dim3) -> Dim3:
    """The shape of a launch's clusters. Raises LaunchError where it breaks a rule."""
    shape = asked or compiled or (1, 1, 1)
    if compiled is not None and shape != compiled:
        raise LaunchError(f"cluster {shape}; the kernel's .reqnctapercluster is {compiled}")
    if not 1 <= math.prod(shape) <= MAX_CLUSTER or min(shape) < 1:
        raise LaunchError(f"cluster {shape}: a cluster has 1 to {MAX_CLUSTER} blocks")
    if any(size % part for size, part in zip(grid, shape, strict=True)):
        raise LaunchError(f"cluster {shape} does not divide the grid {grid}")
    return shape


def _in_order(launch: Launch, order: Order) -> Tally:
    return execute(launch, order=order)


def static_smem_bytes(ptx: str, entry: str | None) -> int:
    """Shared memory that a kernel declares with a size, per block."""
    program = translate(ptx, entry)
    return layout.static_shared_bytes(program.module, program.function)


def execute(
    launch: Launch,
    limit: float = math.inf,
    at_limit: Callable[[], None] = lambda: None,
    *,
    order: Order,
) -> Tally:
    """All blocks of a launch on the NumPy tier, chunk by chunk.

    A chunk runs to its end before the next one, unless it waits for memory to change: then others
    run too, as many as a GPU could hold at once. at_limit: called when the launch has taken more
    than `limit` thread-instructions.
    """
    if launch.memory.heap is not None:
        launch.memory.heap.reset()
    tally, per_cluster = Tally.of(launch.program), math.prod(launch.cluster)
    tally.limit, tally.at_limit = limit, at_limit
    clusters = math.prod(launch.grid) // per_cluster
    lanes = -(-launch.threads // WARP) * WARP * per_cluster
    step = max(1, CHUNK_LANES // lanes)
    if not order.is_lockstep:
        step = min(step, -(-clusters // APART))
    if launch.checks is not None:
        step = min(step, launch.checks.most_clusters(launch))
    most_resident = max(1, RESIDENT_LANES // (lanes * step))
    waiting = deque(order.of_blocks(range(0, clusters, step)))
    resident: deque[Chunk] = deque()
    standstill, turns = Standstill(launch), 0  # since all that is resident had its turn
    # NumPy would warn of the overflows, NaNs and divisions that GPU arithmetic defines.
    with np.errstate(all="ignore"):
        while True:
            room = bool(waiting) and len(resident) < most_resident
            if room:
                first = waiting.popleft()
                count = min(step, clusters - first)
                numbers: Sequence[int] = range(first, first + count)
                if launch.trace is None:  # a trace looks for block 0 in front
                    numbers = order.of_blocks(range(first, first + count))
                blocks = blocks_of_clusters(launch.grid, launch.cluster, numbers)
                machine = Machine(launch, blocks, tally, order)
                resident.appendleft(Chunk(machine, machine.run()))
            if not resident:
                return tally
            chunk = resident.popleft()
            if next(chunk.steps, DONE) is DONE:
                turns = 0
                continue
            resident.append(chunk)
            turns = 0 if room else turns + 1
            if turns == len(resident):
                unstarted = sum(min(step, clusters - first) for first in waiting) * per_cluster
                standstill.check(resident, unstarted)
                turns = 0


def allocate_variables(
    program: Program, memory: GlobalMemory, values: Mapping[str, np.ndarray]
) -> list[tuple[Variable, Allocation]]:
    declared = (*program.module.variables, *program.function.variables)
    found = [
        replace(v, initial=values[v.name].tobytes()) if v.name in values else v
        for v in declared
        if v.space in ("global", "const")
    ]
    if not program.function.specials.isdisjoint(GRID_WORKSPACE_BITS):
        found.append(Variable(GRID_WORKSPACE, "global", "b8", CHUNK, CHUNK))
    return [(v, memory.allocate(f"variable {v.name}", v.size)) for v in found]
