"""Every placement of operands and of results, and what of them moves."""

from __future__ import annotations

import itertools

import torch
from torch.distributed.tensor import Partial, Placement, Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode

import gemmlab
import gemmlab.distributed as gd
from gemmlab.distributed import links
from mesh_checks.common import KINDS, Mesh, check, matrix, pairs, placed, right


@check
def every_pair(mesh: Mesh, grid: Mesh | None) -> None:
    """All pairs of placements, overlapped and not, into every placement."""
    gd.use(links.HOST)  # the same plans on all devices
    a, b = matrix(1, 7, 5), matrix(2, 5, 9)
    overlapped = set()
    for at_a, at_b in pairs(mesh):
        x, y = placed(a, mesh, at_a), placed(b, mesh, at_b)
        for number, at in enumerate((None, *KINDS)):
            wanted, overlap = None if at is None else [at], number % 2 == mesh.size() % 2
            found = gd.matmul(x, y, out_placements=wanted, overlap=overlap)
            assert at is None or found.placements == (at,), (at_a, at_b, at, found.placements)
            right(found, a, b)
            way = gd.plan(x, y, out_placements=wanted, overlap=overlap).overlap
            assert overlap or way is None
            overlapped.add(way and way.what + way.axis)
    assert overlapped >= {None, "am", "ak", "bk", "bn"}, overlapped
    if grid is None:
        return
    # A fifth of the 256 pairs; test_mesh_plans.py has the arithmetic of all.
    for number, (at_a, at_b) in list(enumerate(pairs(grid)))[::5]:
        x, y = placed(a, grid, at_a), placed(b, grid, at_b)
        at = (KINDS[number % 3], KINDS[number // 3 % 3])
        found = gd.matmul(
            x, y, out_placements=at if number % 4 < 2 else None, overlap=number % 2 == 0
        )
        right(found, a, b)


@check
def many_shapes(mesh: Mesh, _: Mesh | None) -> None:
    """Shapes that do not divide, empty shards, vectors, stacks that broadcast."""
    shapes = [
        ((1, 6), (6, 1)), ((2, 3), (3, 17)), ((13, 1), (1, 13)), ((5,), (5, 4)), ((3, 5), (5,)),
        ((4,), (4,)), ((3, 4, 5), (5, 6)), ((3, 4, 5), (3, 5, 6)), ((1, 4, 5), (3, 5, 6)),
        ((2, 1, 4, 5), (3, 5, 6)), ((4, 5), (3, 5, 6)), ((0, 5), (5, 6)), ((4, 0), (0, 6)),
    ]  # fmt: skip
    for number, (shape_a, shape_b) in enumerate(shapes):
        a, b = matrix(3, *shape_a), matrix(4, *shape_b)
        for p in [Replicate(), Partial(), *map(Shard, range(len(shape_a)))]:
            q = [Replicate(), *map(Shard, range(len(shape_b)))][number % (len(shape_b) + 1)]
            x, y = placed(a, mesh, [p]), placed(b, mesh, [q])
            if isinstance(p, Shard):
                right(gd.matmul(x, y, out_placements=[Replicate()], overlap=True), a, b)
            else:
                right(gemmlab.matmul(x, y), a, b)


@check
def added_and_out(mesh: Mesh, _: Mesh | None) -> None:
    a, b = matrix(5, 7, 5), matrix(6, 5, 9)
    added = [((7, 9), Shard(0)), ((9,), Shard(0)), ((7, 1), Replicate()), ((7, 9), Partial())]
    for number, (at_a, at_b) in enumerate(itertools.product(KINDS, KINDS)):
        x, y = placed(a, mesh, [at_a]), placed(b, mesh, [at_b])
        shape, at = added[(number + number // 4 + mesh.size()) % 4]
        c = matrix(7, *shape)
        z = placed(c, mesh, [at])
        wanted = [[Partial()], None, [KINDS[number % 3]]][number % 3]
        z.requires_grad_(number % 2 == 0)
        found = gd.matmul(x, y, z, alpha=0.5, beta=-2, out_placements=wanted)
        assert wanted is None or list(found.placements) == wanted
        right(found.detach(), a, b, -2 * c.double(), 0.5)
        if z.requires_grad:
            found.redistribute(mesh, [Replicate()]).sum().backward()
            assert z.grad is not None
            each = -2.0 * 63 / c.numel()
            torch.testing.assert_close(z.grad.full_tensor().cpu(), torch.full_like(c, each))
        at = KINDS[(number + number // 4 + mesh.size()) % 3]
        out = placed(torch.full((7, 9), torch.nan), mesh, [at])
        address = out.to_local().data_ptr()
        assert gemmlab.matmul(x, y, out=out, alpha=2) is out
        assert out.to_local().data_ptr() == address and out.placements == (at,)
        right(out, a, b, factor=2)


@check
def nothing_moves_in_vain(mesh: Mesh, _: Mesh | None) -> None:
    a, b = matrix(1, 8, 8), matrix(2, 8, 8)
    cases: list[tuple[Placement, Placement, Placement | None, dict[str, int]]] = [
        (Shard(0), Replicate(), None, {}),
        (Replicate(), Shard(1), None, {}),
        (Shard(1), Shard(0), None, {}),
        (Replicate(), Replicate(), None, {}),
        (Replicate(), Replicate(), Shard(0), {}),
        (Shard(0), Shard(0), Shard(0), {"all_gather_into_tensor": 1}),
        (Shard(1), Shard(0), Shard(1), {"reduce_scatter_tensor": 1}),
        (Shard(1), Shard(0), Replicate(), {"all_reduce": 1}),
    ]
    for p, q, at, expected in cases:
        x, y = placed(a, mesh, [p]), placed(b, mesh, [q])
        wanted = None if at is None else [at]
        gd.matmul(x, y, out_placements=wanted, overlap=False)  # forms are compared here
        with CommDebugMode() as mode:
            gd.matmul(x, y, out_placements=wanted, overlap=False)
        counts = {str(op).rpartition(".")[2]: n for op, n in mode.get_comm_counts().items() if n}
        if "_allgather_base_" in counts:  # all_gather_into_tensor without DTensor
            counts["all_gather_into_tensor"] = counts.pop("_allgather_base_")
        assert counts == expected, (p, q, at, counts)
