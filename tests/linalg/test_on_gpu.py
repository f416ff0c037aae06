"""Products on a GPU; skipped without one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gemmlab
from benchmarks import families
from gemmlab.errors import ArrayError, DTypeError
from gemmlab.linalg.arch import DEFAULT
from gemmlab.linalg.planning import fma, gemv, variants
from gemmlab.linalg.planning.tiers import Choice
from gemmlab.linalg.runtime import kernels
from gemmlab.problems.rounding import sum_bound_u

pytestmark = pytest.mark.gpu

U = 2.0**-24
PRECISIONS = ("fp16x3", "bf16x6", "tf32x3", "fma", "ieee", None)
UNPACKED = ("tf32x3", "fma", "ieee")


@pytest.fixture(params=["torch", "cupy"])
def library(request: pytest.FixtureRequest) -> Any:
    """A library of arrays that supports this GPU."""
    module = pytest.importorskip(request.param, reason=f"{request.param} is not installed")
    found = module.cuda.is_available()
    if not found:
        pytest.skip("there is no GPU")
    capability = (
        module.cuda.get_device_capability()
        if request.param == "torch"
        else tuple(map(int, module.cuda.Device().compute_capability))
    )
    if capability != (9, 0):
        pytest.skip(f"the GPU has compute capability {capability}, the kernels are for 9.0")
    return module


def arrays(library: Any, *shapes: tuple[int, ...]) -> list[tuple[Any, np.ndarray]]:
    """Normal numbers on the GPU, and the same numbers on the host in float64."""
    rng = np.random.default_rng(0)
    result = []
    for shape in shapes:
        values = rng.standard_normal(shape).astype(np.float32)
        array = library.asarray(values)
        result.append((array.cuda() if hasattr(array, "cuda") else array, values.astype(float)))
    return result


def on_host(array: Any) -> np.ndarray:
    return np.asarray(array.cpu().numpy() if hasattr(array, "cpu") else array.get())


def error(result: Any, a: np.ndarray, b: np.ndarray) -> float:
    """The largest error, in units of 2^-24 of |A||B|."""
    return float((np.abs(on_host(result) - a @ b) / (np.abs(a) @ np.abs(b))).max() / U)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    ("a", "b"), [((300, 257), (257, 130)), ((4, 70, 65), (65, 33)), ((65,), (3, 65, 40))]
)
def test_products_are_float32_accurate(
    library: Any, precision: str | None, a: tuple[int, ...], b: tuple[int, ...]
) -> None:
    (x, a64), (y, b64) = arrays(library, a, b)
    result = gemmlab.matmul(x, y, precision=precision)
    # Tensor cores add up few terms at a time; multiply-adds are held to half of the contract.
    adds = gemmlab.last_plan().tier in ("fma", "ieee")
    bound = sum_bound_u(a[-1]) / 2 if adds else 4
    assert type(result) is type(x) and error(result, a64, b64) <= bound


@pytest.mark.parametrize("precision", PRECISIONS)
def test_transposed_views_alpha_beta_and_out(library: Any, precision: str | None) -> None:
    (x, a), (y, b), (z, c) = arrays(library, (257, 300), (130, 257), (130, 300))
    out = z.T
    assert gemmlab.matmul(x.T, y.T, out, out=out, alpha=2, beta=-1, precision=precision) is out
    exact, size = 2 * (a.T @ b.T) - c.T, 2 * (np.abs(a.T) @ np.abs(b.T)) + np.abs(c.T)
    assert (np.abs(on_host(out) - exact) <= 4 * U * size).all()


@pytest.mark.parametrize("precision", ["fp16x3", "bf16x6", None])
def test_what_is_not_finite_comes_out_as_in_float32(library: Any, precision: str | None) -> None:
    (x, a), (y, b) = arrays(library, (2200, 2200), (2200, 2200))
    x[3, 5], y[7, 9] = float("inf"), float("nan")
    a[3, 5], b[7, 9] = np.inf, np.nan
    result = on_host(gemmlab.matmul(x, y, precision=precision))
    with np.errstate(invalid="ignore"):
        exact = a @ b
    assert np.array_equal(np.isnan(result), np.isnan(exact))
    assert np.array_equal(np.isinf(result), np.isinf(exact))
    assert gemmlab.last_plan().report().not_finite == 2


@pytest.mark.parametrize(("n", "fallback"), [(2048, "tf32x3"), (4096, "bf16x6")])
def test_wide_rows_go_to_another_tier_by_themselves(library: Any, n: int, fallback: str) -> None:
    (x, _), (y, b) = arrays(library, (n, n), (n, n))
    gemmlab.matmul(x, y)
    assert gemmlab.last_plan().report().tier == "fp16x3"
    x = x * x**32
    result = gemmlab.matmul(x, y)
    assert gemmlab.last_plan().report().tier == fallback
    plain = gemmlab.matmul(x, y, precision="ieee")
    exact = on_host(x).astype(float)
    assert error(result, exact, b) <= error(plain, exact, b)


@pytest.mark.parametrize(("wide", "tier", "doubtful"), [(8, "fp16x3", 8 * 2048), (9, "tf32x3", 0)])
def test_many_wide_rows_take_another_tier(
    library: Any, wide: int, tier: str, doubtful: int
) -> None:
    """All sums of a few are computed again."""
    (x, a), (y, b) = arrays(library, (8192, 1024), (1024, 2048))
    x[:wide, 0], y[0] = 1e10, 0
    a[:wide, 0], b[0] = 1e10, 0
    result = gemmlab.matmul(x, y)
    report = gemmlab.last_plan().report()
    assert (report.tier, report.wide, report.doubtful) == (tier, wide, doubtful)
    assert error(result[:16], a[:16], b) <= 4


@pytest.mark.parametrize(
    ("size", "tier"), [((2200, 1900, 3000), "fp16x3"), ((700, 620, 900), "tf32x3")]
)
@pytest.mark.parametrize("family", families.FAMILIES)
def test_every_family_keeps_the_contract(
    library: Any, family: str, size: tuple[int, int, int], tier: str
) -> None:
    """The judge's bound holds for each element, or twice the error of SGEMM."""
    m, n, k = size
    a, b = families.FAMILIES[family](np.random.default_rng(len(family)), m, n, k)
    x, y = (library.asarray(np.ascontiguousarray(array)) for array in (a, b))
    if hasattr(x, "cuda"):
        x, y = x.cuda(), y.cuda()
    for _ in range(2):  # what the first product leaves behind must not change the second
        result = on_host(gemmlab.matmul(x, y))
        assert gemmlab.last_plan().tier == tier
    exact, sizes = a.astype(float) @ b.astype(float), np.abs(a).astype(float) @ np.abs(b)
    plain = on_host(gemmlab.matmul(x, y, precision="ieee"))
    allowed = np.maximum(sum_bound_u(k) * U * sizes, 2 * np.abs(plain - exact))
    assert (np.abs(result - exact) <= allowed).all()


@pytest.mark.parametrize("k", [257, 4200])  # for large k, a and b are packed differently
def test_a_packed_operand_gives_the_same_bits(library: Any, k: int) -> None:
    (x, a), (y, b) = arrays(library, (300, k), (k, 130))
    packed = gemmlab.pack(y, side="right")
    first, again = gemmlab.matmul(x, packed), gemmlab.matmul(x, packed)
    plain = gemmlab.matmul(x, y, precision="fp16x3")
    assert np.array_equal(on_host(first), on_host(plain))
    assert np.array_equal(on_host(first), on_host(again)) and error(first, a, b) <= 4
    left = gemmlab.pack(x)
    assert np.array_equal(on_host(gemmlab.matmul(left, y)), on_host(first))
    columns = gemmlab.matmul(x, y).T  # column by column, where b is the left factor
    assert np.array_equal(on_host(gemmlab.matmul(left, packed, out=columns.T)), on_host(first))
    other = gemmlab.pack(-y, side="right")
    assert np.array_equal(on_host(gemmlab.matmul(x, other)), -on_host(first))


def test_an_operand_packed_by_cupy_serves_torch() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    cupy = pytest.importorskip("cupy", reason="cupy is not installed")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    ((x, a),), ((y, b),) = arrays(torch, (300, 257)), arrays(cupy, (257, 130))
    packed = gemmlab.pack(y, side="right")
    for _ in range(2):
        result = gemmlab.matmul(x, packed)
        assert type(result) is torch.Tensor and error(result, a, b) <= 4


def test_a_tensor_that_has_lost_its_memory_is_refused() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    (x, _), (y, _) = arrays(torch, (300, 257), (257, 130))
    for _ in range(2):
        gemmlab.matmul(x, y)
    y.untyped_storage().resize_(0)
    with pytest.raises(ArrayError, match=r"b is a tensor .* without memory"):
        gemmlab.matmul(x, y)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_products_repeat_at_any_addresses_and_in_any_form(
    library: Any, precision: str | None
) -> None:
    forms = [((300, 257), (257, 130)), ((257, 257), (257, 257)), ((64, 96), (96, 32))]
    for turn in range(3):
        for (x, a), (y, b) in (arrays(library, *form) for form in forms):
            scale, out = 2.0**turn, library.empty_like(x @ y)
            assert error(gemmlab.matmul(scale * x, y, precision=precision), scale * a, b) <= 8
            assert gemmlab.matmul(x, scale * y, out=out, precision=precision) is out
            assert error(out, a, scale * b) <= 8
            assert error(gemmlab.matmul(x.T, x, precision=precision), a.T, a) <= 8
            with pytest.raises(DTypeError, match="float64"):
                gemmlab.matmul(x, y.astype("d") if library.__name__ == "cupy" else y.double())


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_cuda_graph_holds_a_product(precision: str | None) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    (x, _), (y, b) = arrays(torch, (1500, 1500), (1500, 1500))
    gemmlab.matmul(x, y, precision=precision)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = gemmlab.matmul(x, y, precision=precision)
    x.normal_()
    graph.replay()
    assert error(result, on_host(x).astype(float), b) <= 4


@pytest.mark.parametrize("program", ["between", "out", "packed", "planned"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_torch_compile_leaves_products_as_they_are(program: str, precision: str | None) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    (y, b), *_ = arrays(torch, (257, 130))
    packed = gemmlab.pack(y, side="right", precision=None if precision in UNPACKED else precision)

    def run(x: Any, out: Any) -> Any:
        if program == "planned":
            with gemmlab.Matmul(x, y, out=out, precision=precision) as product:
                product.plan()
                return product.execute() * 1.0
        if program == "packed" and precision not in UNPACKED:
            return gemmlab.matmul(x * 1.0, packed, precision=precision) * 1.0
        if program == "out":
            return gemmlab.matmul(x, y, out=out, precision=precision) * 1.0
        return gemmlab.matmul(x * 1.0, y, precision=precision) * 1.0

    torch._dynamo.reset()
    compiled = torch.compile(run)
    for rows in (300, 300, 64, 65, 300):  # two shapes are compiled, then one for any number of rows
        (x, a), _ = arrays(torch, (rows, 257), (1, 1))
        result = compiled(x, torch.full((rows, 130), torch.nan, device="cuda"))
        assert error(result, a, b) <= 4
        del x, result  # their memory is free for what comes next
        torch.cuda.empty_cache()


@pytest.mark.parametrize("way", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("library", ["torch"], indirect=True)
def test_every_route_of_multiply_adds_is_right(library: Any, way: str) -> None:
    """Every tile, with every division of k; the ways to read a matrix, and the divisions, too."""
    from benchmarks.direct import bound
    from benchmarks.gpu import Gpu
    from gemmlab.linalg.runtime.launches import Launcher

    gpu, launcher = Gpu(), Launcher(0)
    k_major = way[0] == "n", way[1] == "t"
    shapes = (
        (70, 133, 50, 3),
        (128, 64, 64, 1),
        (1, 300, 1000, 1),
        (1, 68, 532, 5),
        (77, 1, 5001, 1),
    )
    for m, n, k, batch in shapes:
        sides = [(m, k), (k, n)]
        sides = [x[::-1] if t == "t" else x for x, t in zip(sides, way, strict=True)]
        stack = (batch,) if batch > 1 else ()
        a, b = (gpu.normal(*stack, *x, seed=i) for i, x in enumerate(sides))
        a, b = (x.mT if t == "t" else x for x, t in zip((a, b), way, strict=True))
        exact, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
        for index, time in enumerate(fma.seconds_of(m, n, k, batch, k_major, DEFAULT, 132)):
            if time >= gemv.NEVER:
                continue
            c = gpu.empty(*stack, m, n).fill_(library.nan)
            bound(gpu, launcher, a, b, c, Choice("fma", "", None, DEFAULT), index)()
            error = ((c.double() - exact).abs() / size).max()
            assert float(error) / U <= sum_bound_u(k), (index, float(error) / U)


def test_every_kernel_that_a_product_may_launch_loads(library: Any) -> None:
    from gemmlab.linalg.runtime import driver  # imports the driver's bindings

    a = arrays(library, (64, 64))[0][0]
    gemmlab.matmul(a, a, precision="fp16x3")  # on a current context
    codes = variants.kernels(DEFAULT)
    kernels.prepare(codes)
    assert all(driver.load(kernels.loadable(code)) for code in codes)
