"""Search the configurations that a rung names: by time on a GPU, by a bound on the emulator.

Each candidate is compiled, run and judged like a rung of a climb. On a GPU its score is the
measured time. On the emulator it is a predicted time, or a lower bound: the largest of the
launch's minimum times per unit, from the emulator's counts (`bounds.py`), without latencies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gemmlab.core.figures import seconds
from gemmlab.devices.device import Device
from gemmlab.errors import InputError
from gemmlab.hardware.specs import Gpu, with_architecture
from gemmlab.kernels.rung import Rung
from gemmlab.kernels.settings import candidates, text
from gemmlab.lab import bounds, predicted
from gemmlab.lab.climb import climb
from gemmlab.lab.records import Json, Record
from gemmlab.problems.problem import Case, Problem, Shape
from gemmlab.timing import Model


@dataclass(frozen=True)
class Trial:
    """One configuration.

    `limits`: seconds that the launch takes at least, by what limits it; empty on a GPU and for a
    configuration that failed. `record` is that of a climb, at the counted shape. `predicted_s`: at
    the shape in question.
    """

    settings: Mapping[str, object]  # that differ from the ladder's configuration
    record: Record
    limits: Mapping[str, float]
    predicted_s: float | None = None

    @property
    def seconds(self) -> float | None:
        """The measured time, the predicted one, or the bound; None if the configuration failed."""
        if self.record.verdict != "pass":
            return None
        return self.record.time_s or self.predicted_s or max(self.limits.values(), default=None)

    @property
    def limit(self) -> str:
        """What sets the bound; "" for a measured time."""
        return max(self.limits, key=lambda name: self.limits[name], default="")

    @property
    def name(self) -> str:
        """The settings as `--set` takes them."""
        given = " ".join(f"{name}={text(value)}" for name, value in self.settings.items())
        return given or "as in the ladder"

    def as_json(self) -> Json:
        return {
            "settings": {name: text(value) for name, value in self.settings.items()},
            "seconds": self.seconds,
            "limits_s": dict(self.limits),
            "predicted_s": self.predicted_s,
            "record": self.record.as_json(),
        }


def chosen(rung: Rung, most: int | None = None) -> list[Rung]:
    """Return the configurations to try, at most `most`: the rung's own first.

    Raises InputError if the rung names no other.
    """
    if most is not None and most < 1:
        raise InputError(f"--most {most}: at least 1 configuration must be tried")
    found = candidates(rung)
    if len(found) < 2:
        raise InputError(f"{rung.name} names no other configuration to try")
    return found[:most]


def counted_shape(problem: Problem, shape: Shape) -> dict[str, int]:
    """Return the shape at which the emulator counts: `shape`, or a smaller one if that is large."""
    if math.prod(shape.values()) <= problem.emulated_size ** len(problem.axes):
        return dict(shape)
    return {axis: min(size, problem.default_size) for axis, size in shape.items()}


def gpu_of(arch: str) -> Gpu:
    """Return the first GPU of the table with an architecture. Raises InputError if none has it."""
    found = with_architecture(arch)
    if found is None:
        raise InputError(f"no GPU of the table has {arch}, so there are no bounds to search by")
    return found


def tune(
    problem: Problem,
    case: Case,
    rungs: list[Rung],
    shape: Shape,
    device: Device,
    progress: Callable[[str, str], None] = lambda rung, doing: None,
    model: Model | None = None,
) -> Iterator[Trial]:
    """Yield a trial per configuration, in order.

    `case` is the one to run: at `shape` on a GPU, at `counted_shape` on the emulator. model: of the
    GPU on which to predict times at `shape`.
    """
    gpu = gpu_of(device.arch)
    for rung, record in zip(rungs, climb(problem, case, rungs, device, progress), strict=True):
        measured = record.time_s is not None or record.verdict != "pass"
        limits = {} if measured else limits_s(rung, record, shape, problem.min_bytes(shape), gpu)
        time_s = None
        if model is not None and limits:
            family = predicted.family(problem, case.family)
            at = problem.case(shape, rung.layout, family, case.seed)
            time_s = predicted.as_json(rung, at, model).get("time_s")
        yield Trial(rung.settings, record, limits, time_s)


def ranked(trials: list[Trial]) -> list[Trial]:
    """Return the trials, best first, then those that failed."""
    return sorted(trials, key=lambda trial: trial.seconds or math.inf)


def limits_s(
    rung: Rung, record: Record, shape: Shape, least_bytes: int, gpu: Gpu
) -> dict[str, float]:
    """Return the least times of a launch at `shape`, from the counts at another shape."""
    larger = math.prod(shape.values()) / max(1, math.prod(record.shape.values()))
    blocks = math.prod(rung.geometry(rung.config, shape).grid)
    flops = 0 if bounds.uses_tensor_cores(record.counters or {}) else round(larger * record.flops)
    return bounds.limits_s(record.counters or {}, flops, least_bytes, blocks, gpu, larger)


def sentence(trials: list[Trial], rung: Rung) -> str:
    """Say which configuration is best, and by how much."""
    best = next((trial for trial in ranked(trials) if trial.seconds), None)
    if best is None or best.seconds is None:
        return f"No configuration of {rung.name} passed."
    own = next((t.seconds for t in trials if not t.settings and t.seconds), None)
    bound = best.limits and not best.predicted_s
    how = "at least " if bound else "predicted " if best.limits else ""
    told = f"Best of {len(trials)}: {best.name}, {how}{seconds(best.seconds)}"
    if best.settings and own:
        told += f", {own / best.seconds:.2f} times as fast as the ladder's"
        told += " by the bound" if bound else ""
    return f"{told}."
