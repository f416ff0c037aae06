"""What is refused, processes that differ, that do not answer, and that die."""

from __future__ import annotations

import os
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Replicate, Shard

import gemmlab
import gemmlab.distributed as gd
from gemmlab.errors import (
    ArrayError,
    DTypeError,
    InputError,
    PeerError,
    PlacementError,
    ShapeError,
)
from mesh_checks.common import Mesh, check, matrix, placed, refused, right


@check
def errors(mesh: Mesh, grid: Mesh | None) -> None:
    x, y = placed(matrix(1, 7, 5), mesh, [Shard(0)]), placed(matrix(2, 5, 9), mesh, [Shard(0)])
    refused(ShapeError, "5 columns of a do not meet 7 rows of b", lambda: gemmlab.matmul(x, x))
    refused(ArrayError, "distribute_tensor(b, mesh", lambda: gemmlab.matmul(x, y.to_local()))
    refused(DTypeError, "must be float32", lambda: gemmlab.matmul(x.double(), y))
    refused(InputError, "beta", lambda: gemmlab.matmul(x, y, x))
    refused(InputError, "omit stream", lambda: gemmlab.matmul(x, y, stream=0))
    refused(ShapeError, "does not broadcast", lambda: gemmlab.matmul(x, y, x, beta=1))
    refused(ShapeError, "out has shape", lambda: gemmlab.matmul(x, y, out=x))
    for at, words in (
        ([Shard(2)], "S(0), S(1), R, P can"),
        ([Partial("max")], "redistribute first"),
        ([], "it needs 1"),
    ):
        refused(PlacementError, words, lambda at=at: gd.matmul(x, y, out_placements=at))  # type: ignore[misc]
    if grid is not None:
        z = placed(matrix(2, 5, 9), grid, [Shard(0), Replicate()])
        refused(PlacementError, "one mesh", lambda: gemmlab.matmul(x, z))


@check
def ranks_that_differ(mesh: Mesh, _: Mesh | None) -> None:
    """One process has another shape: all say so, nothing hangs, and the mesh still works."""
    extra = mesh.get_rank() == 1
    x = placed(matrix(1, 17 + extra, 5), mesh, [Shard(0)])
    y = placed(matrix(2, 5, 9), mesh, [Shard(0)])
    refused(ShapeError, "nothing was moved: some have a (17, 5)", lambda: gemmlab.matmul(x, y))
    a = matrix(1, 17, 5)
    right(gemmlab.matmul(placed(a, mesh, [Shard(0)]), y), a, matrix(2, 5, 9))


@check
def a_rank_that_does_not_answer(mesh: Mesh, _: Mesh | None) -> None:
    if dist.get_backend() == "nccl":
        return  # PyTorch ends a process whose collective takes too long
    group = dist.new_group(timeout=timedelta(seconds=1))
    impatient = DeviceMesh.from_group(group, mesh.device_type)
    x = placed(matrix(1, 8, 8), impatient, [Shard(0)])
    if mesh.get_rank():
        refused(PeerError, "ended or does not answer", lambda: gemmlab.matmul(x, x))
    dist.barrier()


@check
def z_a_rank_that_dies(mesh: Mesh, _: Mesh | None) -> None:
    """The last check: the others raise PeerError, in a known form and in a new one."""
    if dist.get_backend() == "nccl":
        return
    x, y = placed(matrix(1, 64, 64), mesh, [Shard(0)]), placed(matrix(2, 64, 64), mesh, [Shard(0)])
    gd.matmul(x, y, overlap=True)
    dist.barrier()
    if mesh.get_rank() == mesh.size() - 1:
        os._exit(0)
    refused(PeerError, "ended or does not answer", lambda: gd.matmul(x, y, overlap=True))
    z = placed(matrix(2, 64, 63), mesh, [Shard(0)])
    refused(PeerError, "ended or does not answer", lambda: gd.matmul(x, z))
