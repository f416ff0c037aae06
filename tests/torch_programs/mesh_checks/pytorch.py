"""Derivatives, PyTorch's own operators and compiled graphs."""

from __future__ import annotations

import itertools

import torch
from torch.distributed.tensor import Partial, Replicate, Shard

import gemmlab
import gemmlab.torch as gt
from gemmlab.linalg import entry
from gemmlab.linalg.planned import no_saving
from gemmlab.torch import override
from mesh_checks.common import KINDS, Mesh, check, matrix, placed, right


@check
def gradients(mesh: Mesh, _: Mesh | None) -> None:
    for shape_a, shape_b in (((7, 5), (5, 9)), ((3, 4, 5), (5, 6))):
        a, b = matrix(8, *shape_a).requires_grad_(), matrix(9, *shape_b).requires_grad_()
        weight = matrix(10, *torch.matmul(a, b).shape)
        (torch.matmul(a, b) * weight).sum().backward()
        for at_a, at_b in list(itertools.product(KINDS, repeat=2))[a.dim() % 2 :: a.dim() - 1]:
            x = placed(a.detach(), mesh, [at_a]).requires_grad_()
            y = placed(b.detach(), mesh, [at_b]).requires_grad_()
            found = gemmlab.matmul(x, y)
            (
                found.redistribute(mesh, [Replicate()]) * placed(weight, mesh, [Replicate()])
            ).sum().backward()
            for mine, own, at in ((x, a, at_a), (y, b, at_b)):
                assert mine.grad is not None and own.grad is not None
                assert mine.grad.placements == (Replicate() if isinstance(at, Partial) else at,)
                found_grad = mine.grad.full_tensor().cpu()
                torch.testing.assert_close(found_grad, own.grad, rtol=1e-5, atol=1e-5)


@check
def pytorchs_operators(mesh: Mesh, _: Mesh | None) -> None:
    """`@` and `linear` under enable(), and gemmlab's own operators."""
    a, b, bias = matrix(1, 8, 5), matrix(2, 5, 9), matrix(3, 9)
    # GPUs take products that are faster, which such small ones are not.
    before = entry.faster
    entry.faster = lambda *args, **given: (entry.product(*args, **given), no_saving)
    override._enable(mesh.device_type.upper())
    try:
        for at_a, at_b in itertools.product(KINDS, KINDS):
            x, y = placed(a, mesh, [at_a]), placed(b, mesh, [at_b])
            taken = gt.report().taken
            right(x @ y, a, b)
            assert gt.report().taken == taken + 1
        linear = torch.nn.functional.linear
        found = linear(
            placed(a, mesh, [Shard(0)]),
            placed(b.T, mesh, [Shard(0)]),
            placed(bias, mesh, KINDS[:1]),
        )
        right(found, a, b, bias.double())
        # float64 products are the references.
        assert set(gt.report().left) <= {"not float32"}, gt.report()
    finally:
        gt.disable()
        entry.faster = before
    stack_a, stack_b = matrix(4, 3, 4, 5), matrix(5, 3, 5, 6)
    for at_a, at_b in itertools.product(KINDS, KINDS):
        x, y = placed(a, mesh, [at_a]), placed(b, mesh, [at_b])
        right(gt.mm(x, y), a, b)
        z = placed(bias, mesh, [Shard(0)])
        right(gt.addmm(z, x, y, beta=2, alpha=0.5), a, b, 2 * bias.double(), 0.5)
        right(
            gt.bmm(placed(stack_a, mesh, [at_a]), placed(stack_b, mesh, [at_b])), stack_a, stack_b
        )
    x = placed(a, mesh, [Shard(0)]).requires_grad_()
    gt.linear(x, placed(b.T, mesh, [Replicate()])).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad.full_tensor().cpu(), b.sum(1).expand(8, 5))


@check
def compiled(mesh: Mesh, _: Mesh | None) -> None:
    """In a compiled graph, DTensor moves operands by gemmlab's sharding rules."""
    a, b = matrix(1, 8, 6), matrix(2, 6, 10)
    x, y = placed(a, mesh, [Shard(0)]).requires_grad_(), placed(b, mesh, [Shard(0)])
    product = torch.compile(gemmlab.matmul, backend="aot_eager", fullgraph=True)
    found = product(x, y)
    right(found.detach(), a, b)
    found.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad.full_tensor().cpu(), b.sum(1).expand(8, 6))
