"""Explain a kernel on one GPU by formulas, compiler output and the emulator's counts."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from gemmlab.compile.artifact import Artifact, Resources
from gemmlab.core import markup
from gemmlab.core.figures import digits, seconds, times
from gemmlab.devices.cuda import CudaDevice
from gemmlab.emulator.counters.rules import SECTOR_BYTES
from gemmlab.errors import DeviceError, EmulationError, LaunchError, MissingDependencyError
from gemmlab.hardware.limits import check_launch
from gemmlab.hardware.occupancy import Occupancy, occupancy
from gemmlab.hardware.specs import Gpu, product
from gemmlab.hardware.traffic import Traffic, accesses_per_result, shared_reads
from gemmlab.hardware.waves import Waves
from gemmlab.kernels.ladder import label
from gemmlab.kernels.rung import Geometry, Rung
from gemmlab.lab import advice, peaks
from gemmlab.lab.explain import stalls
from gemmlab.lab.explain.comparison import Row, compare
from gemmlab.lab.explain.counted import Counted, added, count
from gemmlab.lab.explain.readings import Reading, readings
from gemmlab.lab.explain.stalls import Stalls
from gemmlab.lab.explain.subject import Subject, of_rung
from gemmlab.lab.peaks import FP32_PEAK, Peak
from gemmlab.problems.problem import Problem, Shape
from gemmlab.ptx.products import least_bits

STEPS = 8  # the K for which teaching material compares accesses per result


@dataclass(frozen=True)
class Work:
    """The work at the requested shape, by formulas."""

    flops: int
    least_bytes: int  # each input read once, each output written once
    threads: int  # of the whole launch
    traffic: Traffic | None

    def per_thread(self, field: str) -> Fraction | None:
        """Elements that one thread requests, for a field of `Traffic`; None if unknown."""
        return self._share(field, self.threads)

    def per_result(self, field: str) -> Fraction | None:
        """Elements requested per element of the output; None if unknown, or if outputs are not
        written exactly once."""
        results = self.traffic and self.traffic.results
        return self._share(field, results.value if results else 0)

    def accesses(self) -> float | None:
        """Accesses of one thread per result of a product with K = STEPS; None for other kernels."""
        tile = self.traffic and self.traffic.thread_tile
        return accesses_per_result(tile, STEPS) if tile else None

    def _share(self, field: str, among: int) -> Fraction | None:
        quantity = getattr(self.traffic, field, None)
        return Fraction(quantity.value, among) if quantity and among else None


@dataclass(frozen=True)
class Point:
    """A point on the roofline."""

    name: str
    condition: str  # under which device memory moves this many bytes
    intensity: float  # FLOPs per byte
    tflops: float  # attainable at this intensity
    bound: str  # "memory", or the name of the peak


@dataclass(frozen=True)
class DeviceMemory:
    """Reads from device memory at the requested shape."""

    fits_l2: bool  # inputs and outputs together fit in L2
    reads: float | None  # estimated bytes if they do not fit; None: no estimate


@dataclass(frozen=True)
class Caches:
    """Requests to each level of the memory hierarchy at the counted shape."""

    asked: int  # bytes of global loads requested by lanes
    sectors: int  # bytes of the L1 sectors of these loads
    bulk: int  # bytes that bulk copies read
    least: int  # bytes of inputs and outputs, each moved once
    wavefronts: int  # of L1 and shared memory
    wavefront_s: float  # their minimum time, at one per clock per SM
    wavefront_tflops: float | None  # the rate that this time allows; None without wavefronts


@dataclass(frozen=True)
class Explanation:
    """One kernel at one shape on one GPU. Without counts, parts that need them are None or empty.

    `rung` is the kernel's name: of a rung, or of a file. `problem` is "" if the kernel solves none
    of gemmlab's problems: then the FLOPs are counted.
    """

    rung: str
    change: str
    problem: str
    layout: str
    shape: dict[str, int]
    gpu: Gpu
    peak: str  # name of the peak that bounds its FLOPs: `FP32_PEAK`, or that of the tensor cores
    peak_tflops: float
    arch: str  # the architecture that the kernel was compiled for
    geometry: Geometry
    resources: Resources | None
    refusal: str  # why the kernel or the GPU cannot run this shape; "" if it can run
    occupancy: Occupancy | None
    waves: Waves | None  # None without an occupancy, or for one launch of several
    work: Work
    points: tuple[Point, ...]
    counted: Counted | None
    rows: tuple[Row, ...]
    caches: Caches | None
    device_memory: DeviceMemory
    measured: tuple[Reading, ...]  # for this rung, and for others at the same shapes
    stalls: Stalls | None  # a reading of this machine code
    advice: tuple[str, ...]  # what to improve first, the costliest first
    notes: tuple[str, ...]

    @property
    def arithmetic_time_s(self) -> float:
        """The time of the FLOPs at the peak of the SMs that the grid can use."""
        return self.work.flops / (self.usable_tflops * 1e12)

    @property
    def share(self) -> float:
        """An upper bound on the share of the GPU that the grid can use."""
        return self.waves.share if self.waves and self.waves.blocks else 1.0

    @property
    def usable_tflops(self) -> float:
        """The peak of that share."""
        return self.peak_tflops * self.share

    @property
    def memory_time_s(self) -> float:
        """The time of the minimum traffic at the bandwidth of device memory. It is no bound for
        data that L2 holds before or after the launch."""
        return self.work.least_bytes / (self.gpu.bandwidth_gbs * 1e9)

    @property
    def least_time_s(self) -> float:
        """A lower bound for any launch, whatever L2 holds: the FLOPs at the peak, or the minimum
        traffic less the size of L2 at the bandwidth of device memory."""
        more = max(self.work.least_bytes - self.gpu.l2_mb * 2**20, 0)
        return max(self.arithmetic_time_s, more / (self.gpu.bandwidth_gbs * 1e9))

    @property
    def roof(self) -> Gpu:
        """The GPU with `peak_tflops` as its float32 peak, for this kernel's roofline."""
        return replace(self.gpu, fp32_tflops=self.peak_tflops)

    def _repr_html_(self) -> str:
        shown: dict[str, object] = {"sizes": times(self.shape), "GPU": self.gpu.name}
        shown["least time of a launch"] = seconds(self.least_time_s)
        if self.occupancy:
            limiter = self.occupancy.limiter
            shown["occupancy"] = f"{self.occupancy.fraction:.0%}, limited by {limiter}"
        for number, told in enumerate(self.advice, 1):
            shown[f"improve {number}"] = told
        return markup.table(f"{self.rung}: {self.change}", shown)

    def as_json(self) -> dict[str, Any]:
        """Return the fields and the computed properties as JSON data."""
        data = asdict(self)
        for name in ("least_time_s", "arithmetic_time_s", "memory_time_s", "usable_tflops"):
            data[name] = getattr(self, name)
        if self.waves and self.waves.blocks:
            for name in ("waves", "idle_sms", "most_per_sm", "share"):
                data["waves"][name] = getattr(self.waves, name)
        for reading, plain in zip(self.measured, data["measured"], strict=True):
            plain |= {"tflops": reading.tflops, "intensity": reading.intensity}
            plain |= {"peak": reading.peak.name, "peak_tflops": reading.peak.tflops}
        data["work"]["accesses_per_result"] = self.work.accesses()
        data["gpu"]["ridge"] = self.gpu.ridge
        data["geometry"] = self.geometry._asdict()
        if self.stalls:
            data["stalls"] = {"about": self.stalls.about, "reasons": self.stalls.reasons}
        for row, plain in zip(self.rows, data["rows"], strict=True):
            plain["difference"] = row.difference
        for field in ("global_loads", "shared_loads"):
            for name, share in (("thread", self.work.per_thread), ("result", self.work.per_result)):
                value = share(field)
                data["work"][f"{field}_per_{name}"] = None if value is None else float(value)
        return data


def default_gpu() -> Gpu:
    """Return this machine's GPU, as its driver describes it; without one, an H200's data sheet."""
    try:
        return CudaDevice().facts
    except (DeviceError, MissingDependencyError):
        return product("H200")


def explain(problem: Problem, rung: Rung, shape: Shape, gpu: Gpu) -> Explanation:
    """Explain `rung` at `shape` on `gpu`.

    The emulator counts at that shape, or at a smaller one if it is too large; a note says so.
    Raises ShapeError for a size outside the problem's range, ArchitectureError if the rung cannot
    run on `gpu`.
    """
    return explained(of_rung(problem, rung, shape), gpu)


def explained(subject: Subject, gpu: Gpu) -> Explanation:
    """Explain a rung or a file's kernel on `gpu`. Raises what its functions raise."""
    problem, rung, shape = subject.problem, subject.rung, subject.shape
    notes: list[str] = []
    artifact = subject.compiled(gpu, notes)
    geometry = subject.geometry(shape)
    refusal = _refusal(subject, gpu, artifact, geometry)
    counts = [] if refusal else _counts(subject, artifact, notes)
    counted = added(counts) if counts else None
    threads = math.prod(geometry.grid) * math.prod(geometry.block)
    traffic, least_bytes = subject.traffic(shape), subject.least_bytes(shape)
    flops = problem.flops(shape) if problem else counted.flops if counted else 0
    work = Work(flops, least_bytes, threads, traffic)
    counted_traffic = subject.traffic(counted.shape) if counted else None
    resident = _occupancy(gpu, artifact, geometry)
    waves = _waves(subject, gpu, geometry, resident)
    peak, peak_tflops = _peak(rung, artifact.ptx, gpu)
    if peak == FP32_PEAK and least_bits(artifact.ptx):
        notes.append("The kernel uses tensor cores: the float32 peak is not its roof.")
    moved = _moved(subject, counted)
    return Explanation(
        rung=subject.name,
        change=subject.change,
        problem=problem.name if problem else "",
        layout=subject.layout,
        shape=dict(shape),
        gpu=gpu,
        peak=peak,
        peak_tflops=peak_tflops,
        arch=artifact.arch,
        geometry=geometry,
        resources=artifact.resources,
        refusal=refusal,
        occupancy=resident,
        waves=waves,
        work=work,
        points=_points(replace(gpu, fp32_tflops=peak_tflops), peak, work, moved),
        counted=counted,
        rows=compare(counted_traffic, counted) if counted and counted_traffic else (),
        caches=_caches(subject, gpu, counted) if counted else None,
        device_memory=_device_memory(subject, gpu, resident),
        measured=readings(problem.name, label(rung), rung.layout, gpu.name)
        if problem and rung
        else (),
        stalls=stalls.measured(artifact),
        advice=_advice(artifact, counts, resident, problem.name if problem else ""),
        notes=tuple(notes),
    )


def _peak(rung: Rung | None, ptx: str, gpu: Gpu) -> Peak:
    """Return the peak that bounds the kernel's FLOPs."""
    products, bits = peaks.products(rung) if rung else None, least_bits(ptx)
    if products and gpu.tensor_tflops is not None:
        return peaks.of_tensor_cores(gpu.tensor_tflops, products)
    if gpu.tensor_tflops is None or bits in (None, 64):  # float64 has units of its own
        return Peak(FP32_PEAK, gpu.fp32_tflops)
    name = "TF32" if bits == 32 else f"{bits}-bit"
    return Peak(f"{name} peak of tensor cores", gpu.tensor_tflops * 16 / bits)


def _refusal(subject: Subject, gpu: Gpu, artifact: Artifact, geometry: Geometry) -> str:
    broken = subject.broken(subject.shape)
    if broken or 0 in geometry.grid:
        return broken or "there is nothing to launch"
    taken = artifact.resources
    smem, registers = (taken.static_smem_bytes, taken.registers) if taken else (0, 0)
    grid, block, dynamic_smem = geometry
    try:
        check_launch(gpu.arch, grid, block, smem, dynamic_smem, registers)
    except LaunchError as error:
        return str(error)
    return ""


def _occupancy(gpu: Gpu, artifact: Artifact, geometry: Geometry) -> Occupancy | None:
    taken = artifact.resources
    if taken is None:
        return None
    smem = taken.static_smem_bytes + geometry.dynamic_smem_bytes
    try:
        return occupancy(gpu.arch, math.prod(geometry.block), taken.registers, smem)
    except LaunchError:  # the block exceeds the GPU's resources; see _refusal
        return None


def _waves(
    subject: Subject, gpu: Gpu, geometry: Geometry, resident: Occupancy | None
) -> Waves | None:
    several = subject.rung and subject.rung.launches is not None
    if resident is None or not resident.blocks_per_sm or several:
        return None
    blocks = math.prod(geometry.grid)
    return Waves(blocks, resident.blocks_per_sm, gpu.sms, _even(subject, blocks))


def _even(subject: Subject, blocks: int) -> bool:
    """Whether every block computes one whole tile of C."""
    rung, shape = subject.rung, subject.shape
    if rung is None or rung.problem != "gemm" or not hasattr(rung.config, "block_m"):
        return False
    m, n, tile_m, tile_n = shape["m"], shape["n"], rung.config.block_m, rung.config.block_n
    return bool(m % tile_m == n % tile_n == 0 and blocks == (m // tile_m) * (n // tile_n))


def _counts(subject: Subject, artifact: Artifact, notes: list[str]) -> list[Counted]:
    """Return the counts of each launch, the kernel's own first."""
    small, shape = subject.counted_shape, subject.shape
    if small != shape:
        ratio = math.prod(shape.values()) / math.prod(small.values())
        notes.append(
            f"Counted at {times(small)} to keep emulation short; "
            f"{times(shape)} is {digits(ratio)} times the work."
        )
    try:
        launched = subject.launched(artifact, small)
    except EmulationError as error:
        notes.append(f"Not counted: {str(error).splitlines()[0]}.")
        return []
    if len(launched) > 1:
        notes.append(
            f"A product takes {len(launched)} launches. Roofline and caches are those of all; "
            "occupancy, accesses and advice are those of the rung's own kernel."
        )
    for one in launched:
        notes += one.notes
    return [count(one, small) for one in launched]


def _moved(subject: Subject, counted: Counted | None) -> tuple[int, int] | None:
    """Return the FLOPs and the bytes of the sectors that are moved at the counted shape."""
    if counted is None:
        return None
    own = subject.problem
    flops = own.flops(counted.shape) if own else counted.flops
    return flops, counted.moved


def _advice(
    artifact: Artifact, counts: list[Counted], resident: Occupancy | None, problem: str
) -> tuple[str, ...]:
    taken = asdict(artifact.resources) if artifact.resources else {}
    if resident:
        taken |= {"fraction": resident.fraction, "limiter": resident.limiter}
    counters = counts[0].counters if counts else None
    return tuple(advice.sentences(counters, taken, problem, artifact.ptx))


def _points(roof: Gpu, peak: str, work: Work, counted: tuple[int, int] | None) -> tuple[Point, ...]:
    """Return the points of the minimum traffic, the requested traffic and the counted sectors."""
    found = [("minimum traffic", "if caches serve all reuse", work.flops, work.least_bytes)]
    asked = work.traffic and work.traffic.global_bytes
    if asked:
        found.append(("requested traffic", "without cache hits", work.flops, asked))
    if counted:
        found.append(("counted sectors", "without L2 hits", *counted))
    return tuple(
        Point(
            name,
            condition,
            flops / moved,
            roof.attainable_tflops(flops / moved),
            "memory" if flops / moved < roof.ridge else peak,
        )
        for name, condition, flops, moved in found
        if flops and moved
    )


def _caches(subject: Subject, gpu: Gpu, counted: Counted) -> Caches:
    """A request to L1 takes at least one wavefront, and at least one per 128 bytes."""
    loads = counted.of("global load")
    waves = sum(
        max(totals.requests, totals.wavefronts, totals.sectors * SECTOR_BYTES // 128)
        for totals in counted.totals.values()
    )
    seconds = waves / (gpu.sms * gpu.boost_mhz * 1e6)
    flops = subject.problem.flops(counted.shape) if subject.problem else counted.flops
    return Caches(
        loads.bytes_asked,
        loads.sectors * SECTOR_BYTES,
        counted.bulk_loaded,
        subject.least_bytes(counted.shape),
        waves,
        seconds,
        flops / seconds / 1e12 if seconds else None,
    )


def _device_memory(subject: Subject, gpu: Gpu, resident: Occupancy | None) -> DeviceMemory:
    rung, shape = subject.rung, subject.shape
    fits = subject.least_bytes(shape) <= gpu.l2_mb * 2**20
    reads = None
    tiled = rung and rung.problem == "gemm" and rung.launches is None
    if not fits and resident and rung and tiled and hasattr(rung.config, "block_m"):
        reads = shared_reads(rung.config, shape, max(1, resident.blocks_per_sm * gpu.sms))
    return DeviceMemory(fits, reads)
