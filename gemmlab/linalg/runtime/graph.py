"""Launches recorded once as a CUDA graph, which one call enqueues for any addresses.

Launching a graph of several kernels costs the host about as much as launching one kernel. Only the
addresses of the caller's arrays change between runs; they are updated in the graph's nodes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from cuda.bindings import driver as cu

from gemmlab.errors import DeviceError
from gemmlab.linalg.planning.plan import PlannedLaunch
from gemmlab.linalg.planning.program import NAMES, Source
from gemmlab.linalg.runtime import driver
from gemmlab.linalg.runtime.executor import bind
from gemmlab.linalg.runtime.kernels import artifact

Addresses = tuple[int, int, int]  # of the caller's arrays, in the order of NAMES


def compile_all(launches: Sequence[PlannedLaunch]) -> None:
    """Compile the kernels of launches. This takes seconds unless they are cached."""
    for launch in launches:
        artifact(*launch.code)


class Node(driver.Prepared):
    """A prepared launch and graph node; it records which arguments are the caller's arrays."""

    def __init__(self, launch: PlannedLaunch) -> None:
        function = _function(launch.code, _context())
        bound = bind(launch, artifact(*launch.code))
        super().__init__(function, bound)
        self._moving = [
            (NAMES.index(argument.name), value)
            for argument, value in zip(bound.args, self._values, strict=True)
            if isinstance(argument, Source)
        ]
        self.params = cu.CUDA_KERNEL_NODE_PARAMS()
        self.params.func = function
        self.params.gridDimX, self.params.gridDimY, self.params.gridDimZ = launch.grid
        self.params.blockDimX, self.params.blockDimY, self.params.blockDimZ = launch.block
        self.params.sharedMemBytes = launch.dynamic_smem
        self.params.kernelParams = ctypes.addressof(self._pointers)

    def move(self, addresses: Addresses) -> bool:
        """Set the addresses of the caller's arrays; return whether any of them changed."""
        moved = False
        for i, value in self._moving:
            if value.value != addresses[i]:
                value.value = addresses[i]
                moved = True
        return moved


class Recording:
    """A CUDA graph of work that was captured once, on a temporary stream."""

    def __init__(self, work: Callable[[int], None]) -> None:
        stream = driver.call(cu.cuStreamCreate, cu.CUstream_flags.CU_STREAM_NON_BLOCKING)
        mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        driver.call(cu.cuStreamBeginCapture, stream, mode)
        try:
            work(int(stream))
        finally:
            self._graph = driver.call(cu.cuStreamEndCapture, stream)
            driver.call(cu.cuStreamDestroy, stream)
        self._executable = driver.call(cu.cuGraphInstantiate, self._graph, 0)

    def replay(self, stream: int) -> None:
        """Enqueue the graph on a stream, given its handle."""
        (error,) = cu.cuGraphLaunch(self._executable, stream)
        if error:
            raise DeviceError(f"cuGraphLaunch: {error.name}")

    def __del__(self) -> None:
        executable = getattr(self, "_executable", None)
        if executable is not None and cu is not None:
            # This may run during a stream capture, or after the driver was shut down.
            with suppress(DeviceError), driver.relaxed():
                cu.cuGraphExecDestroy(executable)
                cu.cuGraphDestroy(self._graph)


class Graph(Recording):
    """A CUDA graph of consecutive launches."""

    def __init__(self, launches: Sequence[PlannedLaunch]) -> None:
        self._nodes = [Node(launch) for launch in launches]
        super().__init__(self._launch_nodes)
        self._handles = _chain_of_nodes(self._graph)
        assert len(self._handles) == len(self._nodes)
        self.addresses: Addresses = (0, 0, 0)

    def move(self, addresses: Addresses) -> None:
        """Set the addresses of the caller's arrays for later replays."""
        for node, handle in zip(self._nodes, self._handles, strict=True):
            if node.move(addresses):
                driver.call(
                    cu.cuGraphExecKernelNodeSetParams, self._executable, handle, node.params
                )
        self.addresses = addresses

    def _launch_nodes(self, stream: int) -> None:
        for node in self._nodes:
            node.launch(stream)


@cache
def _function(code: tuple[Any, ...], context: int) -> Any:
    """Return the compiled kernel, loaded once per context."""
    return driver.load(artifact(*code))


def _context() -> int:
    return int(driver.call(cu.cuCtxGetCurrent))


def _chain_of_nodes(graph: Any) -> list[Any]:
    """Return the nodes of a graph in which each node depends on the previous one, in order."""
    _, count = _call(cu.cuGraphGetRootNodes, graph, 0)
    nodes, _ = _call(cu.cuGraphGetRootNodes, graph, count)
    chain = []
    while nodes:
        (node,) = nodes
        chain.append(node)
        count = _call(cu.cuGraphNodeGetDependentNodes, node, 0)[-1]
        nodes = _call(cu.cuGraphNodeGetDependentNodes, node, count)[0] if count else []
    return chain


def _call(function: Any, *args: Any) -> tuple[Any, ...]:
    """Call the driver like `driver.call`, but return all results."""
    error, *values = function(*args)
    driver.call(lambda: (error,))
    return tuple(values)
