"""Launches PTX on the emulator. Results are written to the arguments; counters are returned."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from gemmlab.core import markup
from gemmlab.core.tensor_map import CHUNK
from gemmlab.emulator import tiers
from gemmlab.emulator.arguments import Argument, Buffer, bind, buffer_of
from gemmlab.emulator.checks import Finding, Output, kinds_of, run_checked
from gemmlab.emulator.counters import pipes, totals
from gemmlab.emulator.counters.tally import Tally
from gemmlab.emulator.execution.schedule import Order, WarpOrder
from gemmlab.emulator.launch.coordinates import (
    GRID_WORKSPACE,
    GRID_WORKSPACE_BITS,
)
from gemmlab.emulator.launch.launch import MAX_INSTRUCTIONS, Dim3, Launch
from gemmlab.emulator.memory.arena import Allocation, GlobalMemory
from gemmlab.emulator.memory.heap import HEAP_BYTES, Heap
from gemmlab.emulator.native import fused
from gemmlab.emulator.program import Program
from gemmlab.emulator.trace import Trace
from gemmlab.emulator.translation.translate import translate
from gemmlab.errors import InputError, LaunchError, TierError
from gemmlab.ptx import layout
from gemmlab.ptx.ir import Function, Variable

# Bytes; the maximum over all GPUs. gemmlab.hardware has the limits of each GPU.
MAX_SHARED, MAX_LOCAL = 228 << 10, 512 << 10
MAX_CLUSTER = 16  # blocks; sizes above 8 are opt-in on hardware


@dataclass(frozen=True)
class Run:
    """The result of an emulated launch.

    `counters` maps Nsight Compute metric names to exact integers. Counters of PTX instructions
    rather than machine instructions are named ptx_…. `tier` is "numpy" or "native"; both produce
    identical counters and bits.
    """

    counters: dict[str, int]
    program: Program = field(repr=False, compare=False)  # the translated kernel
    tally: Tally = field(repr=False, compare=False)  # the executions of each basic block
    tier: str = "numpy"
    findings: tuple[Finding, ...] = ()  # of the checks; an error that ended the launch is last

    def __repr__(self) -> str:
        """The tier, the findings, and the counters that are not zero."""
        counted = ", ".join(f"{name!r}: {value}" for name, value in self._counted.items())
        return f"Run(tier={self.tier!r}, findings={self.findings}, counters={{{counted}}})"

    def _repr_html_(self) -> str:
        told: dict[str, object] = {
            f"finding {n}": str(found) for n, found in enumerate(self.findings, 1)
        }
        return markup.table(f"Run on the {self.tier} tier", told | dict(self._counted))

    @property
    def _counted(self) -> dict[str, int]:
        return {name: value for name, value in self.counters.items() if value}

    def by_ptx_line(self) -> dict[int, dict[str, int]]:
        """The counters of each PTX line that has instructions. Lines count from 1.

        Tensor core and copy engine counters exist only for the whole launch.
        """
        return totals.by(self.program, self.tally, lambda instruction: instruction.line)

    def by_source_line(self) -> dict[str, dict[str, int]]:
        """The counters of each "file:line" of the Python or CUDA source.

        The key "" holds instructions that the compiler maps to no line.
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
    outputs: Sequence[np.ndarray] = (),
    max_instructions: int = MAX_INSTRUCTIONS,
    variables: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> Run:
    """Run one entry function of a PTX module; `gemmlab.emulate` is the interface for an Artifact.

    Array arguments and `variables` are updated in place after the whole launch has succeeded.

    Args:
        ptx: the text of the module.
        entry: name of the entry function; None if the module has only one.
        grid: blocks in x, y, z.
        block: threads per block in x, y, z.
        args: one per parameter, as for `gemmlab.emulate`.
        dynamic_smem: dynamic shared memory per block, in bytes.
        order: of warps and blocks: "in-order", "reversed" or an integer seed.
        cluster: blocks in x, y, z; by default the kernel's .reqnctapercluster.
        trace: filled by the launch.
        tier: "auto", "numpy" or "native".
        tensor: "exact" rounds tensor core products as hardware does, "fast" sums them in float32.
        check: the checks to run: "all", or names in `CHECKS`.
        uninitialized: array arguments that the kernel must write before it reads them.
        outputs: array arguments of which the kernel should leave no element unwritten.
        max_instructions: per warp.
        variables: PTX name of a module variable -> its bytes, which replace the initial value.

    Raises:
        PtxSyntaxError: the text does not parse.
        InputError: an order, mode or check is unknown, or the kernel wrote to a read-only array.
        LaunchError: sizes or arguments do not fit the kernel.
        EmulationError: an error in the kernel, if `check` is None; an instruction that is not
            supported, always.
        TierError: the requested tier cannot run this launch.
    """
    warp_order = Order(order)
    tiers.check(tier)
    if tensor not in ("exact", "fast"):
        raise InputError(f"tensor {tensor!r} is not 'exact' or 'fast'")
    kinds = kinds_of(check) if check is not None else frozenset[str]()
    recorded = check is not None

    def prepared_with(recorded: bool) -> Prepared:
        of = prepare(ptx, entry, grid, block, args, dynamic_smem, cluster, recorded, variables)
        is_exact = tensor == "exact"
        launch = replace(of.launch, exact_tensor=is_exact, max_instructions=max_instructions)
        return replace(of, launch=launch)

    def check_ends() -> None:
        tiers.check_ends(prepared_with(recorded=False).launch)

    prepared = prepared_with(recorded)
    launch = prepared.launch
    program, memory, buffers = launch.program, launch.memory, prepared.buffers
    special = trace is not None or check is not None or order != "in-order" or tensor == "fast"
    if (special or math.prod(launch.cluster) > 1) and tier == "native":
        raise TierError(
            "traces, checks, clusters, orders other than 'in-order' and tensor='fast' need the "
            "NumPy tier"
        )
    findings: tuple[Finding, ...] = ()
    if check is None:
        chosen = "numpy" if special or math.prod(launch.cluster) > 1 else tier
        watchers = () if trace is None else (trace,)
        tally, used = tiers.run(launch, chosen, prepared.restart, warp_order, watchers, check_ends)
    else:
        sizes = tuple(int(x) for x in args if isinstance(x, (int, np.integer)) and x > 0)
        declared = [
            Output(buffer.name, *buffer.span, array.itemsize, is_undefined, sizes)
            for arrays, is_undefined in ((uninitialized, True), (outputs, False))
            for array in arrays
            if array.size
            for buffer in [buffer_of(array, buffers)]
        ]
        watchers = () if trace is None else (trace,)
        done, findings = run_checked(launch, warp_order, kinds, declared, watchers, check_ends)
        used = "numpy"
        if done is None:  # an error ended the launch
            nothing = Tally.of(program)
            return Run(totals.counters(program, nothing), program, nothing, used, findings)
        tally = done
    if used == "numpy":
        fused.executed(tally.work)
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
    """A launch and the initial contents of its memory."""

    launch: Launch
    buffers: list[Buffer]
    variables: list[tuple[Variable, Allocation]]  # including tensor maps passed by pointer

    def restart(self) -> None:
        """Reset device memory to its state before the launch."""
        memory = self.launch.memory
        memory.commit()
        for buffer in self.buffers:
            if buffer.bytes.any():  # memory that is not written takes neither room nor time
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
    recorded: bool = False,
    values: Mapping[str, np.ndarray] = MappingProxyType({}),
    unneeded: Callable[[Function], frozenset[int]] | None = None,
) -> Prepared:
    """Build a launch and fill its memory.

    recorded: record operand values for the checks. values: the `variables` of `run`. unneeded:
    returns the instructions that need not be executed. The other parameters are also those of
    `run`. Raises PtxSyntaxError, InputError, LaunchError.
    """
    program = translate(ptx, entry, recorded, unneeded)
    most, threads = program.function.maxntid, math.prod(block)
    if most is not None and threads > math.prod(most):
        raise LaunchError(f"{threads} threads per block; the kernel's .maxntid is {most}")
    shape = cluster_shape(program.function.reqnctapercluster, cluster, grid)
    memory = GlobalMemory()
    parameters, buffers, maps = bind(program.function.parameters, args, memory)
    variables = allocate_variables(program, memory, values)
    module, function = program.module, program.function
    calls_malloc = not program.callees.isdisjoint(("malloc", "free"))
    heap = Heap(memory, memory.reserve(HEAP_BYTES)) if calls_malloc else None
    reserved = layout.reserved_shared_bytes(function)
    shared = reserved + layout.static_shared_bytes(module, function)
    if dynamic_smem:
        shared = layout.dynamic_shared_offset(module, function) + dynamic_smem
    local = layout.local_layout(function)[1]
    for what, nbytes, limit in (
        ("shared memory per block", shared, MAX_SHARED),
        ("local memory per thread", local, MAX_LOCAL),
    ):
        if nbytes > limit:
            raise LaunchError(f"{nbytes:,} bytes of {what}; the maximum of any GPU is {limit:,}")
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
        heap=heap,
    )
    prepared = Prepared(launch, buffers, [*variables, *maps])
    prepared.restart()
    return prepared


def cluster_shape(compiled: Dim3 | None, asked: Dim3 | None, grid: Dim3) -> Dim3:
    """The cluster shape of a launch. compiled: the kernel's .reqnctapercluster, or None.

    Raises LaunchError if the shape is invalid or conflicts with the kernel or the grid.
    """
    shape = asked or compiled or (1, 1, 1)
    if compiled is not None and shape != compiled:
        raise LaunchError(f"cluster {shape}; the kernel's .reqnctapercluster is {compiled}")
    if not 1 <= math.prod(shape) <= MAX_CLUSTER or min(shape) < 1:
        raise LaunchError(f"cluster {shape}: a cluster has 1 to {MAX_CLUSTER} blocks")
    if any(size % part for size, part in zip(grid, shape, strict=True)):
        raise LaunchError(f"cluster {shape} does not divide the grid {grid}")
    return shape


def static_smem_bytes(ptx: str, entry: str | None) -> int:
    """Return the statically declared shared memory of a kernel, in bytes per block.

    Raises:
        PtxSyntaxError: the text does not parse.
        UnknownNameError: the module has no such entry.
    """
    program = translate(ptx, entry)
    return layout.static_shared_bytes(program.module, program.function)


def allocate_variables(
    program: Program, memory: GlobalMemory, values: Mapping[str, np.ndarray]
) -> list[tuple[Variable, Allocation]]:
    """Allocate the .global and .const variables, and the cooperative launch workspace if used."""
    declared = (*program.module.variables, *program.function.variables)
    found = [
        replace(v, initial=values[v.name].tobytes()) if v.name in values else v
        for v in declared
        if v.space in ("global", "const")
    ]
    if not program.function.specials.isdisjoint(GRID_WORKSPACE_BITS):
        found.append(Variable(GRID_WORKSPACE, "global", "b8", CHUNK, CHUNK))
    return [(v, memory.allocate(f"variable {v.name}", v.size)) for v in found]
