"""Where DTensor may run the operators `gemmlab::mm`, `bmm`, `addmm` and `baddbmm` on shards.

The strategies are the ways of `placements.ways`; PyTorch chooses by its own model of costs and
moves the operands. Importing this module registers them. PyTorch's own operators (`@`, `mm`,
`linear`) need no more than `gemmlab.torch.enable()`: DTensor calls them on local tensors.
"""

from __future__ import annotations

from typing import Any

from gemmlab.core.packages import TORCH
from gemmlab.distributed import placements
from gemmlab.distributed.placements import PARTIAL, Placement
from gemmlab.linalg import operators

with TORCH.importing():
    import torch
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor.experimental import register_sharding

assert operators  # defines the operators
_OPERATORS = torch.ops.gemmlab


def _torch(placement: Placement) -> Any:
    if isinstance(placement, int):
        return Shard(placement)
    return Partial() if placement == PARTIAL else Replicate()


def _of_products(a: Any, b: Any, **_: Any) -> list[Any]:
    return [
        ([_torch(way.c)], [_torch(way.a), _torch(way.b)])
        for way in placements.ways(a.shape, b.shape)
    ]


def _of_sums(c: Any, a: Any, b: Any, **_: Any) -> list[Any]:
    found = []
    for way in placements.ways(a.shape, b.shape):
        (added,) = placements.broadcast((way.c,), len(a.shape), c.shape)
        found.append(([_torch(way.c)], [_torch(added), _torch(way.a), _torch(way.b)]))
    return found


register_sharding([_OPERATORS.mm.default, _OPERATORS.bmm.default])(_of_products)
register_sharding([_OPERATORS.addmm.default, _OPERATORS.baddbmm.default])(_of_sums)
