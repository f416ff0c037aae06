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
from typing import Any

from gemmlab.core.packages import TORCH
from gemmlab.distributed.pulling import SharedMemory
from gemmlab.errors import GemmlabError
from gemmlab.linalg.frameworks import framework

with TORCH.importing():
    import torch

_MOST = 64  # products that are remembered
_CALLS = 3  # before a product becomes a graph
_NEVER = object()  # in place of a graph that could not be captured

_known: dict[Any, Any] = {}  # the number of calls so far, or a graph


def run(memory: SharedMemory, key: Any, work: Callable[[], None]) -> None:
    """Do `work` on the current stream, or replay what it did for the same key.

    The key tells the addresses that it uses besides those of the symmetric memory. All calls but
    the first take place on the stream on which a graph is captured: products prepare for it there.
    """
    if torch.cuda.is_current_stream_capturing():
        work()
        return
    current = torch.cuda.current_stream()
    aside, pool = _place(current.device, current.cuda_stream)
    key = key, current.cuda_stream, memory.state, _version(aside)
    known = _known.pop(key, 0)
    if known == 0 or known is _NEVER:
        work()
    elif known == _CALLS:
        before = memory.state
        known = _captured(memory, work, aside, pool)
        if known is _NEVER:
            if memory.state != before:
                memory.skip()  # of two halves: the one before is the next one again
            work()
    elif isinstance(known, int):
        aside.wait_stream(current)
        with torch.cuda.stream(aside):
            work()
        current.wait_stream(aside)
        key = *key[:3], _version(aside)  # memory may have grown
    else:
        memory.skip()
    if isinstance(known, int):
        known += 1
    _known[key] = known  # the last one
    if len(_known) > _MOST:
        del _known[next(iter(_known))]
    if isinstance(known, torch.cuda.CUDAGraph):
        known.replay()


def _captured(memory: SharedMemory, work: Callable[[], None], aside: Any, pool: Any) -> Any:
    """A graph of what `work` enqueues; `_NEVER` if that cannot be captured."""
    from gemmlab.linalg.runtime import products  # imports the driver's bindings

    graph = torch.cuda.CUDAGraph()
    with memory.capturing(), products.in_turn(aside.cuda_stream), torch.cuda.stream(aside):
        # Threads of process groups ask for events meanwhile, which other modes forbid.
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            work()
            graph.capture_end()
        except (RuntimeError, GemmlabError):
            with suppress(RuntimeError):
                graph.capture_end()
            return _NEVER
    return graph


@cache
def _place(device: Any, _stream: int) -> tuple[Any, Any]:
    """The stream and the memory for graphs that are replayed on a stream, one after the other."""
    return torch.cuda.Stream(device), torch.cuda.graph_pool_handle()


def _version(aside: Any) -> int:
    """The version of the memory in which products of captured graphs run."""
    from gemmlab.linalg.runtime.workspaces import workspace  # imports the driver's bindings

    return workspace(framework("torch"), aside.device.index, aside.cuda_stream).version
