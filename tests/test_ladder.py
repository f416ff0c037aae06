"""The registry of kernels and its entries."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import is_dataclass, replace

import pytest

from gemmlab import problems
from gemmlab.errors import InputError, UnknownNameError
from gemmlab.kernels import ladder
from gemmlab.kernels.rung import Rung

RUNGS = ladder.rungs()
LIMIT_Y = 65535


@pytest.fixture(params=RUNGS, ids=lambda rung: rung.name)
def rung(request: pytest.FixtureRequest) -> Rung:
    found: Rung = request.param
    return found


@pytest.fixture(params=[r for r in RUNGS if r.launches is None], ids=lambda rung: rung.name)
def simt_rung(request: pytest.FixtureRequest) -> Rung:
    """A rung that multiplies on FP32 units, in one launch."""
    found: Rung = request.param
    return found


def test_order() -> None:
    names = [rung.name for rung in RUNGS]
    course = "naive uncoalesced shared shared-ilp2 tile-1d tile-2d-4x4 tile-2d-4x4-bk32 tile-2d-8x8"
    course += " tile-2d-8x8-strided float4-64 float4 float4-transposed-a"
    beyond = "padded swizzled warp-tile double-buffer rasterized async-copy split-k fp16x3 bf16x6"
    known = f"{course} {beyond}".split()
    assert [name for name in names if name in known] == known


# Block of C in rows and columns, depth, elements of C per thread, threads per block.
TILES = {
    "naive": (32, 32, None, None, None, 1024),
    "uncoalesced": (1024, 1, None, None, None, 1024),
    "shared": (32, 32, 32, None, None, 1024),
    "shared-ilp2": (32, 32, 32, 2, 1, 512),
    "tile-1d": (64, 64, 8, 8, 1, 512),
    "tile-2d-4x4": (128, 128, 8, 4, 4, 1024),
    "tile-2d-4x4-bk32": (128, 128, 32, 4, 4, 1024),
    "tile-2d-8x8": (128, 128, 8, 8, 8, 256),
    "tile-2d-8x8-strided": (128, 128, 8, 8, 8, 256),
    "float4-64": (64, 64, 16, 4, 4, 256),
    "float4": (128, 128, 8, 8, 8, 256),
    "float4-transposed-a": (128, 128, 8, 8, 8, 256),
    "padded": (128, 128, 8, 8, 8, 256),
    "swizzled": (128, 128, 8, 8, 8, 256),
    "warp-tile": (128, 128, 8, 8, 8, 256),
    "double-buffer": (128, 128, 8, 8, 8, 256),
    "rasterized": (128, 128, 8, 8, 8, 256),
    "async-copy": (128, 128, 16, 8, 8, 256),
    "split-k": (128, 128, 8, 8, 8, 256),
}


@pytest.mark.parametrize("name", TILES)
def test_tiles_are_the_documents(name: str) -> None:
    rung = ladder.find(name)
    fields = ("block_m", "block_n", "block_k", "thread_m", "thread_n")
    block = rung.geometry(rung.config, {"m": 1, "n": 1, "k": 1}).block
    found = (*(getattr(rung.config, field, None) for field in fields), block[0] * block[1])
    assert found == TILES[name]


def test_record_is_complete(rung: Rung) -> None:
    assert rung.problem == "gemm"
    assert len(rung.change.split()) <= 8
    assert 3 <= len(rung.lesson.splitlines()) <= 15
    assert rung.config.layout == "row"
    assert is_dataclass(rung.config)
    assert vars(type(rung.config))["__dataclass_params__"].frozen


@pytest.mark.parametrize("layout", ["row", "course"])
def test_find_returns_the_rung_in_the_layout(rung: Rung, layout: str) -> None:
    found = ladder.find(rung.name, layout)
    assert (found.name, found.config.layout) == (rung.name, layout)
    assert ladder.find(rung.name).config.layout == "row"


def test_a_rung_is_found_without_the_kernels_of_later_ladders(monkeypatch):
    asked, rungs = [], ladder.rungs

    def noted(problem):
        asked.append(problem)
        return rungs(problem)

    monkeypatch.setattr(ladder, "rungs", noted)
    assert ladder.find("float4").problem == "gemm"
    assert (
        ladder.find("sum:vectorized").problem
        == ladder.find("vectorized", problem="sum").problem
        == "sum"
    )
    assert asked == ["gemm", "sum", "sum"]


def test_course_name() -> None:
    found = ladder.find("naive-tnn")
    assert (found.name, found.config.layout) == ("naive", "course")
    assert ladder.label(found) == "naive-tnn"
    assert ladder.label(ladder.find("naive")) == "naive"
    assert ladder.label(ladder.find("shared", "course")) == "shared"
    with pytest.raises(InputError, match="'naive' in layout 'course', not 'row'"):
        ladder.find("naive-tnn", "row")


def test_unknown_names_list_what_there_is() -> None:
    with pytest.raises(UnknownNameError, match=r"naive-tnn.*Did you mean 'float4'"):
        ladder.find("flaot4")
    with pytest.raises(UnknownNameError, match="ladders: gemm"):
        ladder.rungs("convolution")
    with pytest.raises(InputError, match="must be one of row, course"):
        ladder.find("naive", "diagonal")


@pytest.mark.parametrize("shape", [(1, 1, 1), (128, 128, 8), (129, 257, 9), (1025, 31, 5)])
def test_grid_covers_c_and_no_block_is_idle(simt_rung: Rung, shape: tuple[int, int, int]) -> None:
    rung = simt_rung
    m, n, k = shape
    config = rung.config
    grid, block, dynamic = rung.geometry(config, {"m": m, "n": n, "k": k})
    assert (grid[1] - 1) * config.block_m < m <= grid[1] * config.block_m
    assert (grid[0] - 1) * config.block_n < n <= grid[0] * config.block_n
    assert grid[2] == 1 and dynamic == getattr(config, "smem", 0)
    assert block[0] * block[1] * block[2] <= 1024


def test_shapes_past_the_grid_are_named(simt_rung: Rung) -> None:
    rung = simt_rung
    most = LIMIT_Y * rung.config.block_m
    assert rung.requires(rung.config, {"m": most, "n": 1, "k": 1}) is None
    broken = rung.requires(rung.config, {"m": most + 1, "n": 1, "k": 1})
    assert broken is not None and "65536 blocks in grid y" in broken


@pytest.mark.parametrize(
    ("name", "field", "value", "rule"),
    [
        ("naive", "block_m", 64, "2048 threads per block"),
        ("uncoalesced", "block_n", 2, "2048 threads per block"),
        ("shared", "block_k", 16, "must be a cube"),
        ("tile-2d-8x8", "thread_m", 7, "not a multiple of thread_m = 7"),
        ("tile-2d-8x8", "thread_n", 1, "2048 threads per block"),
        ("tile-2d-8x8", "block_k", 0, "must be positive"),
        ("tile-2d-8x8", "block_k", 64, "65536 bytes of static shared memory"),
        ("tile-2d-8x8", "block_k", 3, "runs of equal length"),
        ("tile-2d-8x8-strided", "block_k", 3, "whole rows"),
        ("tile-1d", "block_k", 1, "512 threads must share it equally"),
        ("float4", "block_k", 16, "must load four elements each"),
        ("float4", "thread_n", 2, "must be a multiple of 4"),
        ("padded", "arrangement", "random", "must be one of plain, padded, swizzled"),
        ("warp-tile", "warp_m", 48, "not a multiple of warp_m = 48"),
        ("warp-tile", "warp_n", 32, "must be 8 lanes of thread_n = 8"),
        ("rasterized", "group", 0, "must be positive"),
        ("async-copy", "group", 0, "must be positive"),
        ("async-copy", "stages", 1, "at least 2 are needed"),
        ("async-copy", "block_k", 12, "must be a multiple of 8"),
        ("async-copy", "block_m", 192, "must divide 384 threads"),
    ],
)
def test_illegal_configurations_are_refused(name: str, field: str, value: int, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        replace(ladder.find(name).config, **{field: value})


@pytest.mark.parametrize("problem", problems.NAMES)
def test_every_ladder_is_complete(problem: str) -> None:
    rungs = ladder.rungs(problem)
    assert len({rung.name for rung in rungs}) == len(rungs)
    for rung in rungs:
        assert rung.problem == problem
        assert len(rung.change.split()) <= 8
        assert 3 <= len(rung.lesson.splitlines()) <= 15
        assert ladder.find(rung.name, problem=problem) == rung
        assert ladder.find(f"{problem}:{rung.name}") == ladder.find(ladder.qualified(rung)) == rung


def test_a_name_alone_is_the_first_ladders() -> None:
    assert ladder.find("naive").problem == "gemm"
    assert ladder.find("transpose:naive").problem == "transpose"
    assert ladder.find("tree-strided").problem == "sum"
    assert ladder.qualified(ladder.find("transpose:naive")) == "transpose:naive"
    assert ladder.qualified(ladder.find("tree-strided")) == "tree-strided"
    with pytest.raises(UnknownNameError, match="rungs: naive, shared, shared-padded, ilp"):
        ladder.find("transpose:float4")
    with pytest.raises(UnknownNameError, match="no ladder for 'conv'; ladders: gemm"):
        ladder.find("conv:naive")
    with pytest.raises(InputError, match="transpose 'naive' has layout 'row' only"):
        ladder.find("transpose:naive", "course")


def test_importing_the_registry_loads_no_compiler() -> None:
    modules = "sys, gemmlab.kernels.ladder, gemmlab.compile"
    code = f"import {modules}; print({{'cutlass', 'cuda'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
