"""What the page on the emulator says of its speed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.emulator.launches import COMPILED, NAIVE, SIMULATOR, TILED, Timing, Way
from benchmarks.record import Row
from gemmlab.report.markdown import table


def speed(record: Row) -> dict[str, str]:
    rows = [result.row() for result in results(record)]
    return {"speed": table(["what", "measured", "goal"], rows)}


@dataclass(frozen=True)
class Result:
    what: str
    value: float
    unit: str  # "s", or "" for a ratio
    goal: float
    least: bool  # whether the goal is a minimum or a maximum

    def row(self) -> tuple[str, str, str]:
        unit, sign = f" {self.unit}" if self.unit else "×", "≥" if self.least else "≤"
        goal = f"{sign} {self.goal:,g}{unit}"
        return self.what, f"{_three(self.value)}{unit}", goal


def _three(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def results(record: Row) -> Iterator[Result]:
    """Times and ratios, with what each of them should be."""
    timings = [Timing.read(row) for row in record["timings"]]
    compiling = record["compiling"][COMPILED]
    most = max(t.way.threads for t in timings if t.way.tier == "native")
    by_way = {(t.kernel, t.size[0], t.way): t for t in timings}

    def seconds(kernel: str, n: int, tier: str, threads: int = 1) -> float:
        return by_way[kernel, n, Way(tier, threads)].seconds

    def wall(kernel: str, threads: int) -> float:
        return by_way[kernel, 1024, Way("native", threads)].wall_s

    for kernel, goal in ((TILED, 0.3), (NAIVE, 0.8)):
        one = seconds(kernel, 1024, "native")
        yield Result(f"`{kernel}` 1024³, one thread", one, "s", goal, False)
        if most > 1:
            speedup = wall(kernel, 1) / wall(kernel, most)
            yield Result(f"`{kernel}` 1024³, two threads: faster", speedup, "", 1.6, True)
    large = seconds(TILED, 4096, "native", most)
    name = "two threads" if most > 1 else "one thread"
    yield Result(f"`{TILED}` 4096³, {name}", large, "s", 10, False)
    what = f"compile {compiling['instructions']} instructions"
    yield Result(what, compiling["cold_s"], "s", 1.5, False)
    yield Result("load them, compiled before", compiling["warm_s"], "s", 0.02, False)
    for t in timings:
        if t.way.tier == SIMULATOR:
            for tier, words, goal in (("numpy", "NumPy tier", 200), ("native", "native", 5000)):
                ratio = t.seconds / seconds(t.kernel, t.size[0], tier)
                yield Result(f"{words} against Numba's simulator", ratio, "", goal, True)
