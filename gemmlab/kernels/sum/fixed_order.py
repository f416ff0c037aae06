"""A fixed order of additions on the whole device: the same bits in every run, whatever the grid.

Change from `loads-in-flight`: there each block adds its sum to one number, in the order in which
blocks happen to finish. `deterministic` avoids that with a single block, which leaves the device
idle. But an order need not be a queue. Here every chunk of x, 64 KB, has a sum of its own, added up
as a fixed tree, in a fixed place of the workspace: which block computed it leaves no trace.

A block that has finished draws a ticket. The one with the last ticket knows that all sums are
there, and adds them in their order, again as a fixed tree. So the bits depend on the size of a
chunk alone, not on the number of blocks, the GPU, or the address of x.

Traffic: 4·n bytes, and 8 bytes per chunk. Limiter: memory bandwidth, then, for a short moment, the
last block alone.
"""

from collections.abc import Mapping

import cutlass
from cutlass import Float32, Int32, Int64, cute

from gemmlab.kernels import common
from gemmlab.kernels.rung import Rung
from gemmlab.kernels.sum import loads_in_flight, simt
from gemmlab.kernels.sum.loads_in_flight import Config


@cute.jit
def is_last(tickets: cute.Pointer) -> cutlass.Boolean:
    """Whether this block is the last one to call; the others' stores are then visible to it."""
    tx, _, _ = cute.arch.thread_idx()
    blocks, _, _ = cute.arch.grid_dim()
    sTicket = cute.make_tensor(cute.arch.alloc_smem(Int32, 1), cute.make_layout(1))
    if tx == 0:
        cute.arch.fence_acq_rel_gpu()  # thread 0 has stored the block's sums
        sTicket[0] = cute.arch.atomic_add(tickets, Int32(1), sem="relaxed", scope="gpu")
        cute.arch.fence_acq_rel_gpu()
    cute.arch.sync_threads()
    return sTicket[0] == blocks - 1


@cute.kernel
def kernel(
    x: cute.Pointer,
    out: cute.Pointer,
    n: Int64,
    workspace: cute.Pointer,
    config: cutlass.Constexpr,
):
    tx, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    chunks = cute.ceil_div(n, config.chunk)
    sums = cute.make_tensor(workspace + 1, cute.make_layout(chunks))
    chunk = Int64(bx)
    while chunk < chunks:
        value = loads_in_flight.chunk_sum(x, n, chunk * config.chunk, config)
        value = simt.block_sum(value, config.threads)
        if tx == 0:
            sums[chunk] = value
        cute.arch.sync_threads()  # the next chunk uses the same shared memory
        chunk += blocks

    tickets = cute.make_ptr(Int32, workspace.toint(), workspace.memspace)
    if is_last(tickets):
        total = Float32(0)
        chunk = Int64(tx)
        while chunk < chunks:
            total += sums[chunk]
            chunk += config.threads
        total = simt.block_sum(total, config.threads)
        if tx == 0:
            cute.make_tensor(out, cute.make_layout(1))[0] += total
            cute.make_tensor(tickets, cute.make_layout(1))[0] = 0  # for the next launch


def workspace(config: Config, shape: Mapping[str, int]) -> int:
    """Bytes: a ticket counter and the sum of each chunk."""
    return 4 * (1 + common.ceil_div(shape["n"], config.chunk))


RUNGS = (
    Rung(
        name="fixed-order",
        problem="sum",
        change="a sum per chunk, added in order",
        kernel=kernel,
        config=Config(),
        geometry=loads_in_flight.geometry,
        choices={"threads": (128, 256, 512, 1024), "loads": (2, 4, 8, 16), "blocks": (264, 65536)},
        workspace=workspace,
    ),
)
