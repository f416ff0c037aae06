"""A warp that exceeds its instruction budget is stopped on both tiers, and soon."""

from __future__ import annotations

import re
import time
from typing import NoReturn

import numpy as np
import pytest
from machine import needs_native, sample
from snippets import ptx

from gemmlab.emulator import Run, run
from gemmlab.emulator.execution.machine import Machine
from gemmlab.emulator.native import faults
from gemmlab.emulator.native import launch as native_launch
from gemmlab.emulator.native.code import Code
from gemmlab.emulator.native.core import Core
from gemmlab.emulator.native.layout import WARP_STATE, view
from gemmlab.errors import BudgetError, EmulationError

COUNT_DOWN = "L: sub.u32 %r2, %r2, 1;\nsetp.ne.u32 %p1, %r2, 0;\n@%p1 bra L;"
SUMS = "add.u32 %r2, %r2, 1;\n" * 40
# The code of each of three warps, and the number of instructions of the busiest one; 0 if it never
# ends.
BODIES = {
    "loop": (f"mov.u32 %r2, 100;\n{COUNT_DOWN}", 304),
    "lanes that part": (f"add.u32 %r2, %r1, 1;\n{COUNT_DOWN}", 292),
    "one warp of three": (
        f"mov.u32 %r2, 99;\nsetp.lt.u32 %p1, %r1, 64;\n@%p1 bra OUT;\n{COUNT_DOWN}\nOUT:",
        303,
    ),
    "no loop": (f"{SUMS}bra.uni A;\nA: {SUMS}", 84),
    "barriers": (
        "mov.u32 %r2, 50;\nL: bar.sync 0;\nsub.u32 %r2, %r2, 1;\n"
        "setp.ne.u32 %p1, %r2, 0;\n@%p1 bra L;",
        204,
    ),
    "in step": (
        "mov.u32 %r2, 50;\nL: atom.global.inc.u32 %r3, [%q0], 7;\n"
        "sub.u32 %r2, %r2, 1;\nsetp.ne.u32 %p1, %r2, 0;\n@%p1 bra L;",
        204,
    ),
    "endless": ("L: add.u32 %r2, %r2, 1;\nbra L;", 0),
    "less than a time slice": (f"mov.u32 %r2, 3000;\n{COUNT_DOWN}", 9004),
}


def launch(body: str, budget: int, tier: str) -> Run:
    text = ptx(f"ld.param.u64 %q0, [p0];\nmov.u32 %r1, %tid.x;\n{body}\nret;", ["u64"])
    x, grid, block = np.zeros(1, np.uint32), (2, 1, 1), (96, 1, 1)
    return run(text, "k", grid, block, [x], tier=tier, max_instructions=budget)


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the instructions that native warps had executed when they were stopped."""
    counts, stop = list[int](), faults._over_budget

    def watched(machine: Machine, code: Code, core: Core) -> NoReturn:
        executed = view(core.warp(core["warp"]), WARP_STATE["executed"], np.int64)
        counts.append(int(executed[0]))
        stop(machine, code, core)

    monkeypatch.setattr(faults, "_over_budget", watched)
    return counts


@needs_native
@pytest.mark.parametrize("name", sample(BODIES))
def test_both_tiers_stop_at_the_same_budgets(name: str, stopped: list[int]) -> None:
    body, most = BODIES[name]
    for budget in (10, 60, 1000, most - 1):
        if 0 <= budget < (most or 10_000):
            sites = []
            for tier in ("numpy", "native"):
                with pytest.raises(BudgetError, match=f"more than {budget:,} instr") as error:
                    launch(body, budget, tier)
                sites.append(error.value.site)
            assert sites[0] == sites[1] or name == "no loop"
            # Four iterations of a loop, or the straight-line code of a time slice.
            assert budget < stopped[-1] <= budget + 90
    if most:
        for tier in ("numpy", "native"):
            assert launch(body, most, tier).tier == tier


# Loops that change memory forever, so that no state repeats: in blocks that cannot wait for each
# other, in blocks that might, and in one warp of three.
CHANGING = {
    "alone": "L: add.u32 %r2, %r2, 1;\nst.global.u32 [%q0], %r2;\nbra L;",
    "together": "L: atom.global.add.u32 %r2, [%q0], 1;\nbra L;",
    "one warp": "setp.lt.u32 %p1, %r1, 64;\n@%p1 bra OUT;\n"
    "L: atom.global.add.u32 %r2, [%q0], 1;\nbra L;\nOUT:",
}


@needs_native
@pytest.mark.slow
@pytest.mark.parametrize("check", [None, "all"])
@pytest.mark.parametrize("name", CHANGING)
def test_a_loop_that_changes_memory_is_named_soon(
    name: str, check: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a grid of 1024 blocks, 32 of which run in turn, 10 million instructions per warp would
    take a minute."""
    monkeypatch.setattr(native_launch, "PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(native_launch, "PART", 200)
    monkeypatch.setattr("gemmlab.emulator.tiers.LONG_SECONDS", 0.2)
    monkeypatch.setattr("gemmlab.emulator.checks.launch.LONG_SECONDS", 0.2)
    ended = "no block has ended|more than 10,000,000"
    text = ptx(f"ld.param.u64 %q0, [p0];\nmov.u32 %r1, %tid.x;\n{CHANGING[name]}\nret;", ["u64"])
    start = time.thread_time()
    grid, block, x = (1024, 1, 1), (96, 1, 1), [np.zeros(1, np.uint32)]
    if check is None:
        with pytest.raises(BudgetError, match=f"({ended}).* in this loop"):
            run(text, "k", grid, block, x)
    else:
        found = run(text, "k", grid, block, x, check=check).findings[-1]
        assert found.kind == "never ends" and re.search(ended, found.message)
        assert found.site is not None
        assert found.site.ptx_line == text.splitlines().index("bra L;") + 1
    assert time.thread_time() - start < 5


@needs_native
def test_a_larger_budget_lifts_the_limit_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_launch, "PATIENCE_SECONDS", 0)
    body = f"mov.u32 %r2, 500000;\n{COUNT_DOWN}"
    with pytest.raises(BudgetError, match="no block has ended"):
        launch(body, 10_000_000, "native")
    assert launch(body, 10_000_001, "native").tier == "native"


@needs_native
def test_compilation_is_not_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long kernel is optimized while a block of it runs; the optimization may take longer."""

    def optimize(_code: Code, _seconds: float) -> None:
        begun = time.thread_time()
        while time.thread_time() - begun < 0.1:
            pass

    monkeypatch.setattr(native_launch, "PATIENCE_SECONDS", 0.09)
    monkeypatch.setattr(Code, "has_run", optimize)
    body = f"mov.u32 %r2, 3000;\n{COUNT_DOWN}"  # more than one time slice
    assert launch(body, 9004, "native").tier == "native"


@pytest.mark.parametrize("tier", ["numpy", pytest.param("native", marks=needs_native)])
def test_a_grid_of_any_size_starts_at_once(tier: str) -> None:
    """Memory for the numbers of all its chunks would not suffice."""
    grid = (2**31 - 1, 65535, 65535)
    with pytest.raises(EmulationError, match="trap"):
        run(ptx("trap;\nret;", []), "k", grid, (1024, 1, 1), [], tier=tier)
