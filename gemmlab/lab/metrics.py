"""Numbers computed from a record, for tables and for the sentences about steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gemmlab.hardware.specs import Gpu, gpu
from gemmlab.lab import peaks
from gemmlab.lab.peaks import FP32_PEAK, Peak
from gemmlab.lab.records import Record

SECTOR_BYTES = 32

GLOBAL_LOAD_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
GLOBAL_LOAD_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
GLOBAL_STORE_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"
GLOBAL_STORE_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
MATRIX_PRODUCTS = "smsp__inst_executed_pipe_tensor_op_gmma.sum"  # wgmma reads shared memory itself
SHARED_LOAD_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
SHARED_STORE_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"
SHARED_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"  # all operations
SHARED_EXCESSIVE = "derived__memory_l1_wavefronts_shared_excessive"
SHARED_ATOMIC_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom.sum"
PTX_INSTRUCTIONS = "ptx_inst_executed.sum"
MACHINE_INSTRUCTIONS = "smsp__inst_executed.sum"
DIVERGENT_BRANCHES = "ptx_branch_divergent.sum"
GLOBAL_ATOMICS = tuple(f"smsp__inst_executed_op_global_{op}.sum" for op in ("atom", "red"))
SHARED_ATOMICS = "smsp__inst_executed_op_shared_atom.sum"

Value = Callable[[Record], float | None]


def counted(*names: str) -> Value:
    """Return a function that sums counters; its value is None if a counter is missing."""

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
machine_instructions = counted(MACHINE_INSTRUCTIONS)
divergent_branches = counted(DIVERGENT_BRANCHES)
global_atomics = counted(*GLOBAL_ATOMICS)
shared_atomics = counted(SHARED_ATOMICS)


def ratio(over: str, under: str) -> Value:
    """Return a function that divides two counters; its value is None if one is missing or `under`
    is 0."""

    def value(record: Record) -> float | None:
        top, bottom = counted(over)(record), counted(under)(record)
        return top / bottom if top is not None and bottom else None

    return value


# The minimum is 4 for 32 lanes of 4 bytes, 16 for 32 lanes of 16 bytes.
sectors_per_load = ratio(GLOBAL_LOAD_SECTORS, GLOBAL_LOAD_REQUESTS)
sectors_per_store = ratio(GLOBAL_STORE_SECTORS, GLOBAL_STORE_REQUESTS)


def intensity(record: Record) -> float | None:
    """FLOPs per byte of the global sectors requested from L1."""
    sectors = global_sectors(record)
    return record.flops / (SECTOR_BYTES * sectors) if sectors else None


def gigabytes_per_second(record: Record) -> float | None:
    """The problem's minimum traffic over the time."""
    return record.min_bytes / record.time_s / 1e9 if record.time_s else None


def computes(record: Record) -> bool:
    """Whether the problem has more operations than bytes, so that its speed is given in TFLOPS."""
    return record.flops > record.min_bytes


def peak(record: Record, product: Gpu) -> Peak:
    """The data sheet's peak that bounds its FLOPs: of float32, or of tensor cores."""
    products = peaks.recorded_products(record.problem, record.rung)
    if products and product.tensor_tflops:
        return peaks.of_tensor_cores(product.tensor_tflops, products)
    return Peak(FP32_PEAK, product.fp32_tflops)


def roof_percent(record: Record) -> float | None:
    """Speed in percent of the data sheet's roof: `peak` or bandwidth, whichever limits.

    None if the bandwidth limits but the data fits in L2: launches are timed with warm caches, so
    device memory is then no bound.
    """
    product = gpu(record.device)
    if product is None or not record.time_s:
        return None
    arithmetic = record.flops / (peak(record, product).tflops * 1e12)
    memory = record.min_bytes / (product.bandwidth_gbs * 1e9)
    if memory > arithmetic and record.min_bytes <= product.l2_mb * 2**20:
        return None
    return 100 * max(arithmetic, memory) / record.time_s


def microseconds(record: Record) -> float | None:
    return None if record.time_s is None else 1e6 * record.time_s


def registers(record: Record) -> float | None:
    return record.resources["registers"] if record.resources else None


def occupancy_percent(record: Record) -> float | None:
    return 100 * record.occupancy["fraction"] if record.occupancy else None


def operations(*names: str) -> Value:
    """Return a function that counts a timeline's operations with these names; None without one."""

    def value(record: Record) -> float | None:
        if record.timeline is None:
            return None
        return float(sum(line["name"] in names for line in record.timeline))

    return value


def moved(*names: str) -> Value:
    """Return a function that sums the bytes that operations with these names move between host and
    device; None without a timeline."""

    def value(record: Record) -> float | None:
        if record.timeline is None:
            return None
        return float(sum(line["bytes"] for line in record.timeline if line["name"] in names))

    return value


# The names of a timeline's operations in devices/flow.py. Accesses to managed memory move pages.
COPIES, PREFETCHES = ("copy in", "copy out"), ("prefetch in", "prefetch out")
TOUCHES = ("kernel", "host read")
bytes_in = moved("copy in", "prefetch in", "kernel")
bytes_out = moved("copy out", "prefetch out", "host read")
bytes_by_touch = moved(*TOUCHES)
transfers = operations(*COPIES, *PREFETCHES)


@dataclass(frozen=True)
class Metric:
    """A number that is compared between rungs. `plural` is the grammatical number of `name`."""

    name: str
    plural: bool
    value: Value


# Counts of warp-level events. Each costs about a cycle of some unit, so changes are comparable.
COUNTS = (
    Metric("global load requests", True, counted(GLOBAL_LOAD_REQUESTS)),
    Metric("global load sectors", True, counted(GLOBAL_LOAD_SECTORS)),
    Metric("global store sectors", True, counted(GLOBAL_STORE_SECTORS)),
    Metric("global atomics", True, global_atomics),
    Metric("shared atomics", True, shared_atomics),
    Metric("divergent branches", True, divergent_branches),
    Metric("shared wavefronts", True, shared_wavefronts),
    Metric("excessive shared wavefronts", True, shared_excessive),
    Metric("PTX instructions", True, instructions),
)
# Transfers between host and device: bytes and number.
TRANSFERS = (
    Metric("bytes copied", True, moved(*COPIES)),
    Metric("bytes moved by page faults", True, bytes_by_touch),
    Metric("bytes prefetched", True, moved(*PREFETCHES)),
    Metric("explicit transfers", True, transfers),
)
OCCUPANCY = Metric("occupancy in %", False, occupancy_percent)
TIME = Metric("time in µs", False, microseconds)
