"""A fake GPU: its arrays are in host memory, and NumPy does the work of the kernels.

Everything up to the launches is gemmlab's code: the memory read and written, the strides, the order
of work. Products are computed in float64 from the addresses that kernels would receive.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gemmlab.core import built
from gemmlab.errors import ArrayError
from gemmlab.linalg import calls, first_calls, frameworks, gpu_operands, recent
from gemmlab.linalg.arrays import ArrayDescriptor, match_by_form
from gemmlab.linalg.cublas import Sgemm
from gemmlab.linalg.planned import Counts
from gemmlab.linalg.planning import gemv, kinds, times
from gemmlab.linalg.planning.program import NAMES, Job
from gemmlab.linalg.runtime import gpus, products
from gemmlab.linalg.runtime.gpus import Gpu

KIND = __name__.partition(".")[0]


class Array:
    """An array on GPU number `device`."""

    def __init__(self, values: np.ndarray, device: int = 0) -> None:
        self.values, self.device = values, device
        self.shape, self.strides, self.dtype = values.shape, values.strides, values.dtype
        self.stream: int | None = None  # of a new array: the stream that it was allocated on

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device


class Wrapper(Array):
    """An array that wraps others, like DTensor."""


class Framework:
    name = KIND

    def __init__(self) -> None:
        self.made: list[tuple[int, ...]] = []  # shapes of new arrays
        self.current = 7  # stream
        self.imports: list[int] = []  # the current stream at each DLPack import
        self.ran: list[tuple[int, int]] = []  # per product: its stream, and the current one

    def describe(self, array: Array) -> ArrayDescriptor:
        values = array.values
        strides = tuple(stride // values.itemsize for stride in values.strides)
        return ArrayDescriptor(
            self.address(array), values.shape, strides, values.dtype, array.device
        )

    def address(self, array: Array) -> int:
        return int(array.values.ctypes.data)

    def matcher(self, array: Array, shaped: bool = True) -> Any:
        def unshaped(array: Array) -> ArrayDescriptor:
            return self.describe(array)._replace(shape=())

        return match_by_form(self.describe if shaped else unshaped, array)

    def describer(self, a: Array, b: Array) -> Any:
        def kind(x: Any) -> Any:
            return type(x) is Array and (x.values.ndim, x.values.dtype, x.device)

        alike = kind(a), kind(b)

        def describe(x: Any, y: Any) -> Any:
            if (kind(x), kind(y)) != alike or 0 in (*x.shape, *y.shape):
                return None
            at_x, *form_x = self.describe(x)
            at_y, *form_y = self.describe(y)
            return at_x, at_y, (*form_x[0], *form_x[1], *form_y[0], *form_y[1])

        return describe if all(alike) else None

    def is_on_host(self, array: Array) -> bool:
        return False

    def has_gpu(self) -> bool:
        return True

    def check_kind(self, kind: type) -> None:
        if issubclass(kind, Wrapper):
            raise ArrayError(f"a {kind.__name__}: it has no memory of its own")

    def stream(self, device: int) -> int:
        return self.current

    @contextlib.contextmanager
    def entered(self, device: int, stream: int | None) -> Any:
        before = self.current
        self.current = before if stream is None else stream
        yield
        self.current = before

    def from_dlpack(self, array: Any) -> Array:
        self.imports.append(self.current)
        return Array(array.values, array.device)

    def maker(self, shape: tuple[int, ...], device: int, stream: int | None = None) -> Any:
        def make() -> Array:
            self.made.append(tuple(shape))
            made = Array(np.full(shape, np.nan, np.float32), device)
            made.stream = self.current if stream is None else stream
            return made

        return make

    def kept(self, make: Any) -> Array:
        return make()

    def copied(self, array: Array, shape: tuple[int, ...]) -> Array:
        copy = self.maker(shape, array.device)()
        copy.values[...] = array.values
        return copy

    def assign(self, target: Array, source: Array) -> None:
        target.values[...] = source.values

    def scale(self, target: Array, factor: float) -> None:
        target.values[...] = target.values * np.float32(factor) if factor else 0


def memory(address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """Return float32 numbers at an address; strides in elements."""
    first = (ctypes.c_float * 1).from_address(address)
    base = np.frombuffer(memoryview(first), np.float32)
    steps = tuple(4 * stride for stride in strides)
    return np.lib.stride_tricks.as_strided(base, shape, steps)


class TensorCoreRun:
    """Computes what a job's launches would."""

    def __init__(self, job: Job, framework: Framework, device: int, stream: int) -> None:
        self.job, self.found = job, Counts()
        self._framework, self._stream = framework, stream

    def enqueue(self, addresses: tuple[int, int, int, int]) -> None:
        self._framework.ran.append((self._stream, self._framework.current))
        job, c = self.job, self.job.c
        factors = []
        for factor in (job.left, job.right):
            x = factor.operand
            strides = (x.ld, 1) if x.k_major else (1, x.ld)
            shape = (x.batch, x.vectors, x.depth)
            at = addresses[NAMES.index(factor.name)]
            factors.append(memory(at, shape, (x.batch_stride, *strides)).astype(float))
        product = job.alpha * (factors[0] @ factors[1].transpose(0, 2, 1))
        size = c.batch, c.rows, c.columns
        added = to = memory(addresses[2], size, (c.step, c.row_stride, 1))
        if job.d is not None:
            steps = job.d.step, job.d.row_stride, job.d.column_stride
            added = memory(addresses[3], size, steps)
        to[...] = product + (job.beta * added if job.beta else 0)

    def counts(self) -> Counts:
        return self.found


class SgemmRun:
    """cuBLAS as documented: column-major matrices, C = alpha·op(A)·op(B) + beta·C."""

    def __init__(self, sgemm: Sgemm, names: Any, *place: Any) -> None:
        self._sgemm, self._names = sgemm, (*names, "c")

    def enqueue(self, addresses: tuple[int, int, int, int]) -> None:
        at = [addresses[NAMES.index(name)] for name in self._names]
        self._sgemm.launch(self, (at[0], at[1], at[2]))  # type: ignore[arg-type]

    def call(self, function: str, *args: Any) -> None:
        assert function in ("cublasSgemm_v2_64", "cublasSgemmStridedBatched_64")
        stacked = function.startswith("cublasSgemmStrided")
        values = [x._obj.value if hasattr(x, "_obj") else x.value for x in args]
        transpose_a, transpose_b, m, n, k, alpha = values[:6]
        rest, batch, each = values[6:], 1, 2
        if stacked:
            *rest, batch = rest
            each = 3
        a, b = rest[:each], rest[each : 2 * each]
        beta, c = rest[2 * each], rest[2 * each + 1 :]
        factors = []
        for (address, ld, *step), transposed, shape in (
            (a, transpose_a, (m, k)),
            (b, transpose_b, (k, n)),
        ):
            rows, columns = shape[::-1] if transposed else shape
            assert ld >= max(1, rows)
            stack = memory(address, (batch, rows, columns), (*(step or [0]), 1, ld))
            factors.append((stack.transpose(0, 2, 1) if transposed else stack).astype(float))
        assert c[1] >= max(1, m)
        to = memory(c[0], (batch, m, n), (*(c[2:] or [0]), 1, c[1]))
        to[...] = alpha * (factors[0] @ factors[1]) + (beta * to if beta else 0)

    def counts(self) -> None:
        return None


def install(monkeypatch: Any, capability: tuple[int, int] = (9, 0)) -> Framework:
    """Make gemmlab see fake GPUs of that compute capability."""
    framework = Framework()
    fake = Gpu("fake", capability, 132)
    monkeypatch.setitem(frameworks._FRAMEWORKS, KIND, lambda: framework)
    monkeypatch.setitem(frameworks._ARRAYS, KIND, Array.__name__)
    monkeypatch.setattr(frameworks, "framework", lambda name: framework)
    monkeypatch.setattr(gpu_operands, "carrier", lambda: framework)
    monkeypatch.setattr(frameworks, "_found", {})
    monkeypatch.setattr(gpus, "is_current", lambda device: True)
    monkeypatch.setattr(gpus, "current", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(calls, "_planned", {})
    monkeypatch.setattr(calls, "_seen", set())
    monkeypatch.setattr(calls, "_seen_before", set())
    monkeypatch.setattr(first_calls, "_paths", {})
    monkeypatch.setattr(kinds, "_kinds", {})
    monkeypatch.setattr(recent, "_recent", recent._Recent())
    monkeypatch.setattr(gpus, "gpu", lambda device: fake)
    monkeypatch.setattr(products, "TensorCoreRun", TensorCoreRun)
    monkeypatch.setattr(products, "SgemmRun", SgemmRun)
    return framework


@pytest.fixture
def slow_multiply_adds() -> Iterator[None]:
    """Small products run in `ieee`, as where cuBLAS is predicted to be as fast as `fma`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(times, "fma_time", lambda *_: gemv.NEVER)
        patch.setattr(built, "FOLDER", built.FOLDER / "none")  # built formulas contain `fma_time`
        times.formulas.cache_clear()
        yield
    times.formulas.cache_clear()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Framework:
    """Make gemmlab see a fake GPU."""
    return install(monkeypatch)
