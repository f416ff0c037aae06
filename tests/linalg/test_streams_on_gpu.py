"""Streams, threads, graphs and memory of products on a GPU; skipped without one.

Inputs are written late, after a stream has slept. Work that does not wait reads zeros.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_on_gpu import PRECISIONS, arrays, error

import gemmlab

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)
if torch.cuda.get_device_capability() != (9, 0):
    pytest.skip("the kernels are for compute capability 9.0", allow_module_level=True)

SLEEP = 50_000_000  # clocks: some 30 ms
N = 1100  # k is large enough for totals in memory
MOST = 8.0  # units of 2^-24: a few for SGEMM, 10^5 if zeros are read


def late(values: np.ndarray, stream: Any) -> Any:
    """Zeros that the stream overwrites with these values after a delay."""
    (source,) = on_gpu(values)
    target = torch.zeros_like(source)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(SLEEP)
        target.copy_(source)
    source.record_stream(stream)
    return target


def pair(n: int = N, seed: int = 0) -> list[np.ndarray]:
    """Two matrices of float32 numbers, in float64."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((n, n)).astype(np.float32).astype(float) for _ in "ab"]


def on_gpu(*values: np.ndarray) -> list[Any]:
    return [torch.asarray(x, dtype=torch.float32).cuda() for x in values]


def warm(stream: Any, *operands: Any, **options: Any) -> None:
    """Compile, load and allocate everything, so that the next product is fast."""
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        gemmlab.matmul(*operands, **options)
    torch.cuda.synchronize()


@pytest.mark.parametrize("step", [1, 2], ids=["in place", "copied first"])
@pytest.mark.parametrize("given", [False, True], ids=["current", "given"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_product_goes_to_its_stream(precision: str | None, given: bool, step: int) -> None:
    a, b = pair()
    stream, (x, y) = torch.cuda.Stream(), on_gpu(a, b[::step])
    warm(stream, x[:, ::step], y, precision=precision)
    x = late(a, stream)[:, ::step]
    with torch.cuda.stream(None if given else stream):
        current = torch.cuda.current_stream()
        result = gemmlab.matmul(x, y, precision=precision, stream=stream if given else None)
        assert torch.cuda.current_stream() == current
    stream.synchronize()
    assert error(result, a[:, ::step], b[::step]) <= MOST


@pytest.mark.parametrize("how", [lambda: 0, lambda: 1, torch.cuda.default_stream])
def test_the_default_stream_may_be_given(how: Callable[[], Any]) -> None:
    a, b = pair()
    x, y = on_gpu(a, b[::2])
    warm(torch.cuda.default_stream(), x[:, ::2], y, precision="fp16x3")
    x = late(a, torch.cuda.default_stream())[:, ::2]  # copied first
    with torch.cuda.stream(torch.cuda.Stream()):
        result = gemmlab.matmul(x, y, precision="fp16x3", stream=how())
    torch.cuda.default_stream().synchronize()
    assert error(result, a[:, ::2], b[::2]) <= MOST


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_prepared_product_follows_the_current_stream(precision: str | None) -> None:
    a, b = pair()
    x, y = on_gpu(a, b)
    stream = torch.cuda.Stream()
    with gemmlab.Matmul(x, y, precision=precision) as product:
        product.plan()
        first = product.execute()
        other = late(2 * a, stream)
        with torch.cuda.stream(stream):
            product.reset_operands(a=other)
            second = product.execute()
        stream.synchronize()
        assert error(first, a, b) <= MOST and error(second, 2 * a, b) <= MOST

        graph = torch.cuda.CUDAGraph()
        product.reset_operands(a=x)
        with torch.cuda.graph(graph):
            third = product.execute()
        x.mul_(2)
        graph.replay()
        assert error(third, 2 * a, b) <= MOST


@pytest.mark.parametrize("own_streams", [False, True])
def test_threads_multiply_at_the_same_time(own_streams: bool) -> None:
    wrong: list[Any] = []

    def work(seed: int) -> None:
        stream = torch.cuda.Stream() if own_streams else torch.cuda.default_stream()
        with torch.cuda.stream(stream):
            for turn in range(12):
                n = 256 + 64 * ((seed + 5 * turn) % 9)  # workspaces grow at different times
                a, b = pair(n, seed)
                x, y = on_gpu(a, b)
                precision = PRECISIONS[(seed + turn) % 4]
                found = error(gemmlab.matmul(x, y, precision=precision), a, b)
                if not found <= MOST:
                    wrong.append((seed, n, precision, found))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("precision", ["fp16x3", "ieee"])
def test_one_handle_may_be_a_stream_of_each_thread(precision: str) -> None:
    cupy = pytest.importorskip("cupy", reason="cupy is not installed")
    errors: list[float] = []

    def work(seed: int) -> None:
        with cupy.cuda.Stream.ptds:
            a, b = pair(N, seed)
            x, y = (cupy.asarray(z, dtype=cupy.float32) for z in (a, b))
            results = [gemmlab.matmul(x, y, precision=precision) for _ in range(20)]
            errors.extend(error(result, a, b) for result in results)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 80 and max(errors) <= MOST


@pytest.mark.parametrize("precision", PRECISIONS)
def test_graphs_are_replayed_beside_other_products(precision: str | None) -> None:
    """Two graphs recorded on one stream, and other products, all of the same shape."""
    a, b = pair()
    (x, y), side = (
        (torch.asarray(z, dtype=torch.float32).cuda() for z in (a, b)),
        torch.cuda.Stream(),
    )
    graphs, results = [torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()], []
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        gemmlab.matmul(x, y, precision=precision)
    for graph in graphs:
        with torch.cuda.graph(graph, stream=side):
            results.append(gemmlab.matmul(x, y, precision=precision))
    torch.cuda.synchronize()
    for _ in range(50):
        for graph in graphs:
            graph.replay()
        with torch.cuda.stream(side):
            outside = gemmlab.matmul(x, y, precision=precision)
    torch.cuda.synchronize()
    assert error(outside, a, b) <= MOST
    for result in results:
        assert error(result, a, b) <= MOST
        assert precision == "ieee" or torch.equal(result, outside)
    if precision != "ieee":  # non-finite values are still found; where counted, from zero
        x[3] = float("nan")
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            outside = gemmlab.matmul(x, y, precision=precision)
            assert gemmlab.last_plan().report().not_finite == (
                None if precision in ("tf32x3", "fma") else 1
            )
        graphs[0].replay()
        torch.cuda.synchronize()
        for result in (outside, results[0]):
            assert result[3].isnan().all() and not result[4:].isnan().any()


@pytest.mark.parametrize("precision", ["fp16x3", "ieee", None])
def test_graphs_of_cupy_write_to_memory_of_their_own(precision: str | None) -> None:
    cupy = pytest.importorskip("cupy", reason="cupy is not installed")
    (x, a), (y, b) = arrays(cupy, (N, N), (N, N))
    out, stream, graphs = cupy.empty((N, N), cupy.float32), cupy.cuda.Stream(non_blocking=True), []
    cupy.cuda.Device().synchronize()
    with stream:
        gemmlab.matmul(x, y, out=out, precision=precision)
        for _ in range(2):
            stream.begin_capture()
            gemmlab.matmul(x, y, out=out, precision=precision)
            graphs.append(stream.end_capture())
        others = [cupy.full(6, 7.0, cupy.float32) for _ in range(2000)]  # as small as reports
        for graph in graphs:
            out.fill(0)
            graph.launch(stream)
            assert error(out, a, b) <= MOST
        stream.synchronize()
        assert all(bool((other == 7).all()) for other in others)


def test_reset_operands_gives_the_bits_of_a_new_product() -> None:
    x, y = on_gpu(*pair())
    results = [torch.empty_like(x) for _ in range(2)]
    with gemmlab.Matmul(x, y, out=results[0], precision="fp16x3") as product:
        product.plan()
        for turn in range(6):
            left, right = (x, y) if turn % 2 else (y, x)
            product.reset_operands(a=left, b=right, out=results[turn % 2])
            assert product.execute() is results[turn % 2]
            assert torch.equal(results[turn % 2], gemmlab.matmul(left, right, precision="fp16x3"))


def test_a_packed_operand_serves_other_streams_and_leaves_no_memory() -> None:
    a, b = pair()
    x, y = on_gpu(a, b)
    stream = torch.cuda.Stream()
    warm(stream, x, y)
    warm(stream, x, gemmlab.pack(y, side="right"))
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        packed = gemmlab.pack(y, side="right")
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            result = gemmlab.matmul(x, packed)
        stream.synchronize()
        assert error(result, a, b) <= MOST
        assert torch.cuda.memory_allocated() >= before + packed.nbytes
        del packed, result
    assert torch.cuda.memory_allocated() < before + N * N


class Foreign:
    """An array of a library with its own stream, which DLPack orders."""

    def __init__(self, tensor: Any, stream: Any) -> None:
        self.tensor, self.stream, self.shape = tensor, stream, tensor.shape

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, *, stream: int | None = None, **_: Any) -> Any:
        default = torch.cuda.default_stream()
        consumer = default if stream in (None, 1) else torch.cuda.ExternalStream(stream)
        consumer.wait_stream(self.stream)
        return self.tensor.__dlpack__()

    def __array_namespace__(self) -> Any:
        return Library


class Library:
    @staticmethod
    def from_dlpack(result: Any) -> tuple[Any, int]:
        return result, torch.cuda.current_stream().cuda_stream


@pytest.mark.parametrize("given", [False, True])
def test_dlpack_orders_the_products_stream(given: bool) -> None:
    a, b = pair()
    own, stream = torch.cuda.Stream(), torch.cuda.Stream()
    (y,) = on_gpu(b)
    warm(stream, y, y, precision="fp16x3")
    x = Foreign(late(a, own), own)
    with torch.cuda.stream(None if given else stream):
        chosen = stream if given else None
        result, current = gemmlab.matmul(x, y, precision="fp16x3", stream=chosen)
    stream.synchronize()
    assert current == stream.cuda_stream
    assert error(result, a, b) <= MOST
