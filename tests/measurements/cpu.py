"""The GPU of the measurements, with PyTorch's CPU tensors, gemmlab's emulator and a fake clock."""

from __future__ import annotations

import itertools
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np

import gemmlab
from benchmarks.gpu import Gpu
from gemmlab.devices.emulated import EmulatedDevice

FACTS = {"gpu": "a CPU", "driver": "none", "torch": "2", "triton": "3", "jax": "0.1"}


class Emulated(EmulatedDevice):
    facts = SimpleNamespace(sms=2)

    def clear(self, span: Any) -> None:
        span.buffer.write(np.zeros(span.nbytes, np.uint8), span.offset)

    def prepare(self, *launch: Any) -> Any:
        return lambda: self.launch(*launch)

    def timed(self, *launch: Any) -> Any:
        return lambda: self.measure(*launch)

    def measure(self, *launch: Any) -> float:
        self.launch(*launch)
        return 1e-3


class Cpu(Gpu):
    """Every call takes a microsecond, plus a nanosecond for each call before."""

    place = "cpu"

    def __init__(self) -> None:
        self._clock = itertools.count(1000)
        self._joules = itertools.count()
        self.log: list[str] = []  # "graph", "replay" and "call", in order

    @cached_property
    def device(self) -> Any:
        return Emulated("sm_90a")

    def facts(self) -> dict[str, Any]:
        return dict(FACTS)

    def state(self) -> dict[str, float]:
        return {"sm_mhz": 1980}

    def joules(self) -> float:
        return float(next(self._joules))

    def synchronize(self) -> None:
        pass

    def seconds(self, work: Any) -> float:
        self.log.append("replay" if isinstance(work, Graph) else "call")
        work()
        return 1e-9 * next(self._clock)

    def laps(self, work: Any, count: int) -> list[float]:
        work()
        return [self.seconds(work) for _ in range(count)]

    def busy(self, work: Any) -> float:
        return self.seconds(work)

    def wall(self, work: Any, wait: bool = True) -> float:
        return self.seconds(work)

    def graph(self, calls: Any) -> Graph:
        self.log.append("graph")
        return Graph(calls)

    def other_stream(self) -> None:
        return None


class Graph:
    def __init__(self, calls: Any) -> None:
        self.calls = list(calls)

    def __call__(self) -> None:
        for call in self.calls:
            call()


def without_tensor_cores(monkeypatch: Any) -> None:
    """Let gemmlab compute products by name and of packed operands on the host, too."""
    matmul, product = gemmlab.matmul, gemmlab.Matmul

    def by_name(a: Any, b: Any, c: Any = None, *, precision: Any = None, **options: Any) -> Any:
        return matmul(a, b, c, **options)

    monkeypatch.setattr(gemmlab, "matmul", by_name)
    monkeypatch.setattr(gemmlab, "Matmul", lambda a, b, out, precision: product(a, b, out=out))
    monkeypatch.setattr(gemmlab, "pack", lambda a, side, precision: a)
