"""The emulator's counts for one kernel at one shape, per instruction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from gemmlab import sass
from gemmlab.compile.artifact import Artifact
from gemmlab.devices.emulated import emulate
from gemmlab.emulator import Run, Trace
from gemmlab.emulator.counters import pipes
from gemmlab.emulator.counters.rules import LANES, SECTOR_BYTES
from gemmlab.kernels.rung import Rung
from gemmlab.lab.explain import tiles
from gemmlab.lab.explain.patterns import Pattern, patterns
from gemmlab.lab.explain.stalls import Call
from gemmlab.problems.problem import WORKSPACE, Case, Problem
from gemmlab.ptx import products
from gemmlab.ptx.ir import Instruction, Reg
from gemmlab.ptx.opcodes import ACCESSES, FLOPS

SPACES = ("global", "shared")
COPY = {"global": "load", "shared": "store"}  # an asynchronous copy counts as both
DIGITS = "0123456789abcdefghijklmnopqrstuv"  # one per lane or warp, 0 to 31
NONE = "·"


@dataclass(frozen=True)
class Totals:
    """Sums over all loads, stores or atomics of one state space."""

    requests: int = 0
    lanes: int = 0
    bytes_asked: int = 0
    sectors: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0
    shares_sectors: bool = False  # an instruction requests more bytes than its sectors have
    wastes_sectors: bool = False  # an instruction requests fewer bytes than its sectors have

    def __add__(self, other: Totals) -> Totals:
        """The sums of numbers; whether one of the two has a property."""
        pairs = {x.name: (getattr(self, x.name), getattr(other, x.name)) for x in fields(Totals)}
        return Totals(
            **{k: a or b if isinstance(a, bool) else a + b for k, (a, b) in pairs.items()}
        )


@dataclass(frozen=True)
class Loop:
    """One iteration, for one thread, of the basic block that does most of the arithmetic."""

    operations: int  # float32 fma, add, sub, mul
    chain: int  # length of their longest dependence chain
    global_loads: int  # instructions
    shared_loads: int
    words_loaded: int  # of 4 bytes, by both kinds of loads


@dataclass(frozen=True)
class Counted:
    """The counts of one emulated launch, or of several.

    Of several, counters, totals and FLOPs are sums; the rest is of the kernel's own launch. `flops`
    are in float32, and those of matrix products. `owners` has a string per row of the first block's
    part of a two-dimensional output: the digit of the warp that wrote each element. It is empty for
    other outputs.
    """

    shape: dict[str, int]
    counters: dict[str, int]
    totals: dict[str, Totals]  # by space and operation: "global load"
    flops: int
    loop: Loop | None
    patterns: tuple[Pattern, ...]
    owners: tuple[str, ...]
    launches: int = 1

    def of(self, space_and_operation: str) -> Totals:
        return self.totals.get(space_and_operation, Totals())

    @property
    def bulk_loaded(self) -> int:
        """Bytes of global memory that bulk copies read, in whole sectors."""
        return self.counters.get(pipes.BYTES["tma_ld"], 0)

    @property
    def moved(self) -> int:
        """Bytes of the sectors that accesses of global memory and bulk copies touch."""
        sectors = sum(self.of(f"global {op}").sectors for op in ("load", "store", "atomic"))
        bulk = sum(self.counters.get(name, 0) for name in pipes.BYTES.values())
        return SECTOR_BYTES * sectors + bulk


@dataclass(frozen=True)
class Launched:
    """One emulated launch with its trace. `names`: of the arguments, in their order.

    case: None for a kernel that solves none of gemmlab's problems. notes: on its result. call: None
    for one launch of several.
    """

    case: Case | None
    names: tuple[str, ...]
    artifact: Artifact
    trace: Trace
    run: Run
    notes: tuple[str, ...] = ()
    call: Call | None = None


def launch(
    problem: Problem,
    rung: Rung,
    artifact: Artifact,
    shape: Mapping[str, int],
    trace: Trace | None = None,
) -> Launched:
    """Emulate the rung once, on inputs of the problem's first family, and fill the trace.

    Raises EmulationError for an instruction that the emulator does not support.
    """
    case = problem.case(shape, rung.layout, problem.families[0], seed=0)
    given = dict(case.buffers) | dict(case.scalars)
    given[case.output] = np.zeros(case.output_size, case.output_dtype)
    names = [parameter.name for parameter in problem.parameters]
    args = [given[name] for name in names]
    if rung.workspace is not None:
        args.append(np.zeros(rung.workspace(rung.config, shape) // 4, np.float32))
        names.append(WORKSPACE.name)
    grid, block, dynamic_smem = rung.geometry(rung.config, shape)
    trace = trace or Trace()
    run = emulate(
        artifact,
        grid=grid,
        block=block,
        args=args,
        dynamic_smem=dynamic_smem,
        trace=trace,
    )
    call = Call(grid, block, args, dynamic_smem)
    return Launched(case, tuple(names), artifact, trace, run, call=call)


def added(counts: Sequence[Counted]) -> Counted:
    """Return the counts of several launches, the kernel's own first."""
    own, *others = counts
    if not others:
        return own
    counters: Counter[str] = Counter()
    totals: dict[str, Totals] = {}
    for one in counts:
        counters.update(one.counters)
        for kind, found in one.totals.items():
            totals[kind] = totals.get(kind, Totals()) + found
    flops = sum(one.flops for one in counts)
    launches = sum(one.launches for one in counts)
    return replace(own, counters=dict(counters), totals=totals, flops=flops, launches=launches)


def count(launched: Launched, shape: Mapping[str, int]) -> Counted:
    """Return the counts of a launch at a shape."""
    trace = launched.trace
    return Counted(
        dict(shape),
        launched.run.counters | sass.counters(launched.artifact, launched.run),
        _totals(trace),
        _flops(trace),
        _hottest(trace),
        patterns(trace, dict(enumerate(launched.names))),
        _owners(trace, launched.case, launched.names),
    )


def _totals(trace: Trace) -> dict[str, Totals]:
    code, accesses = trace.program.function.instructions, trace.program.accesses
    totals: dict[str, Totals] = {}
    for (index, space), counts in trace.tally.sites.items():
        kind = f"{space} {ACCESSES.get(code[index].root) or COPY[space]}"
        asked, moved = counts.threads * accesses[index].width, SECTOR_BYTES * counts.sectors
        totals[kind] = totals.get(kind, Totals()) + Totals(
            counts.requests,
            counts.threads,
            asked,
            counts.sectors,
            counts.wavefronts,
            counts.ideal_wavefronts,
            moved < asked,
            moved > asked,
        )
    return totals


def _is_float32(instruction: Instruction) -> bool:
    return instruction.root in FLOPS and instruction.opcode[-1] in ("f32", "f32x2")


def _flops(trace: Trace) -> int:
    code, total = trace.program.function.instructions, 0
    for block, lanes in zip(trace.program.blocks, trace.tally.lanes.tolist(), strict=True):
        total += lanes * sum(map(_flops_per_lane, code[block.first : block.last]))
    return total


def _flops_per_lane(instruction: Instruction) -> int:
    if _is_float32(instruction):
        return FLOPS[instruction.root] * (2 if instruction.opcode[-1] == "f32x2" else 1)
    return products.flops(instruction.opcode)


def _hottest(trace: Trace) -> Loop | None:
    """Return the loop with the most FLOPs; None if these are not float32 operations."""
    code, accesses = trace.program.function.instructions, trace.program.accesses
    bodies = [code[block.first : block.last] for block in trace.program.blocks]
    flops = [sum(map(_flops_per_lane, body)) for body in bodies]
    most = int(np.argmax(trace.tally.lanes * flops))
    arithmetic = sum(map(_is_float32, bodies[most]))
    if not arithmetic or not trace.tally.lanes[most]:
        return None
    block, body = trace.program.blocks[most], bodies[most]
    loads = [i for i in range(block.first, block.last) if i in accesses and code[i].root == "ld"]
    words_of = ([m.split("::")[0] for m in code[i].modifiers] for i in loads)
    spaces = [next((word for word in words if word in SPACES), "") for words in words_of]
    words = sum(accesses[i].width for i, s in zip(loads, spaces, strict=True) if s) // 4
    return Loop(
        arithmetic,
        _chain(body),
        spaces.count("global"),
        spaces.count("shared"),
        words,
    )


def _chain(body: Sequence[Instruction]) -> int:
    """Return the length of the longest chain of dependent float32 operations."""
    depth: dict[str, int] = {}
    for instruction in body:
        registers = [o.name for o in instruction.operands if isinstance(o, Reg)]
        if registers and _is_float32(instruction):
            target, *sources = registers
            depth[target] = 1 + max((depth.get(source, 0) for source in sources), default=0)
        elif registers and instruction.root == "mov":
            depth[registers[0]] = max((depth.get(r, 0) for r in registers[1:]), default=0)
    return max(depth.values(), default=1)


def _owners(trace: Trace, case: Case | None, names: Sequence[str]) -> tuple[str, ...]:
    """Return the owners of the smallest rectangle that contains all stores of the first block."""
    if case is None or case.output not in names:  # a launch of several that does not write it
        return ()
    writers = tiles.writers(trace, case, names)
    if writers is None:
        return ()
    warps = np.where(writers < 0, -1, writers // LANES)
    return tuple("".join(np.array([*DIGITS, NONE])[row]) for row in warps)
