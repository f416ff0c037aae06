"""Operands in pieces, in whole depth, as parts, in CUDA graphs: the same results and bits."""

from __future__ import annotations

import itertools

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard

import gemmlab
import gemmlab.distributed as gd
from gemmlab.distributed import overlap, symmetric
from gemmlab.errors import StateError
from mesh_checks.common import Mesh, U, check, matrix, placed, refused


@check
def the_same_bits(mesh: Mesh, _: Mesh | None) -> None:
    a, b = matrix(1, 40, 30), matrix(2, 30, 50)
    for at in (Shard(0), Shard(1)):
        x, y = placed(a, mesh, [at]), placed(b, mesh, [Shard(0)])
        runs = [
            gd.matmul(x, y, out_placements=[Shard(0)], overlap=True).to_local() for _ in range(3)
        ]
        assert all(torch.equal(run, runs[0]) for run in runs)


@check
def a_product_that_comes_again(mesh: Mesh, _: Mesh | None) -> None:
    """It follows its operands, also once it is replayed."""
    n = 40 if mesh.device_type == "cpu" else 1500
    x, y = (placed(matrix(seed, n, n), mesh, [Shard(0)]) for seed in (1, 2))
    for at in (Shard(0), Shard(1)):
        first = gd.matmul(x, y, out_placements=[at], overlap=True).to_local().clone()
        for _turn in range(10):
            y.to_local().mul_(2)
            found = gd.matmul(x, y, out_placements=[at], overlap=True)
            first *= 2
            assert torch.equal(found.to_local(), first)
        y.to_local().div_(1024)


@check
def captured(mesh: Mesh, _: Mesh | None) -> None:
    """CUDA graphs, between products outside of them, which share the symmetric memory."""
    if dist.get_backend() != "nccl":
        return
    n = 1500
    a, b = matrix(1, n, n), matrix(2, n, n)
    x, y = placed(a, mesh, [Shard(0)]), placed(b, mesh, [Shard(0)])
    depth = placed(a, mesh, [Shard(1)])  # its result is scattered
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        refused(StateError, "multiply once before the capture", lambda: gemmlab.matmul(x, x))
    for left, overlap_ in ((x, True), (depth, True), (x, False)):

        def call(left: DTensor = left, overlap_: bool = overlap_) -> DTensor:
            return gd.matmul(left, y, out_placements=[Shard(0)], overlap=overlap_)

        whole = call().to_local().clone()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = call()
        for _turn in range(5):
            y.to_local().mul_(2)
            graph.replay()
            eager = call()
            assert torch.equal(found.to_local(), eager.to_local())
        assert torch.equal(found.to_local(), 32 * whole)
        y.to_local().div_(32)


@check
def parts_travel(mesh: Mesh, _: Mesh | None) -> None:
    """Packed pieces give what float32 pieces give, also where float16 does not suffice."""
    if mesh.device_type == "cpu":
        return
    group, me, size = mesh.get_group(), mesh.get_rank(), mesh.size()
    m, n, k = 1100, 1300, 1500
    a, b = matrix(1, m, k), matrix(2, k, n)
    a[3, 700], b[900, 5] = torch.inf, torch.nan  # these rows and columns are computed in float32
    wide = torch.exp(8 * matrix(3, k, n)) * matrix(4, k, n)  # needs three bfloat16 parts
    for case, (left, right_) in {"normal": (a, b), "wide": (matrix(1, m, k), wide)}.items():
        expected = left.double() @ right_.double()
        size_of = (left.double().abs() @ right_.double().abs()).nan_to_num(posinf=1)
        ways = (("a", "m"), ("a", "k"), ("b", "k"), ("b", "n"), ("a", "turned"), ("b", "turned"))
        for (what, axis), precision, count in itertools.product(ways, (None, "fp16x3"), (1, 2)):
            if case == "wide" and precision:
                continue  # asked for, it has the accuracy of float16
            x, y = left.to(mesh.device_type), right_.to(mesh.device_type)
            turned = axis == "turned"
            position = {"am": 0, "bn": 1}.get(what + axis, 1 if what == "a" else 0)
            if turned:
                axis = {"a": "m", "b": "n"}[what]
            length = {"m": m, "n": n, "k": k}[axis]
            shard = (x if what == "a" else y).chunk(size, position)[me]
            x, y = (shard, y) if what == "a" else (x, shard)
            options = {"alpha": None, "precision": precision}
            memory = symmetric.shared(group, shard.device)
            memory._ways.clear()
            for _turn in range(8):  # the last ones are replayed
                found = overlap.gathered_product(
                    x, y, what, axis, length, count, group, options, parts=True, turned=turned
                )
                if precision:  # else pieces of a shard may be too small to be packed
                    assert all(way._moves for way in memory._ways.values()), "float32 has travelled"
                error = (found.cpu() - expected).abs() / size_of / U
                finite = expected.isfinite()
                assert torch.equal(found.cpu().isfinite(), finite), (case, what, axis)
                worst = float(error[finite].max())
                assert worst < 2 * k**0.5, (
                    f"{worst:.3g} u, {case}, {what} {axis} {precision} {count}"
                )


@check
def turned_shards(mesh: Mesh, _: Mesh | None) -> None:
    """Shards of the depth become pieces of another axis, also empty ones."""
    for m, n, k in ((9, 11, 7), (2, 3, 3)):
        a, b = matrix(1, m, k), matrix(2, k, n)
        x, y = placed(a, mesh, [Shard(1)]).to_local(), placed(b, mesh, [Shard(0)]).to_local()
        device, rest = x.device, (mesh.get_group(), {"alpha": None, "precision": None})
        for pieces in (1, 2):
            of_a = overlap.gathered_product(
                x, b.to(device), "a", "m", m, pieces, *rest, turned=True
            )
            of_b = overlap.gathered_product(
                a.to(device), y, "b", "n", n, pieces, *rest, turned=True
            )
            for found in (of_a, of_b):
                torch.testing.assert_close(found.cpu(), a @ b)
