"""Times, differences and losses of one program, in three ways."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.gpu import Gpu, Work
from benchmarks.programs.models import Computation, Program, Training
from benchmarks.record import Row
from benchmarks.timing import in_turn, quantiles

ROUNDS, STEPS = 4, 5
WAYS = ("float32", "gemmlab", "tf32")
CURVE_STEPS, CURVE_SHARE, CURVE_RATE = 200, 4, 1e-4  # Adam's learning rate


@contextlib.contextmanager
def way(gpu: Gpu, name: str) -> Iterator[None]:
    import gemmlab.torch

    ways = {"gemmlab": gemmlab.torch.enabled, "tf32": gpu.tf32}
    with ways.get(name, contextlib.nullcontext)():
        yield


def measure(one: Program, gpu: Gpu) -> Row:
    """Differences and times of a program, or why it does not run."""
    gpu.torch.manual_seed(0)
    gpu.torch._dynamo.reset()
    record: Row = {}
    try:
        program = one.make(gpu)
        record["difference"] = differences(gpu, program)
        record["eager"] = time(gpu, program.eager())
        if one.compiles:
            record["compiled"] = time(gpu, program.compiled())
        del program
    except Exception as error:  # what one program cannot do must not end the others
        record["error"] = f"{type(error).__name__}: {error}"[:500]
    gpu.release()
    return record


def time(gpu: Gpu, run: Work) -> Row:
    for name in WAYS:
        with way(gpu, name):
            for _ in range(2):
                run()
    gpu.synchronize()

    def steps(name: str) -> list[float]:
        with way(gpu, name):
            return [1e3 * lap for lap in gpu.laps(run, STEPS)]

    import gemmlab.torch

    found: Row = {}
    for name, rounds in in_turn({x: partial(steps, x) for x in WAYS}, ROUNDS).items():
        found[name] = quantiles([sample for each in rounds for sample in each], "ms")
    found["speedup"] = found["float32"]["ms"] / found["gemmlab"]["ms"]
    for name in WAYS:
        with way(gpu, name):
            found[name]["busy_ms"] = 1e3 * gpu.busy(run)
    found["busy_speedup"] = found["float32"]["busy_ms"] / found["gemmlab"]["busy_ms"]
    with way(gpu, "gemmlab"):
        run()
        report = gemmlab.torch.report()
    return found | {"products": {"taken": report.taken, "left": report.left}}


def differences(gpu: Gpu, program: Training | Computation) -> dict[str, float]:
    """For each way, the largest difference of a tensor, relative to its largest element."""
    if isinstance(program, Computation):
        exact = [program.exact()]

        def run() -> list[Any]:
            return [program.eager()()]
    else:
        start = copy.deepcopy(program.model.state_dict())

        def run() -> list[Any]:
            return program.gradients(start)

        with way(gpu, "float32"):
            exact = [x.double() for x in run()]
    found = {}
    for name in WAYS:
        with way(gpu, name):
            pairs = zip(run(), exact, strict=True)
        found[name] = max(
            float((x.double() - y).abs().max() / y.abs().max().clamp_min(1e-30)) for x, y in pairs
        )
    return found


def curves(one: Program, gpu: Gpu) -> dict[str, list[float]]:
    """The losses of steps from the same weights."""
    gpu.torch.manual_seed(0)
    program = one.make(gpu, CURVE_SHARE)
    start = copy.deepcopy(program.model.state_dict())
    found = {name: losses(gpu, program, start, name) for name in WAYS}
    return found | {"float32, again": losses(gpu, program, start, "float32")}


def losses(gpu: Gpu, program: Training, start: Any, name: str) -> list[float]:
    torch = gpu.torch
    program.model.load_state_dict(start)
    program.optimizer = torch.optim.Adam(program.model.parameters(), lr=CURVE_RATE)
    with way(gpu, name):
        found = [program.step(program.model).detach() for _ in range(CURVE_STEPS)]
        return [float(loss) for loss in torch.stack(found)]
