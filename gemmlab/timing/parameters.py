"""What the model knows of a GPU: one JSON file per product, each value with its source."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from gemmlab.errors import InputError, UnknownNameError
from gemmlab.hardware import specs
from gemmlab.hardware.specs import Gpu

STATUSES = ("documented", "measured", "fitted", "assumed")


@dataclass(frozen=True)
class Parameters:
    """Rates and latencies of a GPU. Cycles are those of a multiprocessor.

    sms, clock_ghz: multiprocessors, and their clock under load.
    fma_cycles, alu_cycles, fp64_cycles, xu_cycles, uniform_cycles: of a partition's unit per
        instruction of a warp.
    bank_cycles: of a bank of the register file per register that is not in the reuse cache.
    queue_depth: memory instructions that wait per partition. queue_cycles: from issue to the unit.
    least_shared_cycles, least_global_cycles: of the load and store unit per instruction.
    line_cycles: per line that L1 looks up. return_cycles: per word that a shared load returns to
        each lane.
    shared_latency, l1_latency, l2_latency, dram_latency: after the last wavefront or sector. That
        of L2 includes L1; that of device memory comes on top. jitter_cycles: the most that L2's
        distance adds.
    shuffle_latency, constant_latency, special_latency, xu_latency: of instructions of variable
        latency. arrival_cycles: per warp that arrives at a barrier; barrier_cycles: from the last
        arrival. branch_cycles: after a branch.
        block_cycles: before the first instruction of a block.
    mma_cycles: of a partition's tensor cores, per 32 bytes of k of a warp's product.
        product_latency: after the last cycle of a warpgroup's product. signal_latency: of an
        arrival at an mbarrier, and from a phase's end to the warp that waits. bulk_latency: of a
        bulk copy, after its last sector. bulk_cycles: of a warp per copy that it hands to the copy
        engine. bulk_bytes: that the engine copies per cycle.
    l1_kb: L1 and shared memory. l1_fill_bytes: from L2 per cycle, at most. l2_share: of L2's
        capacity that a launch's inputs may take to stay there. dirty_share: of the lines that a
        launch finds in L2, those that another has written, at most dirty_mb.
    l2_gbs, dram_gbs: that kernels reach. dram_turn: cycles that device memory takes for another
        request to the same place, for which a request waits under load. dram_writes: cost of a byte
        written, in bytes read. lone_sectors: cost of a sector that is read without the other one
        of its pair, in adjacent sectors. partial_sectors: cost of storing a part of a
        sector, in whole sectors.
    l2_atomics_g: sectors that atomic operations of all multiprocessors update per nanosecond, a
        sector once per lane of an address; same_address_g, same_float_g: at one address.
    launch_us: of an empty kernel as the records are measured. next_launch_us: of one that follows
        another.
    """

    sms: int
    clock_ghz: float
    fma_cycles: float
    alu_cycles: float
    fp64_cycles: float
    xu_cycles: float
    uniform_cycles: float
    bank_cycles: float
    queue_depth: int
    queue_cycles: float
    least_shared_cycles: float
    least_global_cycles: float
    line_cycles: float
    return_cycles: float
    shared_latency: float
    l1_latency: float
    l2_latency: float
    jitter_cycles: float
    dram_latency: float
    shuffle_latency: float
    constant_latency: float
    special_latency: float
    xu_latency: float
    arrival_cycles: float
    barrier_cycles: float
    branch_cycles: float
    block_cycles: float
    mma_cycles: float
    product_latency: float
    signal_latency: float
    bulk_latency: float
    bulk_cycles: float
    bulk_bytes: float
    l1_kb: float
    l1_fill_bytes: float
    l2_mb: float
    l2_share: float
    dirty_share: float
    dirty_mb: float
    l2_gbs: float
    dram_gbs: float
    dram_turn: float
    dram_writes: float
    lone_sectors: float
    partial_sectors: float
    l2_atomics_g: float
    same_address_g: float
    same_float_g: float
    launch_us: float
    next_launch_us: float


@dataclass(frozen=True)
class Source:
    """Where a value comes from. status: one of STATUSES; other than a GPU's own are unproven."""

    value: float
    status: str
    source: str


@dataclass(frozen=True)
class Model:
    """A GPU as the model knows it.

    is_proven: whether predictions were compared with records of such a GPU, not of one with another
    size or clock, or a change. interval: the range of measured over predicted times of four in five
    records to which nothing was fitted; None if not proven. what_if: names of WHAT_IFS, changes
    that no such GPU or kernel has.
    """

    gpu: Gpu
    parameters: Parameters
    sources: dict[str, Source]
    is_proven: bool
    interval: tuple[float, float] | None
    what_if: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        """What to compile for, such as "sm_90a"."""
        return specs.architecture(self.gpu.arch).targets[0]


NO_CONFLICTS = "no-bank-conflicts"
# What would the time be with these parameters, in multiples of the GPU's?
WHAT_IFS: dict[str, dict[str, float]] = {
    NO_CONFLICTS: {},  # changes what is executed: `Facts.remove_conflicts`
    "no-register-conflicts": {"bank_cycles": 0.0},
    "twice-l2": {"l2_mb": 2.0},
    "twice-l2-rate": {"l2_gbs": 2.0, "l1_fill_bytes": 2.0},
    "twice-dram-rate": {"dram_gbs": 2.0},
    "half-latency": {"l1_latency": 0.5, "l2_latency": 0.5, "dram_latency": 0.5},
}


def model(
    name: str,
    sms: int | None = None,
    clock_ghz: float | None = None,
    what_if: Sequence[str] = (),
) -> Model:
    """Return the model of a GPU, such as "H200", with another size or clock if given.

    what_if: names of WHAT_IFS. Raises UnknownNameError for a GPU without a file and for an unknown
    change, InputError for a size or clock that is not positive.
    """
    gpu = specs.product(name)
    file = _files().get(gpu.name)
    if file is None:
        known = ", ".join(_files())
        raise UnknownNameError(f"no model of {gpu.name}; models: {known}")
    sources = {key: Source(**of) for key, of in file["parameters"].items()}
    values: dict[str, Any] = {key: source.value for key, source in sources.items()}
    parameters = Parameters(**values)
    if sms is not None:
        if sms < 1:
            raise InputError(f"{sms} multiprocessors: must be 1 or more")
        parameters = replace(parameters, sms=sms)
    if clock_ghz is not None:
        if clock_ghz <= 0:
            raise InputError(f"a clock of {clock_ghz} GHz: must be more than 0")
        parameters = replace(parameters, clock_ghz=clock_ghz)
    for change in what_if:
        if change not in WHAT_IFS:
            raise UnknownNameError(f"no change {change!r}; changes: {', '.join(WHAT_IFS)}")
        factors = WHAT_IFS[change].items()
        parameters = replace(parameters, **{k: getattr(parameters, k) * x for k, x in factors})
    is_proven = bool(file["is_proven"]) and sms is None and clock_ghz is None and not what_if
    interval = tuple(file["interval"]) if is_proven else None
    return Model(gpu, parameters, sources, is_proven, interval, tuple(what_if))


@cache
def _files() -> dict[str, dict[str, Any]]:
    folder = resources.files(__package__) / "gpus"
    files = [json.loads(path.read_text(encoding="utf-8")) for path in folder.iterdir()]
    return {file["gpu"]: file for file in sorted(files, key=lambda file: str(file["gpu"]))}
