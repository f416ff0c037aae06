"""What Nsight Compute read of the caches under some rungs: a record kept beside this file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

_FILE = "caches-h200.json"
_COMPANIONS = ("naive", "float4")  # shown beside every other rung: the first and a tiled one
SECTOR_BYTES = 32


@dataclass(frozen=True)
class Reading:
    """One launch that began with empty caches. Each level asks the next for a part of its bytes."""

    device: str
    rung: str
    shape: dict[str, int]
    l1_bytes: int  # sectors that L1 was asked for
    l1_hit: float  # the share that it had
    l2_bytes: int  # that L1 read from L2
    dram_bytes: int  # read from device memory
    time_s: float


def readings(problem: str, rung: str, layout: str) -> tuple[Reading, ...]:
    """Of a rung in a layout, and beside it of the two that tell most; none where none were made."""
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
