"""All launches of a product: their kernels, their memory, and their results."""

from __future__ import annotations

from collections.abc import Callable

import emulation
import numpy as np
import pytest

from gemmlab.kernels.gemm.sm90.config import TileConfig
from gemmlab.linalg.planned import Counts
from gemmlab.linalg.planning import plan, program
from gemmlab.linalg.planning.plan import REPORT_BYTES, STATUS_BYTES, Packed, PlannedLaunch
from gemmlab.linalg.planning.program import Factor, Job, Source, WorkspaceAddresses
from gemmlab.linalg.planning.tiers import Choice
from gemmlab.linalg.shapes import Stack

U = 2.0**-24
BY_DEFAULT = Choice("fp16x3", "", "bf16x6")
ALONE = Choice("fp16x3", "requested")


def job(
    choice: Choice,
    m: int,
    n: int,
    k: int,
    batch: int = 1,
    kept: tuple[int | None, ...] = (None,) * 2,
) -> Job:
    """a (batch, m, k) times one b (k, n), both row-major."""
    a, b = Stack(m, k, k, 1, batch, m * k if batch > 1 else 0), Stack(k, n, n, 1)
    c = Stack(m, n, n, 1, batch, m * n if batch > 1 else 0)
    left = Factor("a", a.operand(), choice.tier, choice.fallback, kept[0])
    right = Factor("b", b.transposed.operand(), choice.tier, choice.fallback, kept[1])
    return Job(left, right, c, choice)


def kernels(launches: tuple[PlannedLaunch, ...]) -> list[str]:
    return [launch.kernel for launch in launches]


def test_by_default_the_gpu_may_choose() -> None:
    launches = job(BY_DEFAULT, 300, 200, 100).launches(
        WorkspaceAddresses(1 << 20, 2 << 20, 3 << 20), 132
    )
    again = ["repack", "multiply_packed"]
    assert kernels(launches) == [
        "pack_k_major",
        "pack_mn_major",
        "multiply_packed",
        *again,
        "repair_non_finite",
    ]
    first, last = (x for x in launches if x.kernel == "multiply_packed")
    assert first.args["most_risk"] + 1 == last.args["least_risk"]  # exactly one of them computes
    assert first.args["least_risk"] == 0 and last.args["most_risk"] == 2**64 - 1


def test_a_tier_asked_for_is_the_only_one() -> None:
    launches = job(ALONE, 300, 200, 100).launches(
        WorkspaceAddresses(1 << 20, 2 << 20, 3 << 20), 132
    )
    assert kernels(launches) == [
        "pack_k_major",
        "pack_mn_major",
        "multiply_packed",
        "repair_non_finite",
    ]


def test_a_packed_operand_is_not_split_and_not_cleared() -> None:
    kept = 7 << 20
    launches = job(BY_DEFAULT, 300, 200, 100, kept=(None, kept)).launches(
        WorkspaceAddresses(0, 128, 256), 132
    )
    assert kernels(launches) == [
        "pack_k_major",
        "multiply_packed",
        "repack",
        "multiply_packed",
        "repair_non_finite",
    ]
    assert launches[-1].args["clear"] == 1  # clears the counts of a alone
    assert all(
        kept in launch.args.values() for launch in launches if launch.kernel != "pack_k_major"
    )
    last = launches[-2]
    assert last.maps[1].address < kept  # the parts for the fallback are in the workspace


def test_sources_are_the_callers_arrays_and_no_others() -> None:
    launches = job(BY_DEFAULT, 30, 20, 10, batch=3).launches(
        WorkspaceAddresses(1 << 20, 2 << 20, 3 << 20), 132
    )
    named = [{x.name for x in launch.args.values() if isinstance(x, Source)} for launch in launches]
    assert named == [{"a"}, {"b"}, {"c"}, {"a", "b"}, {"c"}, {"a", "b", "c"}]


@pytest.mark.parametrize("batch", [1, 3])
def test_workspaces_hold_the_larger_of_both_splits(batch: int) -> None:
    wanted = job(BY_DEFAULT, 300, 200, 100, batch)
    parts = 2 * 3 * 300 * 128 * batch
    assert parts <= wanted.left.workspace <= parts + 2 * 4 * 512 * batch + 1024
    assert job(ALONE, 300, 200, 100, batch, kept=(64, None)).left.workspace == 0


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> emulation.DeviceImage:
    """Emulated memory, and small tiles, because the emulator is slow."""

    def small(product: plan.Product, a: Packed, b: Packed, sms: int) -> TileConfig:
        majors = ["k" if packed.k_major else "mn" for packed in (a, b)]
        return TileConfig(a.scheme, majors[0], majors[1], 64, 64, 4, 1)

    monkeypatch.setattr(plan, "choose_tile", small)
    return emulation.DeviceImage()


def narrow(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.standard_normal(shape).astype("f4")


def one_wide(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """One huge element makes the first row and the first column wide."""
    x = narrow(rng, shape)
    x[0, 0] = 1e10
    return x


def all_wide(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return narrow(rng, shape) * 2.0 ** -rng.integers(0, 61, shape).astype("f4")


@pytest.mark.parametrize(
    ("make", "batch", "wide"),
    [(narrow, 1, 0), (one_wide, 1, 1), (all_wide, 1, 19), (one_wide, 3, 1)],
)
@pytest.mark.slow
def test_the_product_is_float32_accurate_on_the_emulator(
    memory: emulation.DeviceImage,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[np.random.Generator, tuple[int, int]], np.ndarray],
    batch: int,
    wide: int,
) -> None:
    """From arrays to C through all launches of the default; wide rows run in bfloat16."""
    monkeypatch.setattr(program, "tolerated", lambda elements: 200)
    m, n, k = 20, 24, 40
    rng = np.random.default_rng(1)
    a, b = make(rng, (batch * m, k)).reshape(batch, m, k), narrow(rng, (k, n))
    b[0] = 0
    a[0, 3, 5] = np.inf
    c = np.full((batch, m, n), np.nan, np.float32)
    wanted = job(BY_DEFAULT, m, n, k, batch)
    at = {name: memory.place(array) for name, array in (("a", a), ("b", b), ("c", c))}
    sizes = (wanted.left.workspace, wanted.right.workspace, REPORT_BYTES)
    spaces = [np.zeros(size, np.uint8) for size in sizes]
    launches = wanted.launches(
        WorkspaceAddresses(*(memory.place(space) for space in spaces)), sms=2
    )
    for launch in program.placed(launches, at):
        memory.run(launch)

    exact, size = (x(a).astype(float) @ x(b).astype(float) for x in (np.asarray, np.abs))
    finite = np.isfinite(size)
    assert finite.sum() == (batch * m - 1) * n
    assert (np.abs(c[finite] - exact[finite]) <= 4 * U * size[finite]).all()
    assert np.array_equal(c[~finite], exact[~finite], equal_nan=True)
    risk, not_finite, _ = (int(x) for x in spaces[2].view(np.uint64))
    assert Counts.of(risk, not_finite)[1:] == (wide, 1)
    assert (risk > wanted.most_risk) == (wide > 0)
    assert not any(space[:STATUS_BYTES].any() for space in spaces[:2])
