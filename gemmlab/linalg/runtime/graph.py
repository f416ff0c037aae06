"""Launches recorded once as a CUDA graph, which one call enqueues for any addresses.

Launching a graph of several kernels costs the host about as much as launching one kernel. Only the
addresses of the caller's arrays change between runs; they are updated in the graph's nodes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from weakref import finalize

from cuda.bindings import driver as cu

from gemmlab.errors import DeviceError
from gemmlab.linalg.planning.program import NAMES
from gemmlab.linalg.runtime import driver
from gemmlab.linalg.runtime.launches import Addresses, Arguments, BoundLaunch, Kernel, MovingMap

# The function that accepts edges of programmatic dependent launch. cuda-bindings 13 has no other.
_dependent_nodes = getattr(cu, "cuGraphNodeGetDependentNodes_v2", cu.cuGraphNodeGetDependentNodes)


class Node:
    """A launch as a graph node, with its own memory for the arguments."""

    def __init__(self, bound: BoundLaunch, handle: Any) -> None:
        kernel = bound.kernel
        self._arguments = Arguments(kernel.offsets, kernel.nbytes)
        self._arguments.bytes[:] = bound.image
        self._moving = [(self._arguments.putter(at), i) for at, i in bound.moving]
        self._moving += [(self._encoder(kernel, x), x.array) for x in bound.maps]
        self._params = params = cu.CUDA_KERNEL_NODE_PARAMS()
        params.func = kernel.function
        params.gridDimX, params.gridDimY, params.gridDimZ = bound.grid
        params.blockDimX, params.blockDimY, params.blockDimZ = kernel.block
        params.sharedMemBytes = kernel.dynamic_smem
        params.kernelParams = self._arguments.pointers
        self._set = driver.library().cuGraphExecKernelNodeSetParams_v2
        self._args = ctypes.c_void_p(int(handle)), ctypes.c_void_p(params.getPtr())

    def _encoder(self, kernel: Kernel, moving: MovingMap) -> Callable[[int], None]:
        """Return a function that encodes a tensor map of an address. It raises DeviceError."""
        encoder = kernel.encoder(moving.which, self._arguments.start)
        return lambda address: encoder.encode(address, *moving.numbers)

    def move(self, executable: ctypes.c_void_p, before: Addresses, addresses: Addresses) -> None:
        """Set the addresses of the caller's arrays in an executable graph. Raises DeviceError."""
        moved = False
        for put, i in self._moving:
            if before[i] != addresses[i]:
                put(addresses[i])
                moved = True
        if moved and (status := self._set(executable, *self._args)):
            raise driver.failed("cuGraphExecKernelNodeSetParams", status)


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
        executable = driver.call(cu.cuGraphInstantiate, self._graph, 0)
        # Not when the interpreter ends: the driver may be shut down by then.
        finalize(self, _destroy, executable, self._graph).atexit = False
        self._executable = ctypes.c_void_p(int(executable))
        self._launch = driver.library().cuGraphLaunch

    def replay(self, stream: int) -> None:
        """Enqueue the graph on a stream, given its handle. Raises DeviceError."""
        if status := self._launch(self._executable, ctypes.c_void_p(stream)):
            raise driver.failed("cuGraphLaunch", status)


def _destroy(executable: Any, graph: Any) -> None:
    """Destroy a graph, even while this thread captures a stream."""
    with suppress(DeviceError), driver.relaxed():
        cu.cuGraphExecDestroy(executable)
        cu.cuGraphDestroy(graph)


class Graph(Recording):
    """A CUDA graph of consecutive launches."""

    def __init__(self, launches: Sequence[BoundLaunch]) -> None:
        self.addresses: Addresses = (0,) * len(NAMES)

        def work(stream: int) -> None:
            for bound in launches:
                bound.launch(stream, self.addresses)

        super().__init__(work)
        handles = _chain_of_nodes(self._graph)
        self._nodes = [Node(*pair) for pair in zip(launches, handles, strict=True)]

    def move(self, addresses: Addresses) -> None:
        """Set the addresses of the caller's arrays for later replays."""
        for node in self._nodes:
            node.move(self._executable, self.addresses, addresses)
        self.addresses = addresses


def _chain_of_nodes(graph: Any) -> list[Any]:
    """Return the nodes of a graph in which each node depends on the previous one, in order."""
    _, count = driver.results(cu.cuGraphGetRootNodes, graph, 0)
    nodes, _ = driver.results(cu.cuGraphGetRootNodes, graph, count)
    chain = []
    while nodes:
        (node,) = nodes
        chain.append(node)
        *_, count = driver.results(_dependent_nodes, node, 0)
        nodes = driver.results(_dependent_nodes, node, count)[0] if count else []
    return chain
