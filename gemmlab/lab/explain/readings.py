"""Nsight Compute's cache measurements for some rungs, stored beside this file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from gemmlab.emulator.counters.rules import SECTOR_BYTES

_FILE = "caches-h200.json"
_COMPANIONS = ("naive", "float4")  # shown with every rung, for comparison


@dataclass(frozen=True)
class Reading:
    """One launch, with empty caches at the start."""

    device: str
    rung: str
    shape: dict[str, int]
    l1_bytes: int  # loaded from L1, in whole sectors
    l1_hit: float  # hit rate, 0 to 1
    l2_bytes: int  # read by L1 from L2
    dram_bytes: int  # read from device memory
    time_s: float


def readings(problem: str, rung: str, layout: str) -> tuple[Reading, ...]:
    """Return the readings of a rung in a layout, then those of `_COMPANIONS` at the same shapes."""
    document = _document()
    made = [r for r in document["readings"] if (r["problem"], r["layout"]) == (problem, layout)]
    own = [r for r in made if r["rung"] == rung]
    shapes = [r["shape"] for r in own]
    others = [r for r in made if r["rung"] in _COMPANIONS and r["shape"] in shapes]
    wanted = own + [r for r in others if r["rung"] != rung]
    return tuple(_reading(document["device"], r) for r in wanted)


@cache
def _document() -> dict[str, Any]:
    text = resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def _reading(device: str, raw: dict[str, Any]) -> Reading:
    counters = raw["counters"]
    sectors = counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"]
    hits = counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum"]
    return Reading(
        device,
        raw["rung"],
        raw["shape"],
        SECTOR_BYTES * sectors,
        hits / sectors,
        SECTOR_BYTES * counters["lts__t_sectors_srcunit_tex_op_read.sum"],
        counters["dram__bytes_read.sum"],
        counters["gpu__time_duration.sum"] / 1e9,
    )
