"""Products that come again between GPUs are replayed as CUDA graphs, which spares the host's time.

A product in pieces takes the host some thirty calls, and a graph of them one. A graph holds for the
addresses of its operands and for its half of the symmetric memory, so a product that is computed
again and again soon has a graph for each half. What a graph does is what its calls would have done:
other processes may launch them one by one at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from gemmlab.core.packages import TORCH
from gemmlab.distributed.symmetric import SharedMemory
from gemmlab.errors import GemmlabError
from gemmlab.linalg.frameworks import framework

with TORCH.importing():
    import torch

# Of products. With two, one would wait for the last kernels of the one before the one before, and
# these for multiprocessors of the one before.
_STREAMS = 3
_MOST = 64  # number of products that are kept
_CALLS = 3  # before a product becomes a graph
_NEVER = object()  # in place of a graph that could not be captured

_known: dict[Any, Any] = {}  # the number of calls so far, or a graph


def run(memory: SharedMemory, key: Any, work: Callable[[Any], None]) -> None:
    """Do `work` on the current stream, or replay what it did for the same key, unless it is None.

    The key contains the addresses that it uses besides those of the symmetric memory. All calls but
    the first take place on the stream on which a graph is captured: products prepare for it there.
    `work` takes the streams beside that one.
    """
    current = torch.cuda.current_stream()
    place = _place(current.device, current.cuda_stream)
    if torch.cuda.is_current_stream_capturing():
        from gemmlab.linalg.runtime import products  # imports the driver's bindings

        streams = (stream.cuda_stream for stream in (current, *place.beside))
        with products.recorded_in_turn(streams):
            work(place.beside)
        return
    memory.enter(current)
    if key is None:
        work(place.beside)
        return
    key = key, current.cuda_stream, memory.state, place.version
    known = _known.pop(key, 0)
    if known == 0 or known is _NEVER:
        work(place.beside)
    elif known == _CALLS:
        before = memory.state
        known = _captured(memory, work, place)
        if known is _NEVER:
            if memory.state != before:
                memory.skip()  # of two halves: the one before is the next one again
            work(place.beside)
    elif isinstance(known, int):
        place.aside.wait_stream(current)
        with torch.cuda.stream(place.aside):
            work(place.beside)
        current.wait_stream(place.aside)
        key = *key[:3], place.version  # memory may have grown
    else:
        memory.skip()
    if isinstance(known, int):
        known += 1
    _known[key] = known  # the last one
    if len(_known) > _MOST:
        del _known[next(iter(_known))]
    if isinstance(known, torch.cuda.CUDAGraph):
        known.replay()


def _captured(memory: SharedMemory, work: Callable[[Any], None], place: _Place) -> Any:
    """A graph of what `work` enqueues; `_NEVER` if that cannot be captured."""
    from gemmlab.linalg.runtime import products  # imports the driver's bindings

    graph = torch.cuda.CUDAGraph()
    in_turn = products.in_turn(*(stream.cuda_stream for stream in place.products))
    with memory.capturing(), in_turn, torch.cuda.stream(place.aside):
        # Threads of process groups ask for events meanwhile, which other modes forbid.
        graph.capture_begin(pool=place.pool, capture_error_mode="thread_local")
        try:
            work(place.beside)
            graph.capture_end()
        except (RuntimeError, GemmlabError):
            with suppress(RuntimeError):
                graph.capture_end()
            return _NEVER
    return graph


class _Place(NamedTuple):
    """The streams and the memory for graphs that are replayed on one stream, in turn."""

    aside: Any
    beside: tuple[Any, ...]
    pool: Any

    @property
    def products(self) -> tuple[Any, ...]:
        """The streams of products in a graph."""
        return self.aside, *self.beside

    @property
    def version(self) -> tuple[int, ...]:
        """Of the memory in which the products of captured graphs run."""
        from gemmlab.linalg.runtime.workspaces import workspace  # imports the driver's bindings

        torch_, device = framework("torch"), self.aside.device.index
        streams = (stream.cuda_stream for stream in self.products)
        return tuple(workspace(torch_, device, stream).version for stream in streams)


@cache
def _place(device: Any, _stream: int) -> _Place:
    aside, *beside = (torch.cuda.Stream(device) for _ in range(_STREAMS))
    return _Place(aside, tuple(beside), torch.cuda.graph_pool_handle())
