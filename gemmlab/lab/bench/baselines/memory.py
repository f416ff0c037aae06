"""Libraries for the memory-bound problems: transpose and vectors.

CUB is called through CuPy's sum and device_histogram.
"""

from __future__ import annotations

import importlib
from typing import Any

from gemmlab.devices.cuda import CudaDevice
from gemmlab.lab.bench.baselines.arrays import DeviceArray, cupy_on, torch_on
from gemmlab.lab.bench.contenders import Arguments, Bound, Contender

BINS = 256


class _Library(Contender):
    """Base class: a baseline that calls one library."""

    call: str
    _result: Any = None  # a result that the library allocates, kept so that its memory is reused

    def __init__(self, device: CudaDevice, _layout: str) -> None:
        self._library, name = self._load(device)
        self.details: dict[str, Any] = {"call": self.call, name: self._library.__version__}

    def _load(self, device: CudaDevice) -> tuple[Any, str]:
        raise NotImplementedError

    def _array(self, view: DeviceArray) -> Any:
        raise NotImplementedError


class _Cupy(_Library):
    def _load(self, device: CudaDevice) -> tuple[Any, str]:
        return cupy_on(device), "cupy"

    def _array(self, view: DeviceArray) -> Any:
        return self._library.asarray(view)


class _Torch(_Library):
    def _load(self, device: CudaDevice) -> tuple[Any, str]:
        return torch_on(device), "torch"

    def _array(self, view: DeviceArray) -> Any:
        return self._library.as_tensor(view, device="cuda")


class CupyTranspose(_Cupy):
    name, title, call = "cupy", "CuPy, a transposed copy", "b[...] = a.T"

    def bind(self, args: Arguments) -> Bound:
        a, b = _matrices(self, args)
        return Bound(lambda: self._library.copyto(b, a.T))


class TorchTranspose(_Torch):
    name, title, call = "torch", "PyTorch, a transposed copy", "b.copy_(a.t())"

    def bind(self, args: Arguments) -> Bound:
        a, b = _matrices(self, args)
        return Bound(lambda: b.copy_(a.t()))


class CubSum(_Cupy):
    name, title, call = "cub", "CUB's DeviceReduce through CuPy", "x.sum()"

    def bind(self, args: Arguments) -> Bound:
        x, out = _vector(self, args, "<f4"), _output(self, args, "<f4", 1)

        def run() -> None:
            self._result = x.sum()

        def deliver() -> None:
            out[0] = self._result

        return Bound(run, deliver)


class TorchSum(_Torch):
    name, title, call = "torch", "torch.sum", "torch.sum(x, dim=0, out=out)"

    def bind(self, args: Arguments) -> Bound:
        x, out = _vector(self, args, "<f4"), _output(self, args, "<f4", 1)
        return Bound(lambda: self._library.sum(x, dim=0, keepdim=True, out=out))


class CubHistogram(_Cupy):
    name, title = "cub", "CUB's DeviceHistogram through CuPy"
    call = "cupy.cuda.cub.device_histogram(data, counts, 257), int64 counts"

    def bind(self, args: Arguments) -> Bound:
        data, out = _vector(self, args, "|u1"), _output(self, args, "<u4", BINS)
        cub = importlib.import_module("cupy.cuda.cub")
        counts = self._library.zeros(BINS, "int64")

        def deliver() -> None:
            out[...] = counts

        return Bound(lambda: cub.device_histogram(data, counts, BINS + 1), deliver)


class TorchHistogram(_Torch):
    """torch.bincount waits for the GPU to determine the number of bins."""

    name, title, call = "torch", "torch.bincount", "torch.bincount(data, minlength=256)"
    synchronizes = True

    def bind(self, args: Arguments) -> Bound:
        data, out = _vector(self, args, "|u1"), _output(self, args, "<i4", BINS)

        def run() -> None:
            self._result = self._library.bincount(data, minlength=BINS)

        def deliver() -> None:
            out.copy_(self._result)

        return Bound(run, deliver)


class CupyAdd(_Cupy):
    name, title, call = "cupy", "cupy.add", "cupy.add(a, b, out=c)"

    def bind(self, args: Arguments) -> Bound:
        a, b, c = _vectors(self, args)
        return Bound(lambda: self._library.add(a, b, out=c))


class TorchAdd(_Torch):
    name, title, call = "torch", "torch.add", "torch.add(a, b, out=c)"

    def bind(self, args: Arguments) -> Bound:
        a, b, c = _vectors(self, args)
        return Bound(lambda: self._library.add(a, b, out=c))


def _vectors(library: _Library, args: Arguments) -> list[Any]:
    *spans, size = args
    return [library._array(DeviceArray(span, (size,), "<f4")) for span in spans]


def _matrices(library: _Library, args: Arguments) -> tuple[Any, Any]:
    a, b, m, n, lda, ldb = args
    return (
        library._array(DeviceArray(a, (m, n), "<f4", (lda, 1))),
        library._array(DeviceArray(b, (n, m), "<f4", (ldb, 1))),
    )


def _vector(library: _Library, args: Arguments, dtype: str) -> Any:
    span, _, size = args
    return library._array(DeviceArray(span, (size,), dtype))


def _output(library: _Library, args: Arguments, dtype: str, size: int) -> Any:
    return library._array(DeviceArray(args[1], (size,), dtype))
