"""For products of all shapes, plans obey the rules of TMA, fit the GPU and cover the product."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmlab.errors import InputError
from gemmlab.kernels.gemm.sm90.config import LINE, SCHEMES, PackConfig, TileConfig
from gemmlab.linalg.planning import plan
from gemmlab.linalg.planning.packed import ALIGNMENT, Packed
from gemmlab.linalg.shapes import Operand

SMS = 132
SIZES = st.integers(1, 20000)
SCHEME = st.sampled_from(list(SCHEMES.values()))


@given(SIZES, SIZES, st.booleans(), st.integers(1, 5), SCHEME)
def test_packed_operands_do_not_overlap(vectors, depth, k_major, batch, scheme):
    packed = Packed(scheme, vectors, depth, k_major, batch)
    offsets = list(packed.offsets.values())
    assert offsets == sorted(offsets) and not any(x % ALIGNMENT for x in offsets)
    elements = batch * scheme.parts * packed.lines * packed.pitch
    assert packed.nbytes - packed.offsets["out"] >= 2 * elements
    assert packed.pitch >= packed.length and packed.padded >= vectors


@given(SIZES, SIZES, st.booleans(), st.integers(1, 5), SCHEME)
def test_packs_cover_every_vector_and_line(vectors, depth, k_major, batch, scheme):
    operand = Operand(
        vectors, depth, k_major, depth if k_major else vectors, batch, vectors * depth
    )
    packed = Packed(scheme, vectors, depth, k_major, batch)
    for launch in plan.pack(operand, packed, 1 << 20, 1 << 30):
        config: Any = launch.config
        x, y, z = launch.grid
        assert x % launch.cluster == 0 and launch.block[0] == config.threads
        match launch.kernel:
            case "pack_k_major":
                assert x * 8 >= vectors * config.warps and y == batch
            case "pack_mn_major":
                assert (
                    x // config.cluster * 32 >= vectors and config.deepest >= depth and y == batch
                )
            case _:
                assert x * 128 >= vectors and y * packed.chunk >= depth and z == batch
                assert y <= (32 if x > 1 else 64)


@given(SIZES, SIZES, SIZES, st.booleans(), st.booleans(), SCHEME)
def test_a_product_fits_the_gpu_and_the_rules_of_tma(m, n, k, a_along, b_along, scheme):
    a, b = Packed(scheme, m, k, a_along), Packed(scheme, n, k, b_along, factor="b")
    product = plan.Product(m, n, k, n)
    tile = plan.choose_tile(product, a, b, SMS)
    lines = (k if a_along else m), (k if b_along else n)
    factors = Operand(m, k, a_along, lines[0]), Operand(n, k, b_along, lines[1])
    at, reporting = (1 << 20, 1 << 30), plan.Reporting(1 << 50, (1 << 51, 1 << 52), clear=3)
    launches = plan.multiply(product, tile, factors, (a, b), (0, 0, 1 << 40), at, reporting, SMS)
    launch = [x for x in launches if x.kernel == "multiply_packed"][-1]
    assert 0 < launch.grid[0] <= SMS and launch.grid[0] % tile.cluster == 0
    totals = launch.grid[0] * 4 * tile.block_m * tile.block_n
    has_totals = scheme.name == "bf16x6" and k > 1024
    assert plan.totals_bytes(product, tile, SMS) == (totals if has_totals else 0)
    assert launch.dynamic_smem <= 226 * 1024
    for wanted in launch.maps:
        assert (
            isinstance(wanted.address, int)
            and wanted.address % 16 == 0
            and not any(x % 16 for x in wanted.strides)
        )
        assert 0 < wanted.copy.lines <= 256 and wanted.copy.lines % 8 == 0
        assert all(0 < x < 2**32 for x in wanted.shape)
    boxes = sum(
        2 * LINE * wanted.copy.lines * count
        for wanted, count in zip(launch.maps, copies(tile), strict=True)
    )
    assert boxes == tile.stage_bytes


@given(k=st.integers(1, 2**31 - 1))
def test_parts_of_k_follow_each_other_at_whole_lines(k):
    parts = plan.segments(k)
    ends = [first + length for first, length in parts]
    assert [first for first, _ in parts] == [0, *ends[:-1]] and ends[-1] == k
    assert all(first % LINE == 0 and length > 0 for first, length in parts)
    assert len(parts) <= 64 and (parts[0][1] <= 16384 or k > 64 * 16384)


@given(SIZES, SIZES, SIZES, SCHEME)
def test_sums_are_kept_from_drifting(m, n, k, scheme):
    a, b = Packed(scheme, m, k, True), Packed(scheme, n, k, True, factor="b")
    tile = plan.choose_tile(plan.Product(m, n, k, n), a, b, SMS)
    if scheme.name == "bf16x6":
        assert (tile.promote_k, tile.total_k, a.first, b.first) == (32, 1024, "nearest", "nearest")
    elif tile.promote_k == 64:
        assert (tile.total_k, a.first, b.first) == (0, "down", "up")
    else:
        assert k <= 4096 and (a.first, b.first) == ("nearest", "nearest")


def copies(tile: TileConfig) -> tuple[int, int]:
    """How many boxes of A and of B fill a stage, from all blocks of the cluster."""
    a = 1 if tile.a_major == "k" else tile.block_m // LINE
    b = 1 if tile.b_major == "k" else tile.block_n // LINE
    return a, b * tile.cluster


@pytest.mark.parametrize(
    "wrong",
    [
        {"block_m": 96},
        {"block_m": 256},
        {"block_m": 192, "stages": 4},
        {"block_n": 100},
        {"block_n": 320},
        {"a_major": "m"},
        {"promote_k": 16},
        {"promote_k": 32},
        {"total_k": 1000},
        {"total_k": -64},
        {"stages": 2},
        {"stages": 6},
        {"cluster": 16},
    ],
)
def test_tiles_that_break_a_rule_are_refused(wrong):
    with pytest.raises(InputError):
        TileConfig(**wrong)


def test_packs_that_break_a_rule_are_refused():
    with pytest.raises(InputError):
        PackConfig(warps=2)
    with pytest.raises(InputError):
        PackConfig(threads=1024)
    with pytest.raises(InputError):
        PackConfig(first="even")
    with pytest.raises(InputError):
        PackConfig(SCHEMES["bf16x6"], first="up")


@pytest.mark.parametrize(
    ("n", "width"), [(512, 64), (1024, 64), (2048, 128), (8192, 192), (16384, 192)]
)
def test_large_products_get_wide_tiles(n, width):
    packed = Packed(SCHEMES["fp16x3"], n, n, True)
    assert plan.choose_tile(plan.Product(n, n, n, n), packed, packed, SMS).block_n == width
