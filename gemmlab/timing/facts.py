"""What a launch executes of its machine code, and the addresses that it loads: all of a prediction
that does not depend on rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gemmlab.compile.artifact import Artifact
from gemmlab.core import forks
from gemmlab.cubin import tools
from gemmlab.cubin.code import Code, read
from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.counters.rules import SECTOR_BYTES, SiteCounts
from gemmlab.emulator.counters.tally import Tally
from gemmlab.emulator.launch.launch import Dim3, Launch
from gemmlab.emulator.program import Program
from gemmlab.emulator.run import Run, prepare
from gemmlab.errors import CompileError, PredictionError
from gemmlab.hardware.occupancy import occupancy
from gemmlab.hardware.specs import KB
from gemmlab.ptx.opcodes import ATOMICS
from gemmlab.sass.counts import count, prepare_counts
from gemmlab.sass.lines import Executed, ptx_lines
from gemmlab.timing import caches, instructions, roles, sample
from gemmlab.timing.instructions import Op
from gemmlab.timing.parameters import Parameters
from gemmlab.timing.roles import Class, Role
from gemmlab.timing.sample import Load
from gemmlab.timing.signals import Signals
from gemmlab.timing.unneeded import unneeded

WHOLE = 64  # executions of a block by a warp up to which all loads of a launch are traced
# KB of an SM that can be shared memory; the rest is L1 (CUDA C++ Programming Guide, 9.0). CUDA
# takes the least that holds the resident blocks, and at least 8 where there is no shared memory.
CARVEOUTS = (8, 16, 32, 64, 100, 132, 164, 196, 228)


@dataclass
class Facts:
    """What a launch executes.

    classes: blocks that execute alike: their share of all, and by role how often a warp executes
        each basic block. signals: the uses of mbarriers. sites: PTX line -> state space -> counts,
        of the blocks sampled. lookups: by PTX line. shared: for loads, by PTX line. requests: by
        PTX line, of the launch to global memory.
        allocations: PTX line -> name and bytes of what it loads. hottest: of an atomic operation,
        by PTX line, the share of its lanes that update the same address. floats: PTX lines of
        atomic operations on floats. source: PTX line -> "file:line".
    """

    code: Code
    ops: list[list[Op]]  # of each basic block
    classes: list[Class]
    sites: dict[int, dict[str, SiteCounts]]
    lookups: dict[int, caches.Lookups]
    shared: dict[int, caches.Shared]
    blocks: int
    warps_per_block: int
    resident: int  # blocks that a multiprocessor holds at a time
    loaded_bytes: int  # of the allocations that it loads from
    stored_bytes: int  # of the others
    requests: dict[int, int]
    allocations: dict[int, tuple[str, int]]
    hottest: dict[int, float]
    floats: frozenset[int]
    source: dict[int, str]
    signals: Signals

    def executions(self) -> list[float]:
        """How often the warps of a block together execute each basic block, on average."""
        return roles.executions(self.classes)

    def remove_conflicts(self) -> None:
        """Let each access of shared memory take as few wavefronts as its bytes need."""
        for spaces in self.sites.values():
            if "shared" in spaces:
                spaces["shared"].wavefronts = spaces["shared"].ideal_wavefronts


@lru_cache(maxsize=64)
def disassemble(cubin: bytes, entry: str) -> Code:
    """Return a kernel's machine code, with bits and PTX lines."""
    return read(tools.sass(cubin, entry, ptx_lines=True, words=True))


def gather(
    artifact: Artifact,
    grid: Dim3,
    block: Dim3,
    args: Sequence[Any],
    dynamic_smem: int,
    gpu: Parameters,
    cluster: Dim3 | None = None,
) -> Facts:
    """Emulate parts of a launch.

    Raises PredictionError for what the model does not follow, CompileError for a kernel without
    machine code, and EmulationError.
    """
    if artifact.cubin is None or artifact.resources is None:
        raise CompileError(f"{artifact.entry} was not assembled, so it has no machine code")
    code = disassemble(artifact.cubin, artifact.entry)
    together = cluster if cluster and math.prod(cluster) > 1 else None  # None: as compiled
    prepared = prepare(
        artifact.ptx,
        artifact.entry,
        grid,
        block,
        args,
        dynamic_smem,
        together,
        unneeded=unneeded,
    )
    with prepared.launch.memory.kept() as rewind:
        return _gathered(artifact, code, prepared.launch, rewind, gpu)


def _gathered(
    artifact: Artifact, code: Code, launch: Launch, rewind: Callable[[], None], gpu: Parameters
) -> Facts:
    """rewind: returns memory to its state before the launch."""
    assert artifact.resources is not None
    program, ops = launch.program, instructions.prepare(code)
    warps = -(-launch.threads // WARP)
    who, used = roles.everyone(warps, len(program.blocks)), Signals()
    if any(op.kind == instructions.AWAIT_SIGNAL or op.members for body in ops for op in body):
        recorder = sample.signals(launch)
        who, used = roles.roles(program.blocks, recorder.entered, recorder.last), recorder.signals()
        rewind()
    numbers = sample.chunks(launch)
    tallies, each = sample.counts(launch, numbers), len(numbers[0])
    classes = _classes(code, tallies, each, who, program)
    _refuse(ops, classes)
    blocks = math.prod(launch.grid)
    smem = artifact.resources.static_smem_bytes + launch.dynamic_bytes
    found = occupancy(artifact.arch, launch.threads, artifact.resources.registers, smem)
    resident = found.blocks_per_sm
    rewind()
    often = max(float(x) for one in tallies for x in one.warps) / (each * warps)
    most = round(often) + 1 if often <= WHOLE else sample.TRACED
    traced = sample.loads(launch, sample.together(launch, resident, gpu.sms), most)
    rewind()
    wave = sample.first(launch, gpu.sms * resident)
    ptx = program.function.instructions
    bypass = frozenset(
        i for i, one in enumerate(ptx) if one.root == "cp" and {"cg", "bulk"} & {*one.opcode}
    )
    l1_bytes = (gpu.l1_kb - _carveout(resident * (smem + KB) if smem else 0)) * KB
    lookups = caches.l1(traced, l1_bytes, bypass)
    shared = caches.shared_by_blocks(sample.loads(launch, wave, 2), wave.tolist(), gpu.sms)
    allocations = _allocations(launch, traced)
    loaded = sum(nbytes for _, nbytes in set(allocations.values()))
    total = sample.added(tallies)
    sites = _sites(program, total)
    scale = blocks / (each * len(numbers))
    requests = {line: of["global"].requests for line, of in sites.items() if "global" in of}
    for number, of in enumerate(program.blocks):
        for i in range(of.first, of.last):
            if i in lookups and ptx[i].line not in requests:  # a bulk copy
                requests[ptx[i].line] = int(total.warps[number])
    return Facts(
        code,
        ops,
        classes,
        sites,
        {ptx[i].line: of for i, of in lookups.items()},
        {ptx[i].line: of for i, of in shared.items()},
        blocks,
        warps,
        resident,
        loaded,
        sum(a.nbytes for a in launch.memory.allocations) - loaded,
        {line: round(n * scale) for line, n in requests.items()},
        allocations,
        {ptx[x.instruction].line: x.hottest for x in traced if x.kind == "update"},
        frozenset(x.line for x in ptx if x.root in ATOMICS and x.opcode[-1] in ("f32", "f64")),
        {one.line: one.source for one in ptx if one.source},
        used,
    )


def _classes(
    code: Code, tallies: Sequence[Tally], each: int, who: Sequence[Role], program: Program
) -> list[Class]:
    """each: blocks of a tally."""
    groups = sample.classes(tallies)
    sums = [sample.added(group) for group in groups]

    def executions(part: tuple[int, Role]) -> list[float]:
        number, role = part
        own = role.of(sums[number], program.blocks)
        launched = Executed(int(own.warps[:1].sum()), int(own.lanes[:1].sum()))
        counted = count(code, ptx_lines(Run({}, program, own)), launched)
        warps = len(groups[number]) * each * len(role.warps)
        return roles.without_polls(code, [of.warps / warps for of in counted.blocks])

    parts = [(number, role) for number in range(len(groups)) for role in who]
    prepare_counts(code, program)
    times = iter(forks.share(executions, parts))
    return [(len(group) / len(tallies), [(role, next(times)) for role in who]) for group in groups]


def _refuse(ops: Sequence[Sequence[Op]], classes: Sequence[Class]) -> None:
    for body, times in zip(ops, roles.executions(classes), strict=True):
        for op in body:
            if times and op.code.root in instructions.UNKNOWN:
                raise PredictionError(f"the model does not follow {op.code.opcode}")


def _carveout(nbytes: int) -> int:
    return next((size for size in CARVEOUTS if size * KB >= nbytes), CARVEOUTS[-1])


def _allocations(launch: Launch, loads: Sequence[Load]) -> dict[int, tuple[str, int]]:
    ptx, found = launch.program.function.instructions, {}
    for load in loads:
        where = int(load.sectors.max()) * SECTOR_BYTES
        for one in launch.memory.allocations:
            if one.address <= where < one.address + one.nbytes and not load.is_store:
                found[ptx[load.instruction].line] = (one.name, one.nbytes)
    return found


def _sites(program: Program, tally: Tally) -> dict[int, dict[str, SiteCounts]]:
    sites: dict[int, dict[str, SiteCounts]] = {}
    for (index, space), counts in tally.sites.items():
        line = program.function.instructions[index].line
        sites.setdefault(line, {}).setdefault(space, SiteCounts()).add(counts)
    return sites
