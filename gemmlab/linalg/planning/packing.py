"""The launches that pack the operands of a product: one for both, if that can be.

`plan` has the launches that multiply packed operands.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from gemmlab.kernels.common import ceil_div
from gemmlab.kernels.gemm.sm90.config import (
    DEEP_STRIP,
    PACK_WARPS,
    SCHEMES,
    STRIP,
    TAIL,
    PackBothConfig,
    PackConfig,
)
from gemmlab.linalg.arch import Architecture
from gemmlab.linalg.planning.launch import Address, PlannedLaunch, Value
from gemmlab.linalg.planning.packed import Packed
from gemmlab.linalg.shapes import Operand

STATUS_BYTES = 24  # of three 64-bit counts: `kernels.gemm.sm90.pack`


class Unpacked(NamedTuple):
    """An operand at `source`, to be packed into memory at `target`.

    status: address of `STATUS_BYTES`, which must be zero; None: the first ones at `target`.
    """

    operand: Operand
    packed: Packed
    source: Address
    target: Address
    status: Address | None = None


def pack(*each: Unpacked) -> tuple[PlannedLaunch, ...]:
    """Return the launches that pack one or both operands of a product: one for both if it can be.

    It can unless one is too deep for registers, or only one is a stack.
    """
    deep = [launch for x in each if x.packed.deep for launch in _pack_deep(x)]
    # Blocks in clusters come first.
    rest = sorted((x for x in each if not x.packed.deep), key=lambda x: x.operand.k_major)
    if len(rest) == 2 and rest[0].operand.batch == rest[1].operand.batch:
        return *deep, _pack_plain(rest[0], rest[1])
    return *deep, *(_pack_plain(x, x) for x in rest)


def _pack_plain(first: Unpacked, second: Unpacked) -> PlannedLaunch:
    """The launch that packs two operands, or one if they are the same one."""
    own, other = _plain_config(first), _plain_config(second)
    code: PackConfig | PackBothConfig = own
    kernel, cluster = "pack_k_major", 1
    if not first.operand.k_major:
        kernel, cluster = "pack_mn_major", own.cluster
    if second.operand.k_major != first.operand.k_major:
        other = _of_threads(other, own.threads)
        kernel, code = "pack_both", _both_config(own, other)
    blocks = split = _blocks_of(first, own)
    if second is not first:
        blocks = ceil_div(split + _blocks_of(second, other), cluster) * cluster
    args: dict[str, Value] = {"depth": first.operand.depth, "split": split}
    for i, x in enumerate((first, second), 1):
        args |= {f"{name}_{i}": value for name, value in {**_read(x), **_written(x)}.items()}
    grid, rest = (blocks, first.operand.batch, 1), (args, (), cluster, 0, first.packed.arch)
    return PlannedLaunch(kernel, code, grid, (own.threads, 1, 1), *rest)


def _blocks_of(x: Unpacked, config: PackConfig) -> int:
    """Blocks for each matrix of the operand."""
    if x.operand.k_major:
        return ceil_div(32 * config.warps * x.operand.vectors, config.threads)
    return ceil_div(x.operand.vectors, STRIP) * config.cluster


def _pack_deep(x: Unpacked) -> tuple[PlannedLaunch, ...]:
    """The launches that pack an operand too deep for registers."""
    operand, packed, offsets = x.operand, x.packed, x.packed.offsets
    chunks: dict[str, Value] = {
        "peaks": x.target + offsets["peaks"],
        "exponents": x.target + offsets["exponents"],
        "chunk": packed.chunk,
        "depth": operand.depth,
    }
    grid = (ceil_div(operand.vectors, DEEP_STRIP), packed.chunks, operand.batch)
    block, scheme, arch = (32 * PACK_WARPS, 1, 1), packed.scheme.name, packed.arch
    offset = {name: x.target + offsets[name] for name in ("risk", "shortfall")}
    find = {**_read(x), **chunks, "risk": offset.pop("risk")}
    config, any_part = pack_config(scheme, _first(packed)), pack_config(scheme)
    return (
        PlannedLaunch("find_peaks", any_part, grid, block, find, arch=arch),
        PlannedLaunch(
            "pack_mn_major_deep", config, grid, block, find | _written(x) | offset, arch=arch
        ),
    )


def _read(x: Unpacked) -> dict[str, Value]:
    """What all launches that pack an operand take."""
    operand = x.operand
    return {
        "x": x.source,
        "vectors": operand.vectors,
        "ldx": operand.ld,
        "batch_x": operand.batch_stride,
    }


def _written(x: Unpacked) -> dict[str, Value]:
    """What a launch that writes parts takes, too."""
    at, offsets = x.target, x.packed.offsets
    return {
        "out": at + offsets["out"],
        "unscale": at + offsets["unscale"],
        "status": at + offsets["status"] if x.status is None else x.status,
        "pitch": x.packed.pitch,
        "bias": TAIL if x.packed.first == "up" else 0,
    }


def _plain_config(x: Unpacked) -> PackConfig:
    """The configuration for an operand that registers hold, in part if it is K-major."""
    operand, packed, arch = x.operand, x.packed, x.packed.arch
    scheme, first, depth = packed.scheme.name, _first(packed), operand.depth
    if not operand.k_major:
        return _cluster_config(arch, bisect_left(_deepest(arch), depth), scheme, first)
    return pack_config(
        scheme, first, PACK_WARPS if depth > arch.long else 1, 8 if depth > arch.short else 4
    )


def _first(packed: Packed) -> str:
    return "nearest" if packed.first == "nearest" else "cut"


@cache
def _of_threads(config: PackConfig, threads: int) -> PackConfig:
    """The same for K-major operands and blocks of that size."""
    if config.threads == threads:
        return config
    return replace(config, threads=threads, warps=threads // 32, fours=4)


@cache
def _both_config(mn_major: PackConfig, k_major: PackConfig) -> PackBothConfig:
    return PackBothConfig(mn_major, k_major)


@cache
def pack_config(
    scheme: str,
    first: str = PackConfig.first,
    warps: int = PackConfig.warps,
    fours: int = PackConfig.fours,
) -> PackConfig:
    """The configuration of a kernel that packs. One object for each kind is made, once."""
    return PackConfig(SCHEMES[scheme], first, warps, fours=fours)


@cache
def _cluster_config(arch: Architecture, index: int, scheme: str, first: str) -> PackConfig:
    return replace(arch.clusters[index], scheme=SCHEMES[scheme], first=first)


@cache
def _deepest(arch: Architecture) -> list[int]:
    """The longest vectors of each configuration that packs MN-major operands; ascending."""
    return [config.deepest for config in arch.clusters]
