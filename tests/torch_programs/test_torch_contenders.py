"""Contenders are timed in turn and equally long; how clocks are taken from counters."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from gemmlab.distributed import clocks, contenders  # noqa: E402
from gemmlab.distributed.contenders import BASELINE, Contenders, Run  # noqa: E402


class Timed(Contenders):
    """Calls take the seconds that they return. The first two prepare, and take a hundred times."""

    def __init__(self, path: Path) -> None:
        super().__init__("cpu", path)
        self.run_s, self.rest_s = contenders.RUN_S, contenders.REST_S
        self.runs: list[tuple[float, int]] = []

    def once(self, call: Callable[[], Any], calls: int) -> Run:
        seconds = call()
        self.runs.append((seconds, calls))
        again = sum(one == seconds for one, _ in self.runs) > 2
        return Run(seconds if again else 100 * seconds, 1.5e9)


def test_runs_are_as_long_as_one_product_of_the_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    for alone, shared, calls in ((0.04, 0.01, 4), (0.004, 0.001, 20)):  # 0.02 s at least
        bench = Timed(tmp_path / "record.json")
        both: dict[str, Any] = {
            BASELINE: partial(float, alone),
            "gemmlab": partial(float, shared),
        }
        bench.compare("case", (8, 8, 8), both)
        assert bench.runs[-2:] == [(alone, max(1, round(0.02 / alone))), (shared, calls)]
        assert [one for one, _ in bench.runs[:4]] == [alone, shared] * 2  # in turn
        one, other = json.loads(bench.path.read_text())["rows"]
        assert (one["efficiency"], other["efficiency"], other["clock"]) == (1, 1, 1.5e9)


def test_the_clock_is_that_of_the_median_multiprocessor() -> None:
    first, last = torch.tensor([5, 100, 0, 7]), torch.tensor([3005, 3100, 50, 9007])
    assert clocks.mean(first, last, 2e-6) == 1.5e9  # one did not run the first reading
