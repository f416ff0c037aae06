"""Launches recorded once as a CUDA graph: one call enqueues all of them, at any addresses.

A graph of launches in a row costs the host about as much as one launch. Only the caller's arrays
move from run to run; their addresses are changed in the graph's nodes before it is launched.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from cuda.bindings import driver as cu

from gemmlab.errors import DeviceError
from gemmlab.kernels.rung import Dim3
from gemmlab.linalg.planning.plan import Launch
from gemmlab.linalg.planning.program import NAMES, Source
from gemmlab.linalg.runtime import driver
from gemmlab.linalg.runtime.executor import bind
from gemmlab.linalg.runtime.kernels import artifact

Addresses = tuple[int, int, int]  # of the caller's arrays, in the order of NAMES


def compile_all(launches: Sequence[Launch]) -> None:
    """Compile their kernels, which takes seconds unless that was done before."""
    for launch in launches:
        artifact(launch.kernel, launch.config, launch.block)


class Node(driver.Prepared):
    """A prepared launch, as a node of a graph too; it knows which arguments are the caller's."""

    def __init__(self, launch: Launch) -> None:
        code = (launch.kernel, launch.config, launch.block)
        function = _function(*code, _context())
        bound = bind(launch, artifact(*code))
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
        """Take the caller's addresses; whether any of them is new."""
        moved = False
        for i, value in self._moving:
            if value.value != addresses[i]:
                value.value = addresses[i]
                moved = True
        return moved


class Recording:
    """Work that was enqueued once, on a stream of its own, and can be again, by one call."""

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
        """Enqueue all of it on the stream with that handle."""
        (error,) = cu.cuGraphLaunch(self._executable, stream)
        if error:
            raise DeviceError(f"cuGraphLaunch: {error.name}")

    def __del__(self) -> None:
        executable = getattr(self, "_executable", None)
        if executable is not None and cu is not None:
            # The last reference may go while some stream is recorded, or after the driver has.
            with suppress(DeviceError), driver.relaxed():
                cu.cuGraphExecDestroy(executable)
                cu.cuGraphDestroy(self._graph)


class Graph(Recording):
    """Launches in a row, as one."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        self._nodes = [Node(launch) for launch in launches]
        super().__init__(self._launch_nodes)
        self._handles = _in_a_row(self._graph)
        assert len(self._handles) == len(self._nodes)
        self.addresses: Addresses = (0, 0, 0)

    def move(self, addresses: Addresses) -> None:
        """Take the caller's addresses from now on."""
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
def _function(kernel: str, config: Any, block: Dim3, context: int) -> Any:
    """The compiled kernel, loaded once into each context."""
    return driver.load(artifact(kernel, config, block))


def _context() -> int:
    return int(driver.call(cu.cuCtxGetCurrent))


def _in_a_row(graph: Any) -> list[Any]:
    """The nodes of a graph in which each depends on the one before."""
    _, count = _call(cu.cuGraphGetRootNodes, graph, 0)
    nodes, _ = _call(cu.cuGraphGetRootNodes, graph, count)
    row = []
    while nodes:
        (node,) = nodes
        row.append(node)
        count = _call(cu.cuGraphNodeGetDependentNodes, node, 0)[-1]
        nodes = _call(cu.cuGraphNodeGetDependentNodes, node, count)[0] if count else []
    return row


def _call(function: Any, *args: Any) -> tuple[Any, ...]:
    """As `driver.call`, for functions that give back several values."""
    error, *values = function(*args)
    driver.call(lambda: (error,))
    return tuple(values)
