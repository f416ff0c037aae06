"""Contenders of a product, timed in turn by all processes of a mesh: the rows of a record.

Times are medians of several runs, each of some calls in a row, started together, of the slowest
process. The contenders run in turn and equally long, with rests between, because GPUs lower their
clocks at their limit of power. The clock of each run is recorded, too.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from gemmlab.core.packages import TORCH
from gemmlab.distributed import links
from gemmlab.problems.problem import U

with TORCH.importing():
    import torch
    import torch.distributed as dist
    from torch import Tensor
    from torch.distributed.tensor import DTensor

TURNS, WARM = 7, 4  # the last run that warms up replays graphs, if later ones do
# Calls in a row, as a program makes them: the host prepares one while the GPU runs another. Runs
# take at least so long, and as long as one call of the first contender. Fewer turns of a product
# that takes long, but the least.
CALLS, RUN_S, REST_S = 1024, 0.02, 0.03
LEAST_TURNS, LONG_S = 3, 1.0
BASELINE = "one process"
SAMPLES, BLOCK = 64, 4096  # rows of the result that are compared with float64, at so many columns


class Run(NamedTuple):
    """Seconds of a call, of several in a row; and the clock in hertz, or None on the host."""

    seconds: float
    clock: float | None


class Contenders:
    """The rows measured so far; process 0 writes them."""

    def __init__(self, device: str, path: Path) -> None:
        self.size, self.rank = dist.get_world_size(), dist.get_rank()
        self.device, self.path = torch.device(device), path
        self.rows: list[dict[str, Any]] = []
        self.run_s, self.rest_s = (RUN_S, REST_S) if device == "cuda" else (0.0, 0.0)
        self.machine = links.current(torch.cuda.get_device_name() if device == "cuda" else "")
        self.points: dict[str, Any] = {}  # what the machine is fitted to
        self.alone: dict[tuple[int, int, int], float] = {}  # seconds of one GPU
        self._counters: Any = None

    # -- times

    def once(self, call: Callable[[], Any], calls: int) -> Run:
        """A run of several calls in a row, on the slowest process; all start together."""
        run = self._on_gpu(call, calls) if self.device.type == "cuda" else _on_host(call, calls)
        mine = torch.tensor([run.seconds, run.clock or 0.0], device=self.device)
        every = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(every, mine)
        seconds, clock = max(map(torch.Tensor.tolist, every))
        return Run(seconds, clock or None)

    def _on_gpu(self, call: Callable[[], Any], calls: int) -> Run:
        from gemmlab.distributed import clocks  # imports the driver's bindings

        if self._counters is None:
            self._counters = clocks.Counters()
        torch.cuda.synchronize()
        time.sleep(self.rest_s)
        dist.barrier()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        before = self._counters.read()
        start.record()
        for _ in range(calls):
            call()
        end.record()
        after = self._counters.read()
        torch.cuda.synchronize()
        seconds = start.elapsed_time(end) / 1e3
        return Run(seconds / calls, clocks.mean(before, after, seconds))

    def compare(
        self,
        case: str,
        shape: tuple[int, int, int],
        contenders: dict[str, Callable[[], Any]],
        operands: tuple[Tensor, Tensor] | None = None,
        plans: dict[str, Any] | None = None,
        products: int = 1,
    ) -> None:
        """Time contenders in turn; one that fails on any process is a row that says so.

        `operands` are the whole matrices, of whose product some rows are compared with float64.
        """
        runs: dict[str, list[Run]] = {name: [] for name in contenders}
        failed: dict[str, str] = {}
        errors: dict[str, float | None] = dict.fromkeys(contenders)
        calls = dict.fromkeys(contenders, 1)  # the first run also prepares
        length = self.run_s
        for turn in range(WARM + TURNS):
            for name, call in contenders.items():
                if name in failed or self.suffices(runs[name], calls[name]):
                    continue
                try:
                    run = self.once(call, calls[name])
                    if not turn and operands is not None:
                        errors[name] = self.error(call(), *operands)
                except Exception as error:
                    failed[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
                    continue
                if turn >= WARM:
                    runs[name].append(run)
                elif turn:
                    if name == BASELINE:
                        length = max(self.run_s, run.seconds)
                    calls[name] = self.calls(run.seconds, length)
        m, n, k = shape
        for name in contenders:
            row: dict[str, Any] = {"case": case, "shape": shape, "by": name}
            if name in failed:
                row["failed"] = failed[name]
            else:
                seconds, plan = _median(runs[name]).seconds, (plans or {}).get(name)
                alone = self.alone.get(shape)
                count = 1 if name == BASELINE else self.size
                if name == BASELINE:
                    alone = self.alone[shape] = seconds
                row |= {
                    "seconds": seconds,
                    "clock": _median(runs[name]).clock,
                    "speed": 2 * m * n * k * products / seconds,
                    "efficiency": products * alone / seconds / count if alone else None,
                    "predicted": plan.total if plan else None,
                    "overlap": str(plan.overlap) if plan else None,
                    "error": errors[name],
                }
            self.rows.append(row)
        self.write()

    def error(self, found: Any, a: Tensor, b: Tensor) -> float:
        """The largest error of some rows of a result, in u of |A||B|; of all processes together."""
        whole = found.full_tensor() if isinstance(found, DTensor) else found
        first = 0
        if whole.shape[0] != a.shape[0]:  # this process's rows
            first = self.rank * -(-a.shape[0] // self.size)
        count = min(SAMPLES, whole.shape[0])
        rows = torch.linspace(0, whole.shape[0] - 1, count, device=self.device).long()
        left = a[first + rows].double()
        worst = torch.zeros(1, device=self.device)
        # In blocks of columns: b in float64 would take as much memory as all else.
        for columns, exact in zip(whole[rows].split(BLOCK, 1), b.split(BLOCK, 1), strict=True):
            right = exact.double()
            errors = (columns - left @ right).abs() / (left.abs() @ right.abs())
            worst = worst.maximum(errors.max().float() / U)
        dist.all_reduce(worst, op=dist.ReduceOp.MAX)
        return float(worst)

    def write(self) -> None:
        """Write the record so far: a run that is cut off keeps it."""
        if self.rank:
            return
        name = torch.cuda.get_device_name() if self.device.type == "cuda" else "CPU"
        record = {
            "processes": self.size,
            "device": name,
            "pytorch": torch.__version__,
            "machine": asdict(self.machine),
            "points": self.points,
            "rows": self.rows,
        }
        self.path.write_text(json.dumps(record, indent=2) + "\n")

    @staticmethod
    def suffices(runs: Sequence[Run], calls: int) -> bool:
        """Whether a contender has been timed often enough. The same on all processes."""
        return len(runs) >= LEAST_TURNS and sum(run.seconds for run in runs) * calls > LONG_S

    @staticmethod
    def calls(seconds: float, length: float) -> int:
        """The calls in a row of a run of this length, if one takes so long."""
        return min(max(int(length / seconds), 1), CALLS)

    def typical(self, call: Callable[[], Any]) -> float:
        """The median of several runs, in seconds."""
        self.once(call, 1)
        calls = self.calls(self.once(call, 1).seconds, self.run_s)
        runs: list[Run] = []
        while len(runs) < TURNS and not self.suffices(runs, calls):
            runs.append(self.once(call, calls))
        return _median(runs).seconds


def _median(runs: Sequence[Run]) -> Run:
    clocks = [run.clock for run in runs if run.clock is not None]
    seconds = statistics.median(run.seconds for run in runs)
    return Run(seconds, statistics.median(clocks) if clocks else None)


def _on_host(call: Callable[[], Any], calls: int) -> Run:
    dist.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return Run((time.perf_counter() - start) / calls, None)
