"""Plans of products on meshes, carried out with NumPy: no processes, no PyTorch."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gemmlab.distributed as gd
from gemmlab.distributed import links, overlap_plans, placements, planning
from gemmlab.errors import DTypeError, InputError, PlacementError, ShapeError

KINDS = (0, 1, "R", "P")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def shard(x, at, mesh, rank):
    """The shard of a process, for an array that is whole; terms of sums differ."""
    for p, count, i in zip(at, mesh, rank, strict=True):
        if isinstance(p, int):
            size = -(-x.shape[p] // count)
            x = x.take(range(min(i * size, x.shape[p]), min((i + 1) * size, x.shape[p])), axis=p)
        elif p == "P":
            x = x * 2.0 ** -min(i + 1, count - 1)
    return x


def whole(shards, at, mesh):
    """The array of which these are shards, by the coordinates of processes."""
    if not mesh:
        return shards[()]
    parts = [
        whole({rank[1:]: x for rank, x in shards.items() if rank[0] == i}, at[1:], mesh[1:])
        for i in range(mesh[0])
    ]
    if isinstance(at[0], int):
        return np.concatenate(parts, at[0])
    if at[0] == "P":
        return sum(parts)
    assert all(np.array_equal(part, parts[0]) for part in parts)
    return parts[0]


@pytest.mark.parametrize("mesh", [(3,), pytest.param((2, 3), marks=pytest.mark.slow)], ids=str)
def test_every_pair_of_placements_multiplies(mesh):
    a, b = np.random.default_rng(0).standard_normal((2, 8, 8))
    a, b = a[:7, :5], b[:5]
    every: list[placements.Placements] = list(itertools.product(KINDS, repeat=len(mesh)))
    for at in itertools.product(every, every):
        plan = planning.plan(a.shape, b.shape, mesh, at, None, links.H200)
        ranks = itertools.product(*map(range, mesh))
        # DTensor cuts an axis by one dimension of the mesh after the other; so does `shard`.
        found = {r: shard(a, plan.at_a, mesh, r) @ shard(b, plan.at_b, mesh, r) for r in ranks}
        order = plan.at_c, mesh
        np.testing.assert_allclose(
            whole(found, *order), a @ b, atol=1e-12, err_msg=str((at, plan.ways))
        )
        for old, new in zip(at[0] + at[1], plan.at_a + plan.at_b, strict=True):
            assert new != "P" or old == "P"


@pytest.mark.parametrize("seed", range(4))
def test_stacks_multiply(seed):
    rng = np.random.default_rng(seed)
    for a_shape, b_shape in (
        ((3, 4, 5), (5, 6)),
        ((2, 1, 4, 5), (3, 5, 6)),
        ((1, 4, 5), (3, 5, 1)),
    ):
        a, b = rng.standard_normal(a_shape), rng.standard_normal(b_shape)
        of_a, of_b = (
            [int(axis) if axis < x.ndim else "R" for axis in rng.integers(x.ndim + 1, size=2)]
            for x in (a, b)
        )
        plan = planning.plan(a_shape, b_shape, (2, 2), (of_a, of_b), None, links.H200)
        ranks = itertools.product(range(2), range(2))
        found = {r: shard(a, plan.at_a, (2, 2), r) @ shard(b, plan.at_b, (2, 2), r) for r in ranks}
        np.testing.assert_allclose(whole(found, plan.at_c, (2, 2)), a @ b, atol=1e-12)


N = 8192


@pytest.mark.parametrize(
    ("at", "wanted", "ways", "moved"),
    [
        (("S0", "R"), None, ("rows",), 0),
        (("R", "S1"), None, ("columns",), 0),
        (("S1", "S0"), None, ("depth",), 0),
        (("R", "R"), None, ("everything",), 0),
        (("R", "R"), "S0", ("rows",), 0),
        (("S0", "S0"), None, ("rows",), 3 / 4),
        (("S(1)", "S(1)"), None, ("columns",), 3 / 4),
        (("S1", "S0"), "S(0)", ("depth",), 3 / 4),
    ],
)
def test_the_least_is_moved(at, wanted, ways, moved):
    plan = gd.plan((N, N), (N, N), mesh=(4,), placed=at, out_placements=wanted)
    assert plan.ways == ways
    assert overlap_plans.plain(plan).moved == round(moved * 4 * N * N)
    # A process that receives parts is spared most of the packing.
    spared = plan.machine.packing(N, N, N, "b") if plan.overlap and plan.overlap.parts else 0
    assert plan.total >= max(plan.communication * (plan.overlap is None), plan.product - spared)


@pytest.mark.parametrize("machine", [links.H100, links.H200], ids=lambda machine: machine.name)
def test_nothing_moves_for_a_gain_that_is_not_sure(machine):
    options = {"mesh": (4,), "placed": ("S0", "R"), "out_placements": "S0", "machine": machine}
    plan = gd.plan((N, N), (N, N), **options)
    assert plan.ways == ("rows",) and not plan.transfers


def test_what_is_gathered_along_columns_is_copied_into_place():
    rows, columns = (
        planning.transfers("a", (N, N), (axis,), ("R",), (4,), links.H100) for axis in (0, 1)
    )
    assert rows is not None and columns is not None
    assert rows[0].size == columns[0].size
    placed = columns[0].seconds - rows[0].seconds
    assert math.isclose(placed, 2 * 4 * N * N / links.MEMORY)


def test_summa_on_nodes_that_do_not_exist():
    at = ("S(0),S(1)", "S(0),S(1)")
    plan = gd.plan((N, N), (N, N), mesh=(16, 8), placed=at, out_placements="S(0),S(1)")
    assert plan.algorithm == "2-D SUMMA"
    between, inside = plan.machine.links((16, 8))
    assert (between, inside) == (links.H200.between, links.H200.inside)
    by_dimension = {move.dimension: move for move in plan.transfers}
    assert by_dimension[1].size == 4 * (N // 16) * N * 7 // 8  # rows of a, over NVLink
    assert by_dimension[0].size == 4 * N * (N // 8) * 15 // 16  # columns of b, over the network
    text = str(plan)
    for words in ("16×8 processes", "NVLink", "InfiniBand", "not measured", "of memory", "next is"):
        assert words in text


def test_overlap_hides_at_most_the_transfer_and_only_if_faster():
    for n in (256, 4096, 32768):
        with_it, without = (gd.plan((n, n), (n, n), mesh=(4,), overlap=x) for x in (None, False))
        assert links.H200.copies is not None
        copied = links.H200.copies.seconds(with_it.moved)
        spared = with_it.machine.packing(n, n, n, "b")
        assert max(with_it.product - spared, copied) * 0.99 <= with_it.total <= without.total
    assert gd.plan((256, 256), (256, 256), mesh=(4,)).overlap is None
    large = gd.plan((32768, 32768), (32768, 32768), mesh=(4,)).overlap
    assert large is not None and (large.what, large.axis, large.turned) == ("b", "n", True)
    forced = gd.plan((256, 256), (256, 256), mesh=(4,), overlap=True)
    assert forced.overlap is not None


def test_parts_travel_where_they_are_read_and_pay():
    def parts(machine=links.H200, mesh=(4,), shape: tuple[int, ...] = (8192, 8192)):
        at = (f"S({len(shape) - 2})",) * 2
        plan = gd.plan(shape, shape, mesh=mesh, placed=at, machine=machine, overlap=True)
        return plan.overlap is not None and plan.overlap.parts

    assert parts()
    assert not parts(replace(links.H200, copies=None))  # pieces are sent
    assert not parts(links.HOST)
    assert not parts(mesh=(32,))  # nodes do not read each other's memory
    assert not parts(shape=(64, 64))  # multiplied in float32
    assert not parts(shape=(1, 8192, 8192))
    text = str(gd.plan((16384, 16384), (16384, 16384), mesh=(4,)))
    words = "along n, turned first, of float16 parts, multiply as they arrive"
    assert "all-to-all     of b" in text and words in text


def test_a_mesh_of_one_process_moves_nothing():
    for of_a, of_b in itertools.product(["S0", "S1", "R", "P"], repeat=2):
        assert not gd.plan(
            (64, 64), (64, 64), mesh=(1,), placed=(of_a, of_b), overlap=True
        ).transfers


def test_memory_counts_what_a_process_holds():
    plan = gd.plan((1024, 512), (512, 2048), mesh=(4,), placed=("S0", "R"), overlap=False)
    shard_a, b, c = 256 * 512, 512 * 2048, 256 * 2048
    assert plan.memory == 4 * (2 * shard_a + 2 * b + c)  # both also as parts
    n = 8192
    shard, whole = 4 * n * n // 4, 4 * n * n
    plan = gd.plan((n, n), (n, n), mesh=(4,))
    assert (
        plan.overlap is not None and plan.overlap.parts
    )  # shards of a, b, c; symmetric memory; parts of a's shard and of b
    assert plan.memory == 3 * shard + 4 * shard + shard + whole


def test_a_fitted_link_reproduces_what_was_measured():
    for n, seconds in links.ALL_GATHERS:
        assert math.isclose(links.H200.inside.seconds(3 * n * n), seconds, rel_tol=0.08)
    points = [(size, 2e-5 + size / 1e11) for size in (1e6, 1e7, 1e9)]
    link = links.fit("x", points, "here")
    assert math.isclose(link.start, 2e-5, rel_tol=1e-6) and math.isclose(
        link.rate, 1e11, rel_tol=1e-6
    )
    assert links.fit("x", [(1e6, 1e-4), (2e6, 1e-4)], "here").start >= 0
    with pytest.raises(InputError, match="two sizes"):
        links.fit("x", points[:1], "here")


# All-gathers of b, then products of rows, on 2 and 4 H200: TFLOPS of n = 4096 … 32768.
BY_HAND = {2: (256, 355, 384, 383), 4: (310, 532, 679, 713)}


@pytest.mark.parametrize("count", BY_HAND)
def test_predicted_times_are_near_measured_ones(count):
    for n, measured in zip((4096, 8192, 16384, 32768), BY_HAND[count], strict=True):
        moved = 4 * n * n * (count - 1) / count
        seconds = links.H200.inside.seconds(moved) + links.H200.product(n // count, n, n)
        assert math.isclose(2 * n**3 / seconds / 1e12, measured, rel_tol=0.09), n


@pytest.mark.parametrize("count", [2, 4])
def test_predicted_times_are_near_those_of_the_records(count):
    """By the machine for H100: links of four, products as on an H200."""
    record = json.loads((BENCHMARKS / "h100" / f"mesh-{count}.json").read_text())
    seconds = {(row["case"], row["by"]): row["seconds"] for row in record["rows"]}
    sizes = sorted(
        {row["shape"][0] for row in record["rows"] if row["case"].startswith("rows·rows")}
    )
    assert sizes[:3] == [4096, 8192, 16384]
    for n in sizes:
        for overlap, by in {False: "all-gather, then gemmlab", None: "gemmlab"}.items():
            plan = gd.plan(
                *((n, n), (n, n)), mesh=(count,), out_placements="S(0)",
                machine=links.H100, overlap=overlap,
            )  # fmt: skip
            assert math.isclose(plan.total, seconds[f"rows·rows {n}", by], rel_tol=0.15), (n, by)
    blocks = "S(0),S(1)"
    others: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], str]] = {
        "tall 1000000": ((1_000_000, 256), (256, 256), (count,), "S(0)")
    }
    for grid in {2: [(1, 2), (2, 1)], 4: [(2, 2)]}[count]:
        case = f"blocks on a mesh of {grid[0]}×{grid[1]}, 8192"
        others[case] = ((8192, 8192), (8192, 8192), grid, blocks)
    for case, (a, b, mesh, at) in others.items():
        plan = gd.plan(a, b, mesh=mesh, placed=(at, at), out_placements=at, machine=links.H100)
        assert math.isclose(plan.total, seconds[case, "gemmlab"], rel_tol=0.15), case


def test_a_machine_is_saved_and_used(tmp_path):
    path = tmp_path / "machine.json"
    wire = links.Link("wire", 1e-3, 1e6, "here")
    machine = links.Machine("mine", wire, wire, per_node=2)
    machine.save(path)
    assert links.load(path) == machine
    gd.use(machine)
    assert links.current("NVIDIA H200") is machine is links.current("")
    gd.use(None)
    for gpu, own in {"NVIDIA H200": links.H200, "NVIDIA H100 80GB HBM3": links.H100}.items():
        assert links.current(gpu) is own
    assert links.current("") is links.HOST
    path.write_text("{}")
    with pytest.raises(InputError, match=r"machine\.json is no model of links"):
        links.load(path)
    with pytest.raises(DTypeError, match="must be a Machine"):
        gd.use("mine")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "words", "options"),
    [
        (PlacementError, "no placement 'S'", {"placed": ("S", "R")}),
        (
            PlacementError,
            r"a has 2 axes, so S\(2\) cannot be; S\(0\), S\(1\), R, P can",
            {"placed": ("S2", "R")},
        ),
        (PlacementError, r"b has 2 placements \(R, R\) on a mesh with 1", {"placed": ("R", "R,R")}),
        (PlacementError, "the result has 2 axes", {"out_placements": "S(5)"}),
        (InputError, "shapes need a mesh", {"mesh": ()}),
        (ShapeError, "5 columns of a do not meet", {"b": (4, 6)}),
        (ShapeError, "stacks of 2 and 3", {"a": (2, 4, 5), "b": (3, 5, 6)}),
        (ShapeError, "must be matrices", {"b": (5,)}),
    ],
)
def test_errors(error, words, options):
    arguments = {"a": (4, 5), "b": (5, 6), "mesh": (4,), **options}
    with pytest.raises(error, match=words):
        gd.plan(arguments.pop("a"), arguments.pop("b"), **arguments)


def test_placements_are_read_as_they_are_written():
    at = placements.parse("S(0), R,P,s-1", 3, (2, 2, 2, 2), "a")
    assert at == (0, "R", "P", 2) and placements.text(at) == "S(0), R, P, S(2)"


@pytest.mark.parametrize("n", [256, 4096, 16384])
def test_an_overlapped_plan_is_one_of_the_ways_to_overlap_its_plain_one(n):
    plan = gd.plan((n, n), (n, n), mesh=(4,), out_placements="S(0)", overlap=True)
    plain = overlap_plans.plain(plan)
    assert plain.overlap is None and plain.ways == plan.ways
    assert plain.total == max(plain.communication + plain.product, plain.machine.call)
    assert [move.kind for move in plain.transfers] == ["all-gather"]
    # Small products take the time of the host.
    assert plan.total < plain.total if n > 256 else plan.total == plain.machine.call
    assert plan in overlap_plans.overlapping(plain)
    assert overlap_plans.plain(plain) == plain


@pytest.mark.parametrize(("what", "at"), [("b", "S0"), ("a", "S1")])
def test_an_operand_that_is_turned_moves_a_share_more(what, at):
    n, count = 16384, 4
    plan = gd.plan((n, n), (n, n), mesh=(count,), placed=(at, at), machine=links.H100)
    assert plan.overlap is not None and plan.overlap.turned and plan.overlap.what == what
    whole, own = 4 * n * n, 4 * n * n // count
    gathered, turned = whole * (count - 1) // count, own * (count - 1) // count
    assert {move.kind: move.size for move in plan.transfers} == {
        "all-to-all": turned,
        "all-gather": gathered,
    }
    plain = overlap_plans.plain(plan)
    assert (plain.moved, plan.moved) == (gathered, gathered + turned)
    sent = gd.plan(
        (n, n), (n, n), mesh=(count,), placed=(at, at), machine=replace(links.H100, copies=None)
    )
    assert sent.overlap is None or not sent.overlap.turned
