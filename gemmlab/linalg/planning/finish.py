"""The last launch of a product in `fp16x3`: it repairs C or, without packing, computes it again."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from gemmlab.kernels.common import ceil_div
from gemmlab.kernels.gemm.sm90.direct_config import MOST_ITEMS, DirectConfig
from gemmlab.linalg.arch import Architecture
from gemmlab.linalg.planning.formulas import least, most
from gemmlab.linalg.planning.launch import PlannedLaunch
from gemmlab.linalg.planning.plan import Added, Product
from gemmlab.linalg.shapes import Operand


def _index(arch: Architecture, k: Any) -> int:
    """The index of the first configuration in `arch.finish` that is accurate at that depth."""
    return next(i for i, config in enumerate(arch.finish) if k >= config.least_k)


@cache
def _config(arch: Architecture, index: int, *k_major: bool) -> DirectConfig:
    a_major, b_major = ("k" if x else "mn" for x in k_major)
    return replace(arch.finish[index], a_major=a_major, b_major=b_major)


def finish(
    product: Product,
    repair: PlannedLaunch,
    left: Operand,
    right: Operand,
    least_risk: int,
    added: Added | None,
    sms: int,
) -> PlannedLaunch:
    """Return the launch.

    repair: the launch that would only repair C; the limit of doubtful elements is the same.
    least_risk: C is computed again if at least this many elements are at risk. added: D, if it is
    not C.
    """
    k_major, arch, args = (left.k_major, right.k_major), repair.arch, dict(repair.args)
    config = _config(arch, _index(arch, product.k), *k_major)
    for name in ("row_a", "col_a", "row_b", "col_b"):
        del args[name]
    d = added or Added(args["c"], product.ldc, product.column_c, product.batch_c)
    tiles = ceil_div(product.m, config.block_m) * ceil_div(product.n, config.block_n)
    items = tiles * product.batch
    args |= {
        "d": d.at,
        "lda": left.ld,
        "ldb": right.ld,
        "row_d": d.row,
        "column_d": d.column,
        "batch_d": d.item,
        "beta": product.beta,
        "items": items,
        "least_risk": least_risk,
    }
    at_once = sms * ceil_div(items, sms * MOST_ITEMS)
    # Repairs are shared by more blocks than there are tiles, if these are few.
    blocks = least(most(items, repair.grid[0]), at_once)
    rest = (config.threads, 1, 1), args, (), 1, config.smem_bytes, arch
    return PlannedLaunch("finish", config, (blocks, 1, 1), *rest)
