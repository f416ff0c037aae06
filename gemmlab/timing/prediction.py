"""Predicts the time of a launch: one multiprocessor with its resident blocks is simulated, and its
time scaled to the grid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

from gemmlab.compile.artifact import Artifact
from gemmlab.core import forks
from gemmlab.emulator.launch.launch import Dim3
from gemmlab.timing import extrapolation, path, roles
from gemmlab.timing.extrapolation import Known
from gemmlab.timing.facts import Facts, gather
from gemmlab.timing.memory import Memory
from gemmlab.timing.multiprocessor import PARTITIONS, simulate
from gemmlab.timing.parameters import NO_CONFLICTS, Model, Parameters
from gemmlab.timing.roles import Role
from gemmlab.timing.traffic import Sources
from gemmlab.timing.warps import REASONS, Block, Step

MOST_STEPS = 100_000  # instructions to simulate, about
_SATURATED = 0.8  # share of a unit's cycles above which it is the limiter
Spent = tuple[int, list[float]]  # how often a step issued, and its stalls
_QUEUES = ("the load and store unit", "L2", "device memory")


@dataclass(frozen=True)
class Prediction:
    """The predicted time of a launch, and where its cycles go.

    cycles: of the busiest multiprocessor. stalls: shares of the cycles of resident warps, by Nsight
    Compute's names. busy: shares of the cycles in which a unit is busy. lines: shares of the cycles
    of warps by PTX line. instructions: the same by address of the machine instruction and reason.
    limiter: the busiest unit, or what warps wait for if none is busy.
    """

    time_s: float
    cycles: float
    stalls: Mapping[str, float]
    busy: Mapping[str, float]
    lines: Mapping[int, float]
    instructions: Mapping[int, Mapping[str, float]]
    limiter: str
    source: Mapping[int, str]  # PTX line -> "file:line"

    def by_source_line(self) -> dict[str, float]:
        """Shares of the cycles of warps by "file:line", the largest first."""
        found = Counter[str]()
        for line, share in self.lines.items():
            found[self.source.get(line, "")] += share  # type: ignore[assignment]
        return dict(found.most_common())

    def as_json(self, model: Model) -> dict[str, Any]:
        """The prediction as data. Shares are of 1."""
        bounds = model.interval
        return {
            "gpu": model.gpu.name,
            "sms": model.parameters.sms,
            "clock_ghz": model.parameters.clock_ghz,
            "what_if": list(model.what_if),
            "is_proven": model.is_proven,
            "time_s": self.time_s,
            "interval_s": [self.time_s * x for x in bounds] if bounds else None,
            "limiter": self.limiter,
            "busy": dict(self.busy),
            "stalls": dict(self.stalls),
            "source_lines": self.by_source_line(),
        }


def predict(
    artifact: Artifact,
    grid: Dim3,
    block: Dim3,
    args: Sequence[Any],
    dynamic_smem: int,
    model: Model,
    cluster: Dim3 | None = None,
) -> Prediction:
    """Predict the time of a launch on a GPU, from empty caches. args: as for `gemmlab.emulate`.

    Raises PredictionError, CompileError and EmulationError as `facts.gather` does.
    """
    facts = gather(artifact, grid, block, args, dynamic_smem, model.parameters, cluster)
    if NO_CONFLICTS in model.what_if:
        facts.remove_conflicts()
    return estimate(facts, model.parameters)


def in_a_row(launches: Sequence[Prediction], model: Model) -> Prediction:
    """Predict launches that follow each other. The shares are those of the longest launch."""
    gpu, longest = model.parameters, max(launches, key=lambda one: one.time_s)
    sooner = (len(launches) - 1) * (gpu.launch_us - gpu.next_launch_us) * 1e-6
    return replace(
        longest,
        time_s=sum(one.time_s for one in launches) - sooner,
        cycles=sum(one.cycles for one in launches),
    )


def estimate(facts: Facts, gpu: Parameters) -> Prediction:
    """Predict the time of what a launch executes."""
    steps = _steps(facts, gpu)

    def run(parts: Sequence[tuple[Role, list[float]]]) -> tuple[float, dict[int, list[Spent]]]:
        own = [[Step(step.op, step.traffic) for step in body] for body in steps]
        cycles = _Class(facts, parts, own, gpu).run()
        issued = (i for i, body in enumerate(own) if any(step.issued for step in body))
        return cycles, {i: [(step.issued, step.stalls) for step in own[i]] for i in issued}

    runs = forks.share(run, [parts for _, parts in facts.classes])
    for _, spent in runs:
        for i, of_block in spent.items():
            for step, (issued, stalls) in zip(steps[i], of_block, strict=True):
                step.add(issued, stalls)
    found = [(share, cycles) for (share, _), (cycles, _) in zip(facts.classes, runs, strict=True)]
    if -(-facts.blocks // gpu.sms) <= facts.resident:  # the slowest block decides
        cycles = max(cycles for _, cycles in found)
    else:
        cycles = sum(share * cycles for share, cycles in found)
    cost = _Cost(facts, steps, gpu)
    busy = {name: min(1.0, x / max(1.0, cycles)) for name, x in cost.busy.items()}
    return Prediction(
        cycles / (gpu.clock_ghz * 1e9) + gpu.launch_us * 1e-6,
        cycles,
        cost.stalls,
        busy,
        cost.lines,
        cost.instructions,
        _limiter(cost.stalls, busy),
        facts.source,
    )


def first_blocks(facts: Facts, gpu: Parameters) -> list[list[list[Step]]]:
    """Return the paths of the warps of the blocks that a multiprocessor holds first."""
    steps = _steps(facts, gpu)
    _, parts = max(facts.classes, key=lambda one: one[0])
    alike = _Class(facts, parts, steps, gpu)
    return alike.paths(alike.resident)[0]


def _steps(facts: Facts, gpu: Parameters) -> list[list[Step]]:
    """The instructions of each basic block, with what they move."""
    sources = Sources(facts, gpu)
    return [[Step(op, sources.traffic(op)) for op in body] for body in facts.ops]


def _limiter(stalls: Mapping[str, float], busy: Mapping[str, float]) -> str:
    unit = max(busy, key=lambda name: busy[name])
    if busy[unit] > _SATURATED:
        return unit
    waits = {name: x for name, x in stalls.items() if name not in ("selected", "not selected")}
    return max(waits, key=lambda name: waits[name])


class _Cost:
    """What the instructions of a launch cost: those simulated, as often as it executes them.

    stalls, lines, instructions: shares of the cycles of warps, by reason, by PTX line, and by
    address and reason. busy: cycles of the units of a multiprocessor.
    """

    def __init__(self, facts: Facts, steps: Sequence[Sequence[Step]], gpu: Parameters) -> None:
        active = min(facts.blocks, gpu.sms)
        blocks = facts.blocks / active  # of a multiprocessor
        stalls, lines, issued = [0.0] * len(REASONS), Counter[int](), 0.0
        costs: dict[int, list[float]] = {}
        memory = Memory(gpu, active)
        queues = [0.0] * len(memory.busy)
        for body, times in zip(steps, facts.executions(), strict=True):
            executed = blocks * times
            issued += executed * len(body)
            for step in body:
                if step.traffic is not None:
                    before = list(memory.busy)
                    memory.serve(step.op.kind, 0.0, step.traffic)
                    for i, was in enumerate(before):
                        queues[i] += executed * (memory.busy[i] - was)
                if step.issued:
                    cycles = [x / step.issued * executed for x in step.stalls]
                    stalls = [x + y for x, y in zip(stalls, cycles, strict=True)]
                    lines[step.op.code.line or 0] += sum(cycles)  # type: ignore[assignment]
                    costs[step.op.code.address] = cycles
        total = sum(stalls) or 1.0
        self.stalls = {name: x / total for name, x in zip(REASONS, stalls, strict=True)}
        self.lines = {line: cycles / total for line, cycles in lines.most_common()}
        self.instructions = {
            address: {name: x / total for name, x in zip(REASONS, own, strict=True) if x}
            for address, own in costs.items()
        }
        self.busy = {"issue slots": issued / PARTITIONS}
        self.busy |= dict(zip(_QUEUES, queues, strict=True))


class _Class:
    """A launch in which all blocks execute alike."""

    def __init__(
        self,
        facts: Facts,
        parts: Sequence[tuple[Role, list[float]]],
        steps: list[list[Step]],
        gpu: Parameters,
    ) -> None:
        self.facts, self.steps, self.gpu = facts, steps, gpu
        is_steady = bool(facts.signals.rings)
        self.trees = [path.loops(facts.code, executed, is_steady) for _, executed in parts]
        self.role = {warp: i for i, (role, _) in enumerate(parts) for warp in role.warps}
        self.per_sm = -(-facts.blocks // gpu.sms)
        self.resident = min(facts.resident, self.per_sm)
        # instructions of a block
        executed = roles.executions([(1.0, parts)])
        self.size = max(1.0, sum(len(x) * n for x, n in zip(facts.ops, executed, strict=True)))

    def run(self) -> float:
        """Return the cycles of the busiest multiprocessor."""
        if self.per_sm > self.resident and self.size * self.resident < MOST_STEPS:
            return self._short()
        facts, gpu = self.facts, self.gpu
        wave = mean(self._block_cycles(*self._simulate(self.resident)))
        waves, rest = divmod(facts.blocks, gpu.sms * self.resident)
        cycles, left = wave * waves, -(-rest // gpu.sms)
        if left == self.resident:
            cycles += wave
        elif left:
            cycles += mean(self._block_cycles(*self._simulate(left)))
        return cycles

    def _short(self) -> float:
        """Many short blocks, which follow each other: their rate, once they no longer start
        together."""
        many = min(self.per_sm, max(3 * self.resident, int(MOST_STEPS / self.size)))
        blocks, _ = self._simulate(many, whole=True)
        ends = sorted(block.ended for block in blocks)
        if many == self.per_sm:
            return ends[-1]
        first, last = many // 3, many - 1 - self.resident // 2
        pace = (ends[last] - ends[first]) / (last - first)
        return ends[-1] + pace * (self.per_sm - many)

    def _simulate(self, blocks: int, whole: bool = False) -> tuple[list[Block], list[Known]]:
        paths, known = self.paths(blocks, whole)
        active = min(self.facts.blocks, self.gpu.sms)
        resident = min(blocks, self.resident)
        return simulate(paths, resident, self.gpu, active, self.facts.signals), known

    def paths(self, blocks: int, whole: bool = False) -> tuple[list[list[list[Step]]], list[Known]]:
        """Return the paths of the warps of blocks, with some iterations of long loops or, if
        `whole`, with all."""
        warps = self.facts.warps_per_block
        each = MOST_STEPS / (warps * blocks)
        most = {} if whole else extrapolation.iterations(self.trees, self.facts.ops, each)
        made: dict[tuple[int, ...], tuple[list[Step], list[int]]] = {}
        paths, known = [], []
        for block in range(blocks):
            of_block = []
            for warp in range(warps):
                way = path.walk(self.trees[self.role[warp]], block * warps + warp, most)
                key = tuple(way.blocks)
                if key not in made:
                    steps, offsets = list[Step](), [0]
                    for i in way.blocks:
                        steps += self.steps[i]
                        offsets.append(len(steps))
                    made[key] = steps, offsets
                of_block.append(made[key][0])
                known.append((way, made[key][1]))
            paths.append(of_block)
        return paths, known

    def _block_cycles(self, blocks: Sequence[Block], known: Sequence[Known]) -> list[float]:
        """The cycles of each block, with the iterations that were left out: those of the role that
        left out most, as the others wait for it."""
        warps = [warp for block in blocks for warp in block.warps]
        paces = extrapolation.paces(known, warps)
        longer = [
            warp.times[0]
            + extrapolation.duration(way.whole, warp.times, offsets, paces)
            - warp.times[-1]
            for (way, offsets), warp in zip(known, warps, strict=True)
        ]
        size, found = len(blocks[0].warps), []
        for i, block in enumerate(blocks):
            of_role = [list[float]() for _ in self.trees]
            for warp in range(size):
                of_role[self.role[warp]].append(longer[i * size + warp])
            found.append(block.ended - block.started + max(map(mean, of_role)))
        return found
