"""Launches and compilation, timed on this machine's processors."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np

from benchmarks.gpu import Gpu
from benchmarks.record import Row
from gemmlab import problems
from gemmlab.compile.cute import compile_rung
from gemmlab.emulator.execution.grid import execute as execute_numpy
from gemmlab.emulator.execution.schedule import Order
from gemmlab.emulator.launch.launch import Launch
from gemmlab.emulator.native import code, compiler, fused
from gemmlab.emulator.native.launch import execute, host_threads
from gemmlab.emulator.run import prepare
from gemmlab.emulator.translation.translate import translate
from gemmlab.kernels import ladder
from gemmlab.ptx import parser

NUMBA = Path(__file__).with_name("numba_naive.py")
NUMBA_SIZE = (256, 256, 16)  # M, N, K: takes the simulator ten seconds
TILED, NAIVE, COMPILED = "float4", "naive", "tile-2d-4x4-bk32"
SIMULATOR = "Numba's simulator"
PACKAGES = ("numpy", "llvmlite", "numba-cuda", "numba")


@dataclass(frozen=True)
class Way:
    """The tier, and the number of host threads."""

    tier: str
    threads: int = 1


@dataclass(frozen=True)
class Timing:
    kernel: str
    size: tuple[int, ...]  # M, N, K
    way: Way
    wall_s: float
    processor_s: float

    @classmethod
    def read(cls, row: Row) -> Timing:
        return cls(**row | {"size": tuple(row["size"]), "way": Way(**row["way"])})

    @property
    def seconds(self) -> float:
        return self.processor_s if self.way.threads == 1 else self.wall_s


def head(gpu: Gpu) -> Row:
    """The processor and the versions; no GPU has a part in it."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "processor": compiler.host()[0],
        "processors": host_threads(),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        **found,
    }


def timings(gpu: Gpu) -> Iterator[Row]:
    most = min(2, host_threads())
    for measured in (time_gemms(most), time_numba()):
        for timing in measured:
            yield asdict(timing) | {"size": list(timing.size)}


def shortest(runs: Sequence[Callable[[], object]], repeats: int) -> list[tuple[float, float]]:
    """Wall-clock and processor seconds of each, run in turns."""
    best = [(math.inf, math.inf)] * len(runs)
    for _ in range(repeats):
        for k, run in enumerate(runs):
            wall, processor = time.perf_counter(), time.process_time()
            run()
            took = time.perf_counter() - wall, time.process_time() - processor
            best[k] = min(best[k][0], took[0]), min(best[k][1], took[1])
    return best


@dataclass(frozen=True)
class Case:
    """A kernel with its arguments."""

    kernel: str
    size: tuple[int, ...]
    ptx: str
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: Sequence[object]

    def time(self, ways: Sequence[Way], repeats: int) -> list[Timing]:
        launch = prepare(self.ptx, self.entry, self.grid, self.block, self.args).launch
        runs = [self._run(launch, way) for way in ways]
        for run, way in zip(runs, ways, strict=True):
            if way.tier == "native":
                run()  # compiles the slow functions it needs
        found = shortest(runs, repeats)
        return [Timing(self.kernel, self.size, w, *t) for w, t in zip(ways, found, strict=True)]

    def _run(self, launch: Launch, way: Way) -> Callable[[], object]:
        if way.tier == "numpy":
            fused.executed(fused.WORTH + 1)  # as in a process that has run for a while
            return lambda: execute_numpy(launch, order=Order("in-order"))
        compiled = code.code_of(launch.program, self.block[0] % 32 == 0)
        return lambda: execute(launch, compiled, way.threads)


def gemm(name: str, n: int) -> Case:
    """A rung on square matrices."""
    problem, rung = problems.find("gemm"), ladder.find(name, None, "gemm")
    case = problem.case(dict.fromkeys(problem.axes, n), rung.layout, "normal", 0)
    given = dict(case.buffers) | dict(case.scalars)
    given[case.output] = np.zeros(case.output_size, case.output_dtype)
    artifact = compile_rung(rung, "sm_90a")
    args = [given[parameter.name] for parameter in problem.parameters]
    grid, block, _ = rung.geometry(rung.config, case.shape)
    return Case(name, (n, n, n), artifact.ptx, artifact.entry, grid, block, args)


def time_gemms(most: int) -> Iterator[Timing]:
    for kernel in (TILED, NAIVE):
        yield from gemm(kernel, 1024).time([Way("native"), Way("native", most)], 7)
        yield from gemm(kernel, 256).time([Way("numpy"), Way("native")], 3)
    yield from gemm(TILED, 4096).time([Way("native", most)], 1)


def compiling(gpu: Gpu) -> dict[str, float]:
    """Seconds from PTX to code: with an empty cache, and with the object code on disk."""
    case = gemm(COMPILED, 256)
    code.runtime_library()

    def compile_it() -> None:
        code.Code(translate(case.ptx, case.entry), True)

    def translate_it() -> None:
        parser.MODULES.clear()
        translate(case.ptx, case.entry)

    with TemporaryDirectory() as folder, patch.dict(os.environ, GEMMLAB_CACHE=folder):
        found = {"translate_s": shortest([translate_it], 3)[0][1]}
        found["cold_s"] = found["translate_s"] + shortest([compile_it], 1)[0][1]
        found["warm_s"] = shortest([compile_it], 5)[0][1]
    found["instructions"] = len(translate(case.ptx, case.entry).function.instructions)
    return found


def time_numba() -> list[Timing]:
    """One kernel: in Numba's simulator, and its PTX, as Numba compiles it, on both tiers."""
    simulated = numba({"NUMBA_ENABLE_CUDASIM": "1"}, "simulate", *map(str, NUMBA_SIZE))
    made = numba({}, "compile")
    if simulated is None or made is None:
        return []
    rng = np.random.default_rng(0)
    m, n, k = NUMBA_SIZE
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    arrays = [x.astype(np.float32) for x in (a, b, np.zeros((m, n)))]
    args = [x for array in arrays for x in numba_array(array)]
    grid, block = (n // 16, m // 16, 1), (16, 16, 1)
    case = Case("Numba's naive", NUMBA_SIZE, made["ptx"], made["entry"], grid, block, args)
    simulator = Way(SIMULATOR, math.prod(block))
    times = simulated["wall_s"], simulated["processor_s"]
    ours = case.time([Way("numpy"), Way("native")], 20)
    return [Timing(case.kernel, NUMBA_SIZE, simulator, *times), *ours]


def numba(environment: dict[str, str], *arguments: str) -> Row | None:
    """The output of numba_naive.py; None if Numba is not installed."""
    command = [sys.executable, str(NUMBA), *arguments]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    if done.returncode:
        print(f"without Numba: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    found: Row = json.loads(done.stdout)
    return found


def numba_array(array: np.ndarray) -> list[object]:
    """An array as Numba passes it: two unused pointers, sizes, data, shape and strides."""
    return [0, 0, array.size, array.itemsize, array, *array.shape, *array.strides]
