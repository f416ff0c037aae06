"""Warp participation: each planted bug is found at its line; correct kernels have no findings."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import gemmlab
from gemmlab.emulator import run
from gemmlab.emulator.checks import CHECKS, Finding

HERE = Path(__file__).parent
Check = Callable[..., tuple[Finding, ...]]


class Case(NamedTuple):
    path: Path
    name: str
    threads: int
    num_arrays: int
    kind: str | None  # the expected kind
    line: int


def cases(name: str) -> list[Case]:
    found: list[Case] = []
    path = HERE / name
    for number, text in enumerate(path.read_text().splitlines(), 1):
        if head := re.match(r"KERNEL (\w+)\((.*?)\)", text):
            threads = re.search(r"// (\d+) threads", text)
            count = int(threads[1]) if threads else 64
            found.append(Case(path, head[1], count, head[2].count(",") + 1, None, 0))
        if mark := re.search(r"// expect: (.*)", text):
            found[-1] = found[-1]._replace(kind=mark[1], line=number)
    return found


@pytest.fixture(scope="module")
def check() -> Check:
    """Check one file, compiled once."""
    texts: dict[Path, str] = {}

    def start(case: Case, order: str | int = "in-order") -> tuple[Finding, ...]:
        if case.path not in texts:
            texts[case.path] = str(gemmlab.load(case.path, entry=case.name).ptx)
        arrays = [np.zeros(256, np.int32), np.arange(256, dtype=np.int32) * 7 % 32]
        geometry = (1, 1, 1), (case.threads, 1, 1)
        args = arrays[: case.num_arrays]
        how: dict[str, Any] = {"check": "all", "max_instructions": 5000, "order": order}
        return run(texts[case.path], case.name, *geometry, args, **how).findings

    return start


@pytest.mark.parametrize("case", cases("planted_warps.cu"), ids=lambda case: case.name)
def test_planted(case: Case, check: Check) -> None:
    found = check(case)
    assert found, "nothing found"
    (first,) = [
        f for f in found if f.kind == case.kind and str(f.site.source).endswith(f":{case.line}")
    ][:1]
    assert first.threads and first.block == (0, 0, 0)


@pytest.mark.parametrize("case", cases("right_warps.cu"), ids=lambda case: case.name)
@pytest.mark.slow
def test_right(case: Case, check: Check) -> None:
    assert case.kind is None and check(case) == ()


@pytest.mark.parametrize("order", ["reversed", 0, 1])
@pytest.mark.slow
def test_checks_in_other_orders(check: Check, order: str | int) -> None:
    """With warps at different positions, one warp's use of a register does not affect the
    others."""
    for case in cases("planted_warps.cu")[::4]:
        assert case.kind in {f.kind for f in check(case, order)}, case.name
    for case in cases("right_warps.cu")[::4]:
        assert check(case, order) == (), case.name


def test_messages(check: Check) -> None:
    messages = {
        "mask_of_another_lane": "lanes 1 to 31 at __shfl_xor_sync: mask 0x1 excludes them",
        "masks_overlap": "mask 0x1ffff includes lane 16, where the mask is 0xffff0000",
        "shuffle_in_half_a_warp": "includes lanes 16 to 31, which took another path and exited",
        "shuffle_before_a_barrier": "mask 0xffffffff includes lanes 16 to 31, which wait elsewhere",
        "lane_outside_mask": "the value comes from lanes 16 to 31, which mask 0xffff does not "
        "include; it is stored to global memory at line 152: include them in the mask",
        "leader_has_exited": "the value comes from lane 0, which does not participate",
        "wmma_by_16_threads": "it requires a full warp (lanes 16 to 31 of the warp: not in ",
        "setmaxnreg_beyond_the_block": "take 65536 registers, of 64512 that they start with",
        "wgmma_by_three_warps": "a full warpgroup; warps 0 to 3 ran it 1, 1, 1, 0 times",
    }
    for case in cases("planted_warps.cu"):
        if case.name in messages:
            first = next(f for f in check(case) if f.kind == "warp participation")
            assert messages.pop(case.name) in first.message
    assert not messages and CHECKS["warps"] == ("warp participation",)
