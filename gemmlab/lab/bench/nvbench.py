"""Take samples with NVBench, through cuda-bench.

NVBench runs its registered benchmarks once per process, calls back for the work, and reports at the
end. Therefore all measurements of a process form one NVBench benchmark whose single axis is the
index of the step. The callback takes the next step from an iterator, which also does the work
between steps, such as judging and uploading.

Each step is NVBench's complete protocol: cold runs until its stopping criterion is met, each after
an L2 flush and behind a blocking kernel that waits until the work is enqueued; then batches of
back-to-back launches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gemmlab.core import scratch
from gemmlab.core.packages import NVBENCH
from gemmlab.errors import DeviceError
from gemmlab.lab.bench.protocol import Protocol
from gemmlab.lab.bench.statistics import Moments

_NAME = "gemmlab"
_AXIS = "Step"


@dataclass(frozen=True)
class Step:
    """One contender's turn: `launch` enqueues its work once."""

    launch: Callable[[], None]
    batched: bool = True
    synchronizes: bool = False


@dataclass(frozen=True)
class Sampled:
    """NVBench's results of one step. `batch_samples` is 0 if there was no batch."""

    gpu_s: np.ndarray  # one per cold run
    sm_mhz: np.ndarray  # one per cold run
    cpu: Moments  # seconds
    batch_samples: int
    batch_mean_s: float


Samples = Sequence[Sampled | None]  # one item per step


def sample(
    steps: Iterator[Step | None], count: int, stream: Any, protocol: Protocol
) -> tuple[list[Sampled | None], BaseException | None]:
    """Take `count` steps on a cuda.core stream. Works once per process.

    Returns the samples of each step, None for a step that is None or was not reached, and the
    exception that ended the measurement early, or None. The exception can come from the iterator or
    from a launch. Without one, the iterator is run to its end. Raises MissingDependencyError, and
    DeviceError if NVBench itself fails.
    """
    bench = _library()
    raised: list[BaseException] = []

    def turn(state: Any) -> None:
        if raised:
            state.skip("an earlier step failed")
            return
        try:
            step = next(steps)
            if step is None:
                state.skip("refused")
                return
            state.set_stream(stream)
            state.exec(
                lambda _: step.launch(),
                batched=step.batched and not step.synchronizes,
                sync=step.synchronizes,
            )
        except BaseException as error:
            raised.append(error)
            raise

    with scratch.folder() as folder:
        report = folder / "nvbench.json"
        bench.register(turn).set_name(_NAME).add_int64_axis(_AXIS, list(range(count)))
        options = ["--quiet", "--devices", "0", "--jsonbin", str(report)]
        try:
            bench.run_all_benchmarks([_NAME, *options, *protocol.nvbench_options()])
        except bench.NVBenchRuntimeError as error:
            raise DeviceError(f"NVBench: {error}") from error
        if not raised:
            try:
                next(steps, None)
            except BaseException as error:
                raised.append(error)
        return _read(report), raised[0] if raised else None


def _library() -> Any:
    bench: Any = NVBENCH.load()
    try:
        bench.NVBenchRuntimeError  # noqa: B018 - loads the extension module, which needs a driver
    except ImportError as error:
        raise NVBENCH.unusable(error) from error
    return bench


def _read(report: Path) -> list[Sampled | None]:
    from cuda.bench.results import BenchmarkResult

    return [_sampled(state) for state in BenchmarkResult.from_json(report)[_NAME]]


def _sampled(state: Any) -> Sampled | None:
    """Return a step's results; None if it was skipped or has no samples."""
    if state.is_skipped or not state.samples:
        return None
    values = {tag: summary.value for tag, summary in state.summaries.items()}
    noise = values.get("nv/cold/time/cpu/stdev/relative")
    if not (isinstance(noise, float) and math.isfinite(noise) and noise >= 0):
        noise = None  # too few samples
    percent = None if noise is None else 100 * noise
    gpu_s = np.asarray(state.samples, np.float64)
    return Sampled(
        gpu_s=gpu_s,
        sm_mhz=np.asarray(state.frequencies or [], np.float64) / 1e6,
        cpu=Moments(gpu_s.size, values["nv/cold/time/cpu/mean"], percent),
        batch_samples=values.get("nv/batch/sample_size") or 0,
        batch_mean_s=values.get("nv/batch/time/gpu/mean") or 0.0,
    )
