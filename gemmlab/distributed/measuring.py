"""What each process of `gemmlab distributed measure` runs: products on its mesh, timed and judged.

torchrun --nproc-per-node 4 -m gemmlab.distributed.measuring '{"sizes": [4096], …}' record.json
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gemmlab import distributed as gd
from gemmlab.core.packages import TORCH
from gemmlab.distributed import fused, links, overlap, overlap_plans, replays, symmetric
from gemmlab.distributed.contenders import BASELINE, Contenders
from gemmlab.distributed.plans import Overlap
from gemmlab.linalg import entry

# Multicast objects are not needed, and some systems forbid them.
os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")

with TORCH.importing():
    import torch
    import torch.distributed as dist
    from torch import Tensor
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard

LOAD_S = 0.2  # of a run under load, without rest
OVERLAPPED, PLAIN = "gemmlab, overlapped", "gemmlab, not overlapped"
GRAPHED = "gemmlab, overlapped, in a CUDA graph"
LOADED = "under load,"
LAUNCHED = 1024  # products of this size take the GPUs less time than the host
SUSTAINED = 16384  # products of this size last long enough for a GPU to lower its clocks
AHEAD = 20_000_000  # clocks


class Bench(Contenders):
    """What is measured, on a mesh of all processes."""

    def __init__(self, device: str, path: Path) -> None:
        super().__init__(device, path)
        self.mesh = init_device_mesh(device, (self.size,))

    # -- operands

    def matrix(self, rows: int, columns: int, seed: int) -> Tensor:
        """The same matrix on all processes, random and normal."""
        generator = torch.Generator(self.device).manual_seed(seed)
        return torch.randn(rows, columns, generator=generator, device=self.device)

    def place(self, x: Tensor, *at: Any, mesh: Any = None) -> DTensor:
        """Place a matrix that all processes have, without communication."""
        mesh, local = mesh or self.mesh, x
        for dimension, p in enumerate(at):
            if isinstance(p, Shard):
                shards = local.chunk(mesh.size(dimension), p.dim)
                local = shards[mesh.get_local_rank(dimension)]
        shape = {"shape": x.shape, "stride": x.stride()}
        return DTensor.from_local(local.clone(), mesh, list(at), run_check=False, **shape)

    # -- what is measured

    def fit(self, sizes: Sequence[int]) -> None:
        """Time all-gathers and products of n×n matrices, and plan with what these give."""
        gathers, copies, n = list[links.Point](), list[links.Point](), max(sizes)
        group = self.mesh.get_group()
        is_gpu = self.device.type == "cuda"
        pulls = self.size > 1 and is_gpu and symmetric.shares_memory(group, self.rank)
        for size in sizes:
            shard = self.matrix(-(-size // self.size), size, 1)
            whole = shard.new_empty(self.size * shard.shape[0], size)
            moved = links.ITEM * shard.numel() * (self.size - 1)
            seconds = self.typical(partial(dist.all_gather_into_tensor, whole, shard))
            gathers.append((moved, seconds))
            if pulls:
                pieces = partial(overlap.gathered, shard, 0, whole.shape[0], 1, group)
                memory, key = symmetric.shared(group, shard.device), ("copies", shard.data_ptr())
                replayed = partial(replays.run, memory, key, partial(_consume, pieces))
                placed = self.typical(partial(torch.empty_like(shard).copy_, shard))
                copies.append((moved, self.typical(replayed) - placed))
        link, copied = self.machine.inside, self.machine.copies
        if self.size > 1 and len(sizes) > 1:
            link = links.fit(link.name, gathers, f"fitted to all-gathers of {self.size} processes")
        if len(copies) > 1:
            copied = links.fit("copies", copies, f"fitted to copies of {self.size} processes")
        a = self.matrix(n, n, 1)
        seconds = self.typical(partial(entry.product, a, a))
        products: dict[str, Any] = {}
        if not is_gpu:
            products = {"operations": 2 * n**3 / seconds}
        elif n >= SUSTAINED:
            packing = sum(self.machine.packing(n, n, n, what) for what in "ab")
            products = {"sustained": 2 * n**3 / (seconds - packing)}
        if is_gpu and self.size > 1:
            products["call"] = self.launches()
        name = f"{self.size} processes of this machine"
        self.machine = replace(self.machine, name=name, inside=link, copies=copied, **products)
        self.points = {"all-gathers": gathers, "copies": copies, "product": (n, seconds)}
        gd.use(self.machine)
        self.write()

    def launches(self) -> float:
        """Seconds of the host for a product of DTensors."""
        n = LAUNCHED
        x, y = (self.place(self.matrix(n, n, seed), Shard(0)) for seed in (1, 2))
        return self.typical(partial(gd.matmul, x, y, out_placements=[Shard(0)]))

    def rows_by_rows(self, n: int) -> None:
        """Rows of a and of b on the processes, the result by rows: the issue of all-gathers."""
        a, b = self.matrix(n, n, 1), self.matrix(n, n, 2)
        x, y = self.place(a, Shard(0)), self.place(b, Shard(0))
        shard_a, shard_b = x.to_local(), y.to_local()
        whole = torch.empty_like(b) if n % self.size == 0 else None

        def by_hand() -> Tensor:
            assert whole is not None, f"{n} rows are not divided by {self.size}"
            dist.all_gather_into_tensor(whole, shard_b)
            return torch.as_tensor(entry.product(shard_a, whole))

        wanted = [Shard(0)]
        options: dict[str, dict[str, Any]] = {
            "gemmlab": {},
            OVERLAPPED: {"overlap": True},
            PLAIN: {"overlap": False},
        }
        contenders: dict[str, Callable[[], Any]] = {
            BASELINE: lambda: entry.product(a, b),
            "all-gather, then gemmlab": by_hand,
        }
        plans = {}
        for name, given in options.items():
            contenders[name] = partial(gd.matmul, x, y, out_placements=wanted, **given)
            plans[name] = gd.plan(x, y, out_placements=wanted, **given)
        for plan in overlap_plans.overlapping(overlap_plans.plain(plans[OVERLAPPED])):
            way = plan.overlap
            if way is None or way.what != "b":
                continue
            kind = "float16 parts" if way.parts else "float32"
            turned = ", turned first" * way.turned
            name = f"pieces: {way.pieces} of {kind} along {way.axis}{turned}"
            contenders[name] = partial(self.in_pieces, shard_a, shard_b, way, n)
            plans[name] = plan
        contenders["torch.matmul"] = lambda: torch.matmul(x, y)
        if self.device.type == "cuda":
            columns = self.place(b, Shard(1))
            contenders["fused_all_gather_matmul, columns of b"] = fused.gathered(x, columns)
        self.compare(f"rows·rows {n}", (n, n, n), contenders, (a, b), plans)
        self.same_bits(contenders[OVERLAPPED])
        for name in (OVERLAPPED, PLAIN):
            self.timeline(name, contenders[name])
        self.write()

    def under_load(self, n: int) -> None:
        """The product of `rows_by_rows` and that of one process, in long runs without rest."""
        a, b = self.matrix(n, n, 1), self.matrix(n, n, 2)
        x, y = self.place(a, Shard(0)), self.place(b, Shard(0))
        kept = self.run_s, self.rest_s, dict(self.alone)
        if self.device.type == "cuda":
            self.run_s, self.rest_s = LOAD_S, 0.0
        contenders: dict[str, Callable[[], Any]] = {
            BASELINE: lambda: entry.product(a, b),
            "gemmlab": partial(gd.matmul, x, y, out_placements=[Shard(0)]),
        }
        self.compare(f"{LOADED} {n}", (n, n, n), contenders)
        self.run_s, self.rest_s, self.alone = kept

    def in_graph(self, n: int) -> None:
        """The overlapped product of `rows_by_rows`, replayed: the host launches one graph."""
        a, b = self.matrix(n, n, 1), self.matrix(n, n, 2)
        x, y = self.place(a, Shard(0)), self.place(b, Shard(0))
        options: dict[str, Any] = {"out_placements": [Shard(0)], "overlap": True}
        call = partial(gd.matmul, x, y, **options)
        for _ in range(3):  # makes all that a capture cannot
            call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = call()

        def replay() -> DTensor:
            graph.replay()
            return result

        plan = gd.plan(x, y, **options)
        no_host = replace(plan.machine, call=0.0)
        plain = overlap_plans.plain(replace(plan, machine=no_host))
        same = next(x for x in overlap_plans.overlapping(plain) if x.overlap == plan.overlap)
        case = f"rows·rows {n}"
        self.compare(case, (n, n, n), {GRAPHED: replay}, (a, b), {GRAPHED: same})

    def in_pieces(self, a: Tensor, b: Tensor, way: Overlap, length: int) -> Tensor:
        """One way of overlapping, of all that the plan weighs."""
        group, options = self.mesh.get_group(), {"alpha": None, "precision": None}
        size = (way.what, way.axis, length, way.pieces)
        return overlap.gathered_product(
            a, b, *size, group, options, parts=way.parts, turned=way.turned
        )

    def row(self, name: str) -> dict[str, Any]:
        return next(row for row in reversed(self.rows) if row["by"] == name)

    def timeline(self, name: str, call: Callable[[], Any]) -> None:
        """Add to the last row of a contender what each process did in one run, in seconds."""
        dist.barrier()
        if self.device.type == "cuda":
            torch.cuda._sleep(AHEAD)  # the host gets ahead, as in a program
        with overlap.recording(self.device.type == "cuda") as recorder:
            call()
        events = recorder.events()
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, [event._asdict() for event in events])
        origin = min((event["start"] for events in found for event in events), default=0.0)
        self.row(name)["timeline"] = [
            [{**event, "start": event["start"] - origin, "end": event["end"] - origin}
             for event in events]
            for events in found
        ]  # fmt: skip

    def same_bits(self, call: Callable[[], Any]) -> None:
        """Add to that row whether three runs give the same bits."""
        first = call().to_local().clone()
        equal = all(torch.equal(first, call().to_local()) for _ in range(2))
        all_equal = torch.tensor([float(equal)], device=self.device)
        dist.all_reduce(all_equal, op=dist.ReduceOp.MIN)
        self.row(OVERLAPPED)["bits_repeat"] = bool(all_equal)

    def other_cases(self, n: int) -> None:
        """Other placements and shapes, each beside torch.matmul."""
        tall = 1_000_000 if self.device.type == "cuda" else 10 * n
        narrow = min(256, n)
        cases: list[tuple[str, tuple[int, int, int], Any, Any, list[Any]]] = [
            ("rows·whole", (n, n, n), [Shard(0)], [Replicate()], [Shard(0)]),
            ("columns·rows, scattered", (n, n, n), [Shard(1)], [Shard(0)], [Shard(0)]),
            ("tall", (tall, narrow, narrow), [Shard(0)], [Shard(0)], [Shard(0)]),
        ]
        meshes = [self.mesh] * len(cases)
        blocks = [Shard(0), Shard(1)]
        for grid in _grids(self.size):
            name = f"blocks on a mesh of {grid[0]}×{grid[1]},"
            cases.append((name, (n, n, n), blocks, blocks, blocks))
            meshes.append(init_device_mesh(self.device.type, grid))
        for (name, (m, columns, k), at_a, at_b, wanted), mesh in zip(cases, meshes, strict=True):
            a, b = self.matrix(m, k, 1), self.matrix(k, columns, 2)
            x, y = self.place(a, *at_a, mesh=mesh), self.place(b, *at_b, mesh=mesh)
            contenders: dict[str, Callable[[], Any]] = {
                BASELINE: partial(entry.product, a, b),
                "gemmlab": partial(gd.matmul, x, y, out_placements=wanted),
                "torch.matmul": partial(_placed_product, x, y, wanted),
            }
            plans = {"gemmlab": gd.plan(x, y, out_placements=wanted)}
            if self.device.type == "cuda" and at_a == [Shard(1)]:
                contenders["fused_matmul_reduce_scatter"] = fused.scattered(x, y)
            self.compare(f"{name} {m}", (m, columns, k), contenders, (a, b), plans)

    def programs(self, n: int) -> None:
        """A Newton–Schulz step and a training step of a tensor-parallel MLP."""
        g = self.place(self.matrix(n, n, 1) / n, Shard(0))

        def newton_schulz(product: Callable[..., Any]) -> Any:
            gram = product(g, g.mT)
            return 1.5 * g - 0.5 * product(gram, g)

        contenders: dict[str, Callable[[], Any]] = {
            "gemmlab": lambda: newton_schulz(
                lambda a, b: gd.matmul(a, b, out_placements=[Shard(0)])
            ),
            "torch.matmul": lambda: newton_schulz(
                lambda a, b: torch.matmul(a, b).redistribute(self.mesh, [Shard(0)])
            ),
        }
        self.compare(f"Newton–Schulz step {n}", (n, n, n), contenders, products=2)
        x = self.place(self.matrix(n, n, 2), Replicate())
        up = self.place(self.matrix(n, 4 * n, 3), Shard(1)).requires_grad_()
        down = self.place(self.matrix(4 * n, n, 4), Shard(0)).requires_grad_()

        def training(product: Callable[..., Any]) -> None:
            up.grad = down.grad = None
            y = product(product(x, up).tanh(), down).redistribute(self.mesh, [Replicate()])
            y.sum().backward()

        contenders = {
            "gemmlab": lambda: training(gd.matmul),
            "torch.matmul": lambda: training(torch.matmul),
        }
        self.compare(f"MLP training step {n}", (n, 4 * n, n), contenders, products=5)


def _placed_product(x: DTensor, y: DTensor, wanted: Sequence[Any]) -> DTensor:
    return torch.matmul(x, y).redistribute(x.device_mesh, wanted)


def _consume(start: Callable[[], Iterable[Any]], _: Any) -> None:
    for _, wait, _ in start():
        overlap.arrive(wait)


def _grids(size: int) -> list[tuple[int, int]]:
    """Meshes with two dimensions; a dimension of one process only if there are too few."""
    if size % 2:
        return []
    return [(2, size // 2)] if size > 2 else [(1, 2), (2, 1)]


def main() -> None:
    asked, path = json.loads(sys.argv[1]), Path(sys.argv[2])
    if asked["device"] == "cuda":
        own = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(own)
        dist.init_process_group("nccl", device_id=own)
    else:
        dist.init_process_group("gloo")
    try:
        bench = Bench(asked["device"], path)
        bench.fit(asked["sizes"])
        for n in asked["sizes"]:
            bench.rows_by_rows(n)
            if n <= SUSTAINED:  # larger ones are under load in any case
                bench.under_load(n)
        if asked["programs"]:
            n = asked["sizes"][(len(asked["sizes"]) - 1) // 2]
            bench.other_cases(n)
            bench.programs(n)
        if asked["device"] == "cuda":
            # Last: from the first capture on, all products pass one more barrier.
            for n in asked["sizes"]:
                bench.in_graph(n)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
