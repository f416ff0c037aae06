"""The rungs between `split-k` and `fp16x3`: each adds one idea of the kernel on tensor cores.

The launches around the kernel, which pack both operands and repair rows and columns with infinities
or NaNs, are those of `fp16x3`.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Any

from gemmlab.kernels.gemm import (
    packed,
    short_chains,
    tensor_core,
    tensor_core_pipelined,
    warp_specialized,
    wgmma,
    wgmma_tma,
)
from gemmlab.kernels.gemm.sm90.config import FP16X3
from gemmlab.kernels.rung import Rung
from gemmlab.linalg.arch import Architecture
from gemmlab.linalg.arch.sm90 import SM90
from gemmlab.linalg.planning import plan
from gemmlab.linalg.planning.launch import Address, Map, PlannedLaunch
from gemmlab.linalg.planning.packed import ALIGNMENT, Packed, operand_map
from gemmlab.linalg.rungs import needs_terms, operands


@cache
def packing(arch: str) -> Architecture:
    """The kernels that pack and repair, compiled for an architecture; they need no clusters."""
    own = replace(SM90, kernels={**SM90.kernels, "repair": ("sm90.repair", "kernel")})
    return own if arch == SM90.target else replace(own, target=arch, clusters=())


def packed_operands(
    config: packed.Config, shape: Mapping[str, int], arch: str
) -> tuple[Packed, Packed]:
    left, right = operands(config, shape)
    a = Packed(FP16X3, left.vectors, left.depth, left.k_major, 1, "a", packing(arch))
    return a, Packed(FP16X3, right.vectors, right.depth, right.k_major, 1, "b", packing(arch))


def workspace(config: packed.Config, shape: Mapping[str, int]) -> int:
    """Bytes: both packed operands with their counts, and the report."""
    # Without clusters the packed operands take more room, for peaks.
    a, b = packed_operands(config, shape, "sm_80")
    return a.nbytes + b.nbytes + ALIGNMENT


def launches(
    config: packed.Config,
    shape: Mapping[str, int],
    args: Mapping[str, Address],
    arch: str,
) -> tuple[PlannedLaunch, ...]:
    """Pack A, pack B, multiply, repair. args: the problem's arguments and a workspace, by name."""
    left, right = operands(config, shape)
    a, b = packed_operands(config, shape, arch)
    first, second = ("a", "b") if config.layout == "row" else ("b", "a")
    sources = args[first], args[second], args["c"]
    at_a = args["workspace"]
    at_b = at_a + a.nbytes
    report = at_b + b.nbytes
    product = plan.Product(left.vectors, right.vectors, left.depth, right.vectors)
    own: dict[str, Any] = {
        "c": sources[2],
        "unscale_a": at_a + a.offsets["unscale"],
        "unscale_b": at_b + b.offsets["unscale"],
        "m": product.m,
        "n": product.n,
        "k": product.k,
        "ldc": product.ldc,
    }
    maps: tuple[Map, ...] = ()
    if isinstance(config, wgmma_tma.Config):
        depth = product.k
        maps = (
            operand_map(config.a_copy, a, at_a, 0, depth),
            operand_map(config.b_copy, b, at_b, 0, depth),
        )
    else:
        own |= {"a": at_a + a.offsets["out"], "b": at_b + b.offsets["out"]}
        own |= {"lda": a.pitch, "ldb": b.pitch}
    grid, block, smem = packed.geometry(config, shape)
    return (
        *plan.pack(left, a, sources[0], at_a),
        *plan.pack(right, b, sources[1], at_b),
        PlannedLaunch("multiply", config, grid, block, own, maps, dynamic_smem=smem),
        plan.repair(
            product, (left, right), (a, b), sources, (at_a, at_b), report, SM90.multiprocessors
        ),
    )


def rung(
    module: ModuleType,
    change: str,
    choices: Mapping[str, tuple[int, ...]],
    arch: str | None = None,
) -> Rung:
    """The rung of a kernel's file, whose name it has."""
    return Rung(
        name=module.__name__.rpartition(".")[2].replace("_", "-"),
        problem="gemm",
        change=change,
        kernel=module.kernel,
        parameters=packed.signature(module.kernel),
        config=module.Config(),
        geometry=packed.geometry,
        requires=needs_terms,
        workspace=workspace,
        launches=launches,
        teaches=module.kernel,
        arch=arch,
        choices={**choices, "group": (4, 8, 16)},
    )


WARP_TILES = {"block_n": (64, 128, 256), "warp_m": (32, 64), "warp_n": (32, 64)}
COLUMNS = {"block_n": (64, 128, 192, 256), "stages": (4, 6)}
BLOCKS = {"block_m": (64, 128), **COLUMNS}
HOPPER = SM90.target
RUNGS = (
    rung(
        tensor_core, "three float16 products by mma.sync", {**WARP_TILES, "block_k": (16, 32, 64)}
    ),
    rung(tensor_core_pipelined, "copied ahead, swizzled", {**WARP_TILES, "stages": (4, 6)}),
    rung(wgmma, "wgmma reads shared memory itself", BLOCKS, HOPPER),
    rung(wgmma_tma, "TMA copies, barriers count its bytes", BLOCKS, HOPPER),
    rung(warp_specialized, "one warp copies, two warpgroups multiply", COLUMNS, HOPPER),
    rung(short_chains, "float32 additions every 64 of k", COLUMNS, HOPPER),
)
