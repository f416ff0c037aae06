"""Numbers read off a record: what the table shows and what steps are explained by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gemmlab.records import Record

SECTOR_BYTES = 32

GLOBAL_LOAD_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
GLOBAL_LOAD_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
GLOBAL_STORE_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
SHARED_LOAD_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
SHARED_STORE_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"
SHARED_EXCESSIVE = "derived__memory_l1_wavefronts_shared_excessive"
PTX_INSTRUCTIONS = "ptx_inst_executed.sum"

Value = Callable[[Record], float | None]


def counted(*names: str) -> Value:
    """Sum of counters; None when one of them was not counted."""

    def value(record: Record) -> float | None:
        counters = record.counters or {}
        if any(name not in counters for name in names):
            return None
        return float(sum(counters[name] for name in names))

    return value


global_sectors = counted(GLOBAL_LOAD_SECTORS, GLOBAL_STORE_SECTORS)
shared_wavefronts = counted(SHARED_LOAD_WAVEFRONTS, SHARED_STORE_WAVEFRONTS)
shared_excessive = counted(SHARED_EXCESSIVE)
instructions = counted(PTX_INSTRUCTIONS)


def sectors_per_request(record: Record) -> float | None:
    """Global load sectors per request; 4 is best for 32 lanes of 4 bytes, 16 for 16 bytes."""
    sectors = counted(GLOBAL_LOAD_SECTORS)(record)
    requests = counted(GLOBAL_LOAD_REQUESTS)(record)
    return sectors / requests if sectors is not None and requests else None


def intensity(record: Record) -> float | None:
    """FLOPs per byte of counted global sectors, before any cache."""
    sectors = global_sectors(record)
    return record.flops / (SECTOR_BYTES * sectors) if sectors else None


def microseconds(record: Record) -> float | None:
    return None if record.time_s is None else 1e6 * record.time_s


def registers(record: Record) -> float | None:
    return record.resources["registers"] if record.resources else None


def occupancy_percent(record: Record) -> float | None:
    return 100 * record.occupancy["fraction"] if record.occupancy else None


@dataclass(frozen=True)
class Metric:
    """Something that may move from one rung to the next."""

    name: str
    plural: bool
    value: Value


# Counts of warp-level events, each about a cycle of some unit: their sizes can be compared.
COUNTS = (
    Metric("global load requests", True, counted(GLOBAL_LOAD_REQUESTS)),
    Metric("global load sectors", True, counted(GLOBAL_LOAD_SECTORS)),
    Metric("shared wavefronts", True, shared_wavefronts),
    Metric("excessive shared wavefronts", True, shared_excessive),
    Metric("PTX instructions", True, instructions),
)
OCCUPANCY = Metric("occupancy in %", False, occupancy_percent)
TIME = Metric("time in µs", False, microseconds)
