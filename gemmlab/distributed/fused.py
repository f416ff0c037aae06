"""PyTorch's own products that overlap with communication, to compare with."""

from __future__ import annotations

from collections.abc import Callable

from gemmlab.core.packages import TORCH

with TORCH.importing():
    import torch
    from torch.distributed import _symmetric_memory
    from torch.distributed.tensor import DTensor, Shard

assert _symmetric_memory  # registers the operators


def gathered(x: DTensor, y: DTensor) -> Callable[[], DTensor]:
    """A product of rows of x, which are gathered, with columns of y."""
    mesh, shard, columns = x.device_mesh, x.to_local(), y.to_local().contiguous()
    group = mesh.get_group().group_name

    def call() -> DTensor:
        _, (part,) = torch.ops.symm_mem.fused_all_gather_matmul(shard, [columns], 0, group)
        return DTensor.from_local(part, mesh, [Shard(1)], run_check=False)

    return call


def scattered(x: DTensor, y: DTensor) -> Callable[[], DTensor]:
    """A product of columns of x with rows of y, which is scattered while it is computed."""
    mesh = x.device_mesh
    given = x.to_local().contiguous(), y.to_local(), "sum", 0, mesh.get_group().group_name

    def call() -> DTensor:
        part = torch.ops.symm_mem.fused_matmul_reduce_scatter(*given)
        return DTensor.from_local(part, mesh, [Shard(0)], run_check=False)

    return call
