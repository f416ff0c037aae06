"""A warp that exceeds its instruction budget is stopped on both tiers, and soon."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import pytest
from machine import needs_native, sample
from snippets import ptx

from gemmlab.emulator import Run, run
from gemmlab.emulator.execution.machine import Machine
from gemmlab.emulator.native import compiler, faults
from gemmlab.emulator.native.code import Code
from gemmlab.emulator.native.core import Core
from gemmlab.emulator.native.layout import WARP_STATE, view
from gemmlab.errors import BudgetError

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
    monkeypatch.setattr(compiler, "EFFORT", 0)
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
