"""Multiply a tile of A by a tile of B, both packed, in the chains of `mainloop`."""

import cutlass
from cutlass import Float32, Int32, cute
from cutlass.cute.nvgpu import OperandMajorMode, warpgroup

from gemmlab.kernels.gemm.sm90.ring import Ring, release
from gemmlab.kernels.gemm.sm90.scheduling import (
    next_stage,
    pass_turn,
    tile_coordinates,
    wait_for_turn,
)
from gemmlab.kernels.gemm.sm90.sizes import MMA_K, MMA_M
from gemmlab.kernels.gemm.sm90.tiles import ELEMENTS


@cute.jit
def tiled_mma(config: cutlass.Constexpr) -> cute.TiledMma:
    """wgmma of 64 × block_n × 16 per consumer warpgroup, both operands in shared memory."""
    modes = {"k": OperandMajorMode.K, "mn": OperandMajorMode.MN}
    op = warpgroup.MmaF16BF16Op(
        ELEMENTS[config.scheme.dtype],
        Float32,
        (MMA_M, config.block_n, MMA_K),
        warpgroup.OperandSource.SMEM,
        modes[config.a_major],
        modes[config.b_major],
    )
    return cute.make_tiled_mma(cute.make_mma_atom(op), (config.consumers, 1, 1))


@cute.jit
def multiply_k_tile(
    fragments: tuple,
    chains: list[cute.Tensor],
    stages: list[Int32],
    ring: Ring,
    consumer: Int32,
    begins: tuple | None,
    config: cutlass.Constexpr,
) -> tuple | None:
    """Form the products of one tile of A and B; each of the `chains` covers `promote_k` of k.

    stages: where the parts are, largest part first. A part's stage is released as soon as the last
    product that reads it has finished. begins: the number of the tile of C whose first k-tile this
    is, and the shape of C; returns the tile's place. None: it is not the first one.
    """
    mma = tiled_mma(config)
    CONSUMERS, PRODUCTS = config.consumers, config.scheme.products
    DEPTH = config.promote_k // MMA_K  # wgmma per product and chain
    rA, rB = fragments
    place = None
    if cutlass.const_expr(CONSUMERS > 1):
        wait_for_turn(consumer)
    warpgroup.fence()
    for i in cutlass.range_constexpr(len(PRODUCTS)):
        part_a, part_b = PRODUCTS[i]
        for kk in cutlass.range_constexpr(DEPTH * len(chains)):
            chain = chains[kk // DEPTH]
            mma.set(warpgroup.Field.ACCUMULATE, i > 0 or kk % DEPTH > 0)
            tile_a, tile_b = rA[None, None, kk, stages[part_a]], rB[None, None, kk, stages[part_b]]
            cute.gemm(mma, chain, tile_a, tile_b, chain)
        warpgroup.commit_group()
        if cutlass.const_expr(CONSUMERS > 1 and i == len(PRODUCTS) - 1):
            pass_turn(consumer, CONSUMERS)
        if cutlass.const_expr(begins is not None and i == len(PRODUCTS) - 1):
            place = tile_coordinates(*begins, config)
            # Without the shuffles, the compiler moves the divisions to where the place is used.
            place = tuple([cute.arch.make_warp_uniform(x) for x in place])
        for part in cutlass.range_constexpr(1, config.scheme.parts):
            if cutlass.const_expr(config.scheme.last_product(part) == i - 1):
                warpgroup.wait_group(1)
                release(ring, stages[part], config)
    warpgroup.wait_group(0)
    release(ring, stages[0], config)
    return place


@cute.jit
def add_k_tile(
    sums: cute.Tensor,
    chains: list[cute.Tensor],
    fragments: tuple,
    ring: Ring,
    consumer: Int32,
    stage: Int32,
    phase: Int32,
    begins: tuple | None,
    config: cutlass.Constexpr,
) -> tuple:
    """Multiply the tile of A and B that begins at `stage`, and add its chains to the sums.

    begins: as for `multiply_k_tile`. Returns the next stage, its phase, and the place.
    """
    stages = [None] * config.scheme.parts
    for part in cutlass.range_constexpr(config.scheme.parts - 1, -1, -1):
        cute.arch.mbarrier_wait(ring.full + stage, phase)
        stages[part] = stage
        stage, phase = next_stage(stage, phase, config.stages)
    place = multiply_k_tile(fragments, chains, stages, ring, consumer, begins, config)
    for i, chain in enumerate(chains):
        if cutlass.const_expr(begins is not None and i == 0):
            sums.store(chain.load())
        else:
            sums.store(sums.load() + chain.load())
    return stage, phase, place
