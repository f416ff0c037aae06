"""Products on compute capability 8.0: no tensor maps, no clusters, `mma.sync`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from emulation import DeviceImage

from gemmlab.errors import InputError
from gemmlab.kernels.gemm.sm80.config import WarpTileConfig
from gemmlab.kernels.gemm.sm90.config import BF16X6
from gemmlab.linalg.arch.architecture import Architecture
from gemmlab.linalg.arch.sm80 import SM80
from gemmlab.linalg.planning import plan, program, variants
from gemmlab.linalg.planning.launch import WorkspaceAddresses
from gemmlab.linalg.planning.plan import REPORT_BYTES
from gemmlab.linalg.planning.program import Factor, Job
from gemmlab.linalg.planning.tiers import Choice
from gemmlab.linalg.runtime import launches
from gemmlab.linalg.shapes import Operand, Stack

U = 2.0**-24
# With the narrower of its two tiles alone, whose kernels compile in half the time.
NARROW = replace(SM80, stages={64: 6}, step_clocks={64: 3000})


def job(m: int, n: int, k: int, choice: Choice, majors: tuple[bool, bool]) -> Job:
    left = Operand(m, k, majors[0], k if majors[0] else m)
    right = Operand(n, k, majors[1], k if majors[1] else n)
    a, b = (
        Factor(name, operand, choice.tier, choice.fallback, arch=choice.arch)
        for name, operand in zip("ab", (left, right), strict=True)
    )
    return Job(a, b, Stack(m, n, n, 1), choice)


def multiply(a: np.ndarray, b: np.ndarray, choice: Choice, majors: tuple[bool, bool]) -> np.ndarray:
    """C by all launches on the emulator, for two multiprocessors."""
    (m, k), n = a.shape, b.shape[1]
    memory, wanted = DeviceImage(), job(m, n, k, choice, majors)
    spaces = [np.full(max(size, 4), 0xFF, np.uint8) for size in wanted.sizes(2)]  # NaN
    left, right, totals, notes = (memory.place(space) for space in spaces)
    report = memory.place(np.zeros(REPORT_BYTES, np.uint8))
    c = np.full((m, n), np.nan, np.float32)
    arrays = {
        "a": np.ascontiguousarray(a if majors[0] else a.T),
        "b": np.ascontiguousarray(b.T if majors[1] else b),
        "c": c,
        "d": np.empty(1),
    }
    planned = wanted.launches(WorkspaceAddresses(left, right, report, totals, notes), sms=2)
    at = {name: memory.place(array) for name, array in arrays.items()}
    for launch in program.placed(planned, at):
        memory.run(launch)
    return c


@pytest.mark.parametrize(
    ("tier", "fallback", "arch", "majors", "first"),
    [
        ("fp16x3", "bf16x6", NARROW, (True, False), 1e10),  # the wide row and column: in bfloat16
        ("fp16x3", None, SM80, (False, True), 1.0),
    ],
    ids=["wide", "normal"],
)
@pytest.mark.slow
def test_products_are_float32_accurate_on_the_emulator(
    monkeypatch: pytest.MonkeyPatch,
    tier: str,
    fallback: str | None,
    arch: Architecture,
    majors: tuple[bool, bool],
    first: float,
) -> None:
    """With two tiles per block, two launches along k, and edges everywhere."""
    monkeypatch.setattr(plan, "_DEEPEST", 128)
    rng = np.random.default_rng(2)
    m, n, k = 130, 134, 150
    a, b = (rng.standard_normal(shape).astype("f4") for shape in ((m, k), (k, n)))
    a[0, 0] *= first
    a[7, 3] = np.inf
    c = multiply(a, b, Choice(tier, "", fallback, arch), majors)
    exact, size = a.astype(float) @ b.astype(float), np.abs(a).astype(float) @ np.abs(b)
    finite = np.isfinite(size)
    assert finite.sum() == (m - 1) * n
    assert (np.abs(c[finite] - exact[finite]) <= 4 * U * size[finite]).all()
    assert np.array_equal(c[~finite], exact[~finite], equal_nan=True)


def test_launches_need_nothing_of_hopper() -> None:
    for majors in ((True, True), (True, False), (False, True), (False, False)):
        wanted = job(300, 200, 5000, Choice("fp16x3", "", "bf16x6", SM80), majors)
        for launch in wanted.launches(WorkspaceAddresses(0, 0, 0), 108):
            assert launch.arch is SM80 and launch.maps == () and launch.cluster == 1
            assert launch.dynamic_smem <= 163 * 1024
            assert not launches._config(launch).attrs
    assert {code[0] for code in variants.kernels(SM80)} == SM80.kernels.keys()


@pytest.mark.parametrize(
    "wrong",
    [{"block_n": 192}, {"cluster": 2}, {"stages": 5}, {"scheme": BF16X6, "stages": 6}],
)
def test_impossible_tiles_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        WarpTileConfig(**wrong)  # type: ignore[arg-type]
