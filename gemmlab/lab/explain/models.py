"""The traffic model of each kernel: one line per kernel file."""

from __future__ import annotations

from collections.abc import Mapping

from gemmlab.hardware import network_traffic, traffic
from gemmlab.hardware.traffic import Model, Traffic
from gemmlab.kernels.rung import Rung

_BY_KERNEL: Mapping[str, Model] = {
    "gemm.naive": traffic.direct_product,
    "gemm.uncoalesced": traffic.direct_product,
    "gemm.shared": traffic.tiled_product,
    "gemm.tile_1d": traffic.tiled_product,
    "gemm.tile_2d": traffic.tiled_product,
    "gemm.float4": traffic.tiled_product,
    "gemm.transposed_a": traffic.tiled_product,
    "gemm.warp_tile": traffic.tiled_product,
    "gemm.double_buffer": traffic.prefetching_product,
    "gemm.async_copy": traffic.copying_product,
    "gemm.copy_warps": traffic.specialized_product,
    "gemm.split_k": traffic.sliced_product,
    "transpose.naive": traffic.direct_transpose,
    "transpose.shared": traffic.staged_transpose,
    "transpose.ilp": traffic.staged_transpose,
    "transpose.register_tiles": traffic.turned_transpose,
    "transpose.bulk_copies": traffic.copied_transpose,
    "sum.global_atomics": traffic.atomic_sum,
    "sum.shared_serial": traffic.serial_sum,
    "sum.tree": traffic.tree_sum,
    "sum.warp_shuffle": traffic.shuffled_sum,
    "sum.vectorized": traffic.strided_sum,
    "sum.loads_in_flight": traffic.chunked_sum,
    "sum.fixed_order": traffic.ordered_sum,
    "histogram.global_atomics": traffic.atomic_histogram,
    "histogram.shared_atomics": traffic.staged_histogram,
    "histogram.wide_loads": traffic.resident_histogram,
    "histogram.lane_counters": traffic.lane_histogram,
    "softmax.online": network_traffic.online_softmax,
    "scan.hillis_steele": network_traffic.stepwise_scan,
    "conv2d.direct": network_traffic.direct_filter,
    "conv2d.shared_tile": network_traffic.staged_filter,
    "attention.direct": network_traffic.direct_attention,
    "attention.flash": network_traffic.staged_attention,
}
# For kernels of a problem that are not named above.
_BY_PROBLEM: Mapping[str, Model] = {
    "gemm": traffic.staged_product,
    "vector-add": traffic.vector_sum,
    "softmax": network_traffic.softmax,
    "layernorm": network_traffic.layernorm,
    "scan": network_traffic.row_scan,
}


def model(rung: Rung, shape: Mapping[str, int]) -> Traffic | None:
    """Return the rung's modeled traffic at a shape; None if it has no model."""
    _, _, kernel = rung.kernel.__module__.partition("gemmlab.kernels.")
    found = _BY_KERNEL.get(kernel)
    if rung.launches is not None:
        return None
    if (found is None and hasattr(rung.config, "block_m")) or rung.problem != "gemm":
        found = found or _BY_PROBLEM.get(rung.problem)
    return found(rung.config, shape) if found else None
