"""What the checks of products on meshes share; each runs in all processes of a mesh."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

KINDS: tuple[Placement, ...] = (Shard(0), Shard(1), Replicate(), Partial())
U = 2.0**-24

Mesh = Any
Check = Callable[[Mesh, Mesh | None], None]  # of a mesh with one dimension, and one of 2×2
CHECKS: dict[str, Check] = {}


def check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


def matrix(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def placed(x: torch.Tensor, mesh: Mesh, at: Sequence[Placement]) -> DTensor:
    """Make a DTensor without communication; parts of a sum differ."""
    local = x
    for dimension, p in enumerate(at):
        i, count = mesh.get_local_rank(dimension), mesh.size(dimension)
        if isinstance(p, Shard):
            axis = p.dim % x.dim()
            shards = list(local.chunk(count, axis))
            empty = local.narrow(axis, 0, 0)
            local = shards[i] if i < len(shards) else empty
        elif isinstance(p, Partial):
            local = local * (2.0 ** -min(i + 1, count - 1))  # exact, and they add up to 1
    return DTensor.from_local(
        local.to(mesh.device_type, copy=True),
        mesh,
        list(at),
        run_check=False,
        shape=x.shape,
        stride=x.stride(),
    )


def right(
    found: DTensor, a: torch.Tensor, b: torch.Tensor, added: Any = 0, factor: float = 1
) -> None:
    """Fail unless the whole result is within float32's error bound."""
    whole = found.full_tensor().cpu()
    expected = factor * (a.double() @ b.double()) + added
    assert whole.shape == expected.shape, (whole.shape, expected.shape)
    size = abs(factor) * (a.double().abs() @ b.double().abs()) + abs(torch.as_tensor(added))
    depth = a.shape[-1] + 8
    worst = ((whole - expected).abs() / (depth * U * size + 1e-300)).max() if whole.numel() else 0
    assert worst <= 1, f"{float(worst):.3g} of the bound, {found.placements}"


def refused(kind: type[Exception], words: str, call: Callable[[], object]) -> None:
    with pytest.raises(kind) as found:
        call()
    assert words in str(found.value)


def pairs(mesh: Mesh) -> Iterator[tuple[tuple[Placement, ...], tuple[Placement, ...]]]:
    every = list(itertools.product(KINDS, repeat=mesh.ndim))
    return itertools.product(every, every)
