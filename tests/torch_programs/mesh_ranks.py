"""What processes of meshes run: started by the tests of meshes, once for all checks.

    python mesh_ranks.py cpu 2 3 4

With "cuda", each process has a GPU and the group is NCCL's. If there are too few GPUs, all
processes share one, which symmetric memory allows if TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES is
set, and the group is gloo's.

PyTorch is imported once; then the processes of each world are forked, one world after the other.
A check that fails leaves the processes out of step: new ones run the checks after it.
The output is JSON: world → check → what went wrong.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import runpy
import signal
import socket
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode

import gemmlab
import gemmlab.distributed as gd
import gemmlab.torch as gt
from gemmlab.distributed import links, measuring, overlap, pulling
from gemmlab.errors import (
    ArrayError,
    DTypeError,
    InputError,
    PeerError,
    PlacementError,
    ShapeError,
    StateError,
)
from gemmlab.torch import override

DEVICE = sys.argv[1] if __name__ == "__main__" else "cpu"
KINDS: tuple[Placement, ...] = (Shard(0), Shard(1), Replicate(), Partial())
U = 2.0**-24
TIMEOUT = timedelta(seconds=60)
GRACE_S = 10.0  # for the others to end, after a process has failed

Mesh = Any
CHECKS: dict[str, Callable[[Mesh, Mesh | None], None]] = {}


def check(function: Callable[[Mesh, Mesh | None], None]) -> Callable[[Mesh, Mesh | None], None]:
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
        local.to(DEVICE, copy=True),
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


@check
def pytorchs_operators(mesh: Mesh, _: Mesh | None) -> None:
    """`@` and `linear` under enable(), and gemmlab's own operators."""
    a, b, bias = matrix(1, 8, 5), matrix(2, 5, 9), matrix(3, 9)
    before = override._predicted
    override._predicted = lambda *_: ("", 0.0)  # type: ignore[assignment]
    override._enable(DEVICE.upper())
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
        override._predicted = before
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
    if DEVICE == "cpu":
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
            x, y = left.to(DEVICE), right_.to(DEVICE)
            turned = axis == "turned"
            position = {"am": 0, "bn": 1}.get(what + axis, 1 if what == "a" else 0)
            if turned:
                axis = {"a": "m", "b": "n"}[what]
            length = {"m": m, "n": n, "k": k}[axis]
            shard = (x if what == "a" else y).chunk(size, position)[me]
            x, y = (shard, y) if what == "a" else (x, shard)
            options = {"alpha": None, "precision": precision}
            memory = pulling.shared(group, shard.device)
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
    group, options = mesh.get_group(), {"alpha": None, "precision": None}
    for m, n, k in ((9, 11, 7), (2, 3, 3)):
        a, b = matrix(1, m, k), matrix(2, k, n)
        for what, count in itertools.product("ab", (1, 2)):
            x, y = (placed(x, mesh, [at]) for x, at in ((a, Shard(1)), (b, Shard(0))))
            local = (x.to_local(), b) if what == "a" else (a, y.to_local())
            axis, length = ("m", m) if what == "a" else ("n", n)
            found = overlap.gathered_product(
                *(x.to(DEVICE) for x in local),
                what,
                axis,
                length,
                count,
                group,
                options,
                turned=True,
            )
            torch.testing.assert_close(found.cpu(), a @ b)


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
def measuring_products(mesh: Mesh, _: Mesh | None) -> None:
    """What `gemmlab distributed measure` runs, small."""
    if DEVICE != "cpu":
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.json"
        bench = measuring.Bench("cpu", path)
        bench.fit([16, 32])
        gd.use(None)  # the forms of other checks are planned with the built-in links
        bench.rows_by_rows(32)
        bench.other_cases(16)
        bench.programs(16)
        assert not [row for row in bench.rows if "failed" in row], bench.rows
        assert len(bench.rows) == 25
        assert all(row["error"] is None or row["error"] < 10 for row in bench.rows)
        ours = [row for row in bench.rows if row["by"].startswith("gemmlab") and row["error"]]
        assert all(row["predicted"] > 0 for row in ours)
        repeat, plain = [row for row in bench.rows if "timeline" in row]
        assert [[e["what"] for e in events] for events in plain["timeline"]] == [
            ["wait", "multiply"]
        ] * mesh.size()
        assert repeat["bits_repeat"] and len(repeat["timeline"]) == mesh.size()
        for events in repeat["timeline"]:
            assert {event["what"] for event in events} == {"multiply", "wait"}
            assert all(0 <= event["start"] <= event["end"] for event in events)
        assert path.exists() == (mesh.get_rank() == 0)


@check
def a_rank_that_does_not_answer(mesh: Mesh, _: Mesh | None) -> None:
    if dist.get_backend() == "nccl":
        return  # PyTorch ends a process whose collective takes too long
    group = dist.new_group(timeout=timedelta(seconds=1))
    impatient = DeviceMesh.from_group(group, DEVICE)
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


def checks(size: int) -> dict[str, Callable[[Mesh, Mesh | None], None]]:
    """The checks of a world; those that take long and depend little on its size are for one."""
    costly = {
        "added_and_out": 4,
        "gradients": 3,
        "pytorchs_operators": 3,
        "compiled": 2,
        "measuring_products": 4,
    }
    if DEVICE == "cuda":
        costly = {"compiled": 2}
    return {name: check for name, check in CHECKS.items() if costly.get(name, size) == size}


def work(rank: int, size: int, names: Sequence[str], folder: Path) -> None:
    """Run these checks as one process of a world, and write what went wrong."""
    backend = "gloo"
    if DEVICE == "cuda":
        own = torch.cuda.device_count() >= size
        torch.cuda.set_device(rank if own else 0)
        os.environ["LOCAL_WORLD_SIZE"] = str(size)
        backend = "nccl" if own else "gloo"
    address = f"file://{folder / 'rendezvous'}"
    dist.init_process_group(
        backend, init_method=address, rank=rank, world_size=size, timeout=TIMEOUT
    )
    mesh = init_device_mesh(DEVICE, (size,))
    grid = init_device_mesh(DEVICE, (2, 2)) if size == 4 else None
    for name in names:
        text = ""
        try:
            CHECKS[name](mesh, grid)
            if DEVICE == "cuda":
                torch.cuda.synchronize()
        except BaseException:
            text = f"process {rank}: {traceback.format_exc()}"
        (folder / f"{name}.{rank}").write_text(text)
        if text:
            os._exit(1)


def start(rank: int, size: int, names: Sequence[str], folder: Path) -> int:
    """Fork one process of a world; return its id."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work(rank, size, names, folder)
            code = 0
        except BaseException:  # before the first check
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return child


def ended(children: Sequence[int]) -> list[int]:
    """Wait for processes; return their exit codes. After one has failed, others are soon killed."""
    codes: dict[int, int] = {}
    deadline = float("inf")
    while len(codes) < len(children):
        for child in set(children) - set(codes):
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                codes[child] = os.waitstatus_to_exitcode(status)
                if codes[child]:
                    deadline = min(deadline, time.monotonic() + GRACE_S)
            elif time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
    return [codes[child] for child in children]


def run(size: int) -> dict[str, str]:
    """Fork the processes of a world; return what went wrong, by check."""
    found: dict[str, str] = {}
    names = list(checks(size))
    while names:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            codes = ended([start(rank, size, names, folder) for rank in range(size)])
            for check_name in names:
                lives = size - (check_name == "z_a_rank_that_dies")
                paths = [folder / f"{check_name}.{rank}" for rank in range(lives)]
                texts = [path.read_text() if path.exists() else None for path in paths]
                told = [
                    f"process {rank} did not end it; exit codes {codes}" if text is None else text
                    for rank, text in enumerate(texts)
                ]
                found[check_name] = "\n".join(filter(None, told))
                if found[check_name]:
                    break
            names = names[names.index(check_name) + 1 :]
    return found


def example() -> str:
    """Run examples/torchrun.py as the only process of a world; return what it prints."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    world = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if not child:
            os.environ |= world
            try:
                with contextlib.redirect_stdout(output):
                    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "torchrun.py"))
            except BaseException:
                traceback.print_exc(file=output)
            finally:
                output.flush()
                os._exit(0)
        os.waitpid(child, 0)
        output.seek(0)
        return output.read()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found: dict[str, Any] = {size: run(int(size)) for size in sys.argv[2:]}
    if DEVICE == "cpu":
        found["example"] = example()
    print(json.dumps(found))
