"""Products of host arrays on several GPUs of one process; the arrays may be larger than all GPUs.

Each device has a band of the result's rows (or of its columns, if there are more), and computes it
block by block: a block of b stays on the device while blocks of a's rows stream through. While one
block multiplies, the next is copied to the device and the last one back to the host.
"""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmlab.core import status
from gemmlab.core.packages import TORCH
from gemmlab.distributed.links import ITEM
from gemmlab.errors import ArrayError, DeviceError, DTypeError, InputError, ShapeError
from gemmlab.linalg import entry
from gemmlab.linalg.planning import tiers

with TORCH.importing():
    import torch
    from torch import Tensor

Span = tuple[int, int]
Progress = Callable[[float], object]
_HOST_MEMORY = 2**30  # bytes that a CPU used as a device takes by default
_SHARE = 0.8  # of a GPU's free memory
_LEAST = 128  # rows of a block
_BLOCKS = 8  # blocks of a band, at least, so that copies and products overlap


@dataclass(frozen=True)
class Tiling:
    """How a device computes its band: the columns of b that stay on it, the rows of a block."""

    columns: int
    rows: int


def tile(rows: int, n: int, k: int, memory: int) -> Tiling:
    """Choose blocks of a band of `rows` that fit into `memory` bytes of a device.

    The device holds a block of b with its float16 parts; two blocks of a, one with parts; and two
    of the result. Raises ShapeError if the smallest blocks do not fit.
    """
    items, least = memory // ITEM, min(_LEAST, rows)
    block = max(-(-rows // _BLOCKS), min(1024, rows), 1)
    while True:
        columns = min(n, (items - 3 * block * k) // (2 * (k + block)))
        if columns >= min(n, block):  # fewer would read a too often
            return Tiling(columns, block)
        if block <= least:
            break
        block = max(block // 2, least)
    need = ITEM * (3 * least * k + 2 * min(n, least) * (k + least))
    raise ShapeError(
        f"blocks of {least} rows with k = {k} need {need:,} bytes of a device; it has {memory:,}"
    )


def multiply(
    a: Any,
    b: Any,
    devices: Sequence[Any],
    out: Any,
    alpha: float | None,
    precision: str | None,
    sharded: bool,
    memory: int | None,
    progress: Progress | None,
) -> Any:
    """`gemmlab.distributed.matmul` with `devices`. Raises as that does."""
    tiers.check_precision(precision)
    places = [_device(device) for device in devices]
    if not places:
        raise InputError("devices is empty; it must name at least one, such as 0 or 'cuda:0'")
    left, right = _host(a, "a"), _host(b, "b")
    (m, k), n = left.shape, right.shape[1]
    if right.shape[0] != k:
        raise ShapeError(
            f"a has shape {tuple(left.shape)} and b {tuple(right.shape)}: {k} columns of a do not "
            f"meet {right.shape[0]} rows of b"
        )
    if sharded and out is not None:
        raise InputError("a sharded result stays on the devices: give out or sharded, not both")
    # Shards are of rows; a result on the host is shared along its longer axis.
    turned = n > m and not sharded
    if turned:
        left, right = right.T, left.T
    result = None
    if not sharded:
        result = _host(out, "out") if out is not None else torch.empty(m, n)
        if tuple(result.shape) != (m, n):
            raise ShapeError(f"out has shape {tuple(result.shape)}; the result has {(m, n)}")
    into = result.T if turned and result is not None else result
    options = {"alpha": alpha, "precision": precision}
    total = max(left.shape[0] * right.shape[1], 1)
    with _shown(progress, f"multiplying on {len(places)} devices", total) as count:
        size = -(-left.shape[0] // len(places)) if left.shape[0] else 0
        bands = [
            (min(i * size, left.shape[0]), min((i + 1) * size, left.shape[0]))
            for i in range(len(places))
        ]

        def work(place: Any, band: Span) -> Tensor | None:
            target = None if into is None else into[band[0] : band[1]]
            with torch.no_grad():
                return _Band(place, memory).compute(
                    left[band[0] : band[1]], right, target, options, count
                )

        with ThreadPoolExecutor(len(places)) as pool:
            shards = list(pool.map(work, places, bands))
    if sharded:
        return shards
    if out is not None:
        return out
    assert result is not None
    return result if isinstance(a, Tensor) else result.numpy()


class _Band:
    """The work of one device."""

    def __init__(self, device: Any, memory: int | None) -> None:
        self.device, self.is_gpu = device, device.type == "cuda"
        if memory is None:
            free = torch.cuda.mem_get_info(device)[0] if self.is_gpu else _HOST_MEMORY
            memory = int(_SHARE * free)
        self.memory = memory
        if self.is_gpu:
            self.up, self.down = torch.cuda.Stream(device), torch.cuda.Stream(device)

    def compute(
        self,
        a: Tensor,
        b: Tensor,
        out: Tensor | None,
        options: dict[str, Any],
        count: Callable[[int], None],
    ) -> Tensor | None:
        """Compute a·b into `out` on the host, or return it on the device if `out` is None."""
        (rows, k), n = a.shape, b.shape[1]
        kept = None if out is not None else torch.empty(rows, n, device=self.device)
        if not rows or not n:
            return kept
        tiling = tile(rows, n, k, self.memory - (0 if kept is None else ITEM * rows * n))
        blocks = list(_cut(rows, tiling.rows))
        right: Tensor | None = None
        with torch.cuda.device(self.device) if self.is_gpu else nullcontext():
            for j, j_end in _cut(n, tiling.columns):
                right = None  # the next block of b takes its place
                right = self.arrived(self.upload(b[:, j:j_end]))
                coming = self.upload(a[slice(*blocks[0])])
                leaving: tuple[Any, Any] | None = None
                for number, (i, i_end) in enumerate(blocks):
                    left = self.arrived(coming)
                    if kept is not None:
                        entry.product(left, right, out=kept[i:i_end, j:j_end], **options)
                    else:
                        product = torch.as_tensor(entry.product(left, right, **options))
                    # The host copies while the device multiplies.
                    if number + 1 < len(blocks):
                        coming = self.upload(a[slice(*blocks[number + 1])])
                    if out is not None:
                        if leaving is not None:
                            self.finish(*leaving)
                        leaving = self.download(product), out[i:i_end, j:j_end]
                    count((i_end - i) * (j_end - j))
                if leaving is not None:
                    self.finish(*leaving)
            if self.is_gpu:
                torch.cuda.current_stream().synchronize()
        return kept

    def upload(self, x: Tensor) -> Any:
        """Start to copy a part of a host array to the device."""
        if not self.is_gpu:
            return x.contiguous()
        pinned = torch.empty(x.shape, pin_memory=True).copy_(x)
        with torch.cuda.stream(self.up):
            there = pinned.to(self.device, non_blocking=True)
            event = self.up.record_event()
        return there, event, pinned

    def arrived(self, coming: Any) -> Tensor:
        """Let the device wait for an upload; return the array on it."""
        if not self.is_gpu:
            return coming
        there, event, _ = coming
        current = torch.cuda.current_stream()
        current.wait_event(event)
        there.record_stream(current)
        return there

    def download(self, x: Tensor) -> Any:
        """Start to copy a result to the host."""
        if not self.is_gpu:
            return x, None
        pinned = torch.empty(x.shape, pin_memory=True)
        self.down.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.down):
            pinned.copy_(x, non_blocking=True)
            event = self.down.record_event()
        x.record_stream(self.down)
        return pinned, event

    def finish(self, leaving: Any, target: Tensor) -> None:
        """Wait for a download and store it."""
        here, event = leaving
        if event is not None:
            event.synchronize()
        target.copy_(here)


def _cut(length: int, size: int) -> Iterator[Span]:
    return ((i, min(i + size, length)) for i in range(0, length, size))


def _device(name: Any) -> Any:
    """Return PyTorch's device for a GPU's number or a name. Raises DeviceError."""
    try:
        device = torch.device("cuda", name) if isinstance(name, int) else torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise DeviceError(f"no device {name!r}: {str(error).splitlines()[0]}") from None
    gpus = torch.cuda.device_count()
    if device.type == "cuda" and not 0 <= (device.index or 0) < gpus:
        raise DeviceError(f"no device {name!r}: this machine has {gpus} usable GPUs")
    if device.type not in ("cuda", "cpu"):
        raise DeviceError(f"no device {name!r}: only GPUs of CUDA and 'cpu' multiply")
    return device


def _host(x: Any, name: str) -> Tensor:
    """A matrix on the host as a tensor that shares its memory."""
    if isinstance(x, np.ndarray):
        if x.dtype != np.float32:
            raise DTypeError(f"{name} is an array of {x.dtype}; it must be float32")
        if name == "out" and not x.flags.writeable:
            raise ArrayError(f"out has shape {x.shape} and is read-only")
        if any(stride < 0 or stride % ITEM for stride in x.strides):
            raise ArrayError(f"{name} has strides {x.strides}; they must be multiples of {ITEM}")
        tensor = _shared(x)
    elif isinstance(x, Tensor) and x.device.type == "cpu":
        if x.dtype != torch.float32:
            raise DTypeError(f"{name} is a tensor of {x.dtype}; it must be float32")
        if x.requires_grad and torch.is_grad_enabled():
            raise ArrayError(f"{name} requires grad; products on devices have no derivative")
        tensor = x
    else:
        raise ArrayError(
            f"{name} is a {type(x).__name__}; with devices, it is an array on the host"
        )
    if tensor.dim() != 2:
        raise ShapeError(f"{name} has shape {tuple(tensor.shape)}; it must be a matrix")
    return tensor


def _shared(x: np.ndarray) -> Tensor:
    """A tensor of an array's memory, which may be read-only: it is then only read."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable.*")
        return torch.from_numpy(x)


@contextmanager
def _shown(progress: Progress | None, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Give a function that counts computed elements, and show how many of all are done.

    `progress` gets the fraction. Without it, a bar is drawn on a terminal after a second.
    """
    lock, start = threading.Lock(), time.monotonic()
    state = {"done": 0, "drawn": False}
    draws = progress is None and sys.stderr is not None and sys.stderr.isatty()

    def count(number: int) -> None:
        with lock:
            state["done"] += number
            fraction = state["done"] / total
            if progress is not None:
                progress(fraction)
            elif draws and time.monotonic() - start > status.LONG_S:
                state["drawn"] = True
                filled = "█" * round(20 * fraction)
                seconds = (time.monotonic() - start) * (1 / fraction - 1)
                print(
                    f"\r{what} {filled:░<20} {100 * fraction:.0f} %, {seconds:.0f} s left \x1b[K",
                    end="",
                    file=sys.stderr,
                    flush=True,
                )

    try:
        yield count
    finally:
        if state["drawn"]:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
