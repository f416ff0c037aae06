"""Explain one rung on one GPU by formulas, compiler output and the emulator's counts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from gemmlab.compile.architectures import ARCHITECTURES, DEFAULT
from gemmlab.compile.artifact import Artifact, Resources
from gemmlab.compile.cute import compile_rung
from gemmlab.core.figures import digits
from gemmlab.devices.cuda import CudaDevice
from gemmlab.emulator.counters.rules import SECTOR_BYTES
from gemmlab.errors import (
    ArchitectureError,
    CompileError,
    DeviceError,
    EmulationError,
    LaunchError,
    MissingDependencyError,
    ShapeError,
)
from gemmlab.hardware.limits import check_launch
from gemmlab.hardware.occupancy import Occupancy, occupancy
from gemmlab.hardware.specs import Gpu, product
from gemmlab.hardware.traffic import Traffic, shared_reads
from gemmlab.kernels.ladder import label
from gemmlab.kernels.rung import Geometry, Rung
from gemmlab.lab.explain.comparison import Row, compare
from gemmlab.lab.explain.counted import TENSOR_CORES, Counted, count
from gemmlab.lab.explain.models import model
from gemmlab.lab.explain.readings import Reading, readings
from gemmlab.problems.problem import Problem, Shape


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

    def _share(self, field: str, among: int) -> Fraction | None:
        quantity = getattr(self.traffic, field, None)
        return Fraction(quantity.value, among) if quantity and among else None


FP32_PEAK = "FP32 peak"


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
    least: int  # bytes of inputs and outputs, each moved once
    wavefronts: int  # of L1 and shared memory
    wavefront_s: float  # their minimum time, at one per clock per SM
    wavefront_tflops: float | None  # the rate that this time allows; None without wavefronts


@dataclass(frozen=True)
class Explanation:
    """One rung at one shape on one GPU. Without counts, parts that need them are None or empty."""

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
    work: Work
    points: tuple[Point, ...]
    counted: Counted | None
    rows: tuple[Row, ...]
    caches: Caches | None
    device_memory: DeviceMemory
    measured: tuple[Reading, ...]  # for this rung, and for others at the same shapes
    notes: tuple[str, ...]

    @property
    def arithmetic_time_s(self) -> float:
        """The time of the FLOPs at the peak."""
        return self.work.flops / (self.peak_tflops * 1e12)

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

    def as_json(self) -> dict[str, Any]:
        """Return the fields and the computed properties as JSON data."""
        data = asdict(self)
        for name in ("least_time_s", "arithmetic_time_s", "memory_time_s"):
            data[name] = getattr(self, name)
        data["gpu"]["ridge"] = self.gpu.ridge
        data["geometry"] = self.geometry._asdict()
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


def times(shape: Mapping[str, int]) -> str:
    """Format a shape, e.g. "512×512×64"."""
    return "×".join(map(str, shape.values()))


def explain(problem: Problem, rung: Rung, shape: Shape, gpu: Gpu) -> Explanation:
    """Explain `rung` at `shape` on `gpu`.

    The emulator counts at that shape, or at a smaller one if it is too large; a note says so.
    Raises ShapeError for a size outside the problem's range, ArchitectureError if the rung cannot
    run on `gpu`.
    """
    _check(problem, rung, shape)
    notes: list[str] = []
    artifact = _compile(rung, gpu, notes)
    geometry = rung.geometry(rung.config, shape)
    threads = math.prod(geometry.grid) * math.prod(geometry.block)
    traffic = model(rung, shape)
    work = Work(problem.flops(shape), problem.min_bytes(shape), threads, traffic)
    refusal = _refusal(rung, shape, gpu, artifact, geometry)
    counted = None if refusal else _count(problem, rung, artifact, shape, notes)
    counted_traffic = model(rung, counted.shape) if counted else None
    resident = _occupancy(gpu, artifact, geometry)
    peak, peak_tflops = _peak(rung, gpu)
    if peak == FP32_PEAK and TENSOR_CORES.search(artifact.ptx):
        notes.append("The kernel uses tensor cores: the float32 peak is not its roof.")
    return Explanation(
        rung=label(rung),
        change=rung.change,
        problem=problem.name,
        layout=rung.layout,
        shape=dict(shape),
        gpu=gpu,
        peak=peak,
        peak_tflops=peak_tflops,
        arch=artifact.arch,
        geometry=geometry,
        resources=artifact.resources,
        refusal=refusal,
        occupancy=resident,
        work=work,
        points=_points(problem, replace(gpu, fp32_tflops=peak_tflops), peak, work, counted),
        counted=counted,
        rows=compare(counted_traffic, counted) if counted and counted_traffic else (),
        caches=_caches(problem, gpu, counted) if counted else None,
        device_memory=_device_memory(problem, rung, shape, gpu, resident),
        measured=readings(problem.name, label(rung), rung.layout),
        notes=tuple(notes),
    )


def _check(problem: Problem, rung: Rung, shape: Shape) -> None:
    """Raise ShapeError for a size outside the problem's range.

    Makes no inputs of that shape: a tiny case detects sizes that are too small, the C interface's
    integer types those that are too large.
    """
    tiny = {axis: min(size, 1) for axis, size in shape.items()}
    problem.case(tiny, rung.layout, problem.families[0], seed=0)
    types = {parameter.name: parameter.dtype for parameter in problem.parameters}
    for axis, size in shape.items():
        dtype = types.get(axis, "int64")
        if size > np.iinfo(dtype).max:
            raise ShapeError(f"{axis} = {size} exceeds {np.iinfo(dtype).max}, the largest {dtype}")


def _compile(rung: Rung, gpu: Gpu, notes: list[str]) -> Artifact:
    """Compile for the GPU's architecture; if CuTe DSL cannot, for the default one, with a note.

    Raises ArchitectureError if the rung needs another GPU.
    """
    arch = f"{gpu.arch}a" if f"{gpu.arch}a" in ARCHITECTURES else gpu.arch
    if lacking := rung.lacks(arch):
        raise ArchitectureError(f"{label(rung)} {lacking}; {gpu.name} has {gpu.arch}")
    why = "CuTe DSL has no such target"
    if arch in ARCHITECTURES:
        try:
            return compile_rung(rung, arch)
        except CompileError as error:
            why = str(error).splitlines()[0]
    notes.append(
        f"Not compiled for {gpu.arch} ({why}): registers, shared memory and instructions are those "
        f"of {DEFAULT}."
    )
    return compile_rung(rung, DEFAULT)


def _peak(rung: Rung, gpu: Gpu) -> tuple[str, float]:
    """Return the name of the peak that bounds the kernel's FLOPs, and its TFLOPS."""
    scheme = getattr(rung.config, "scheme", None)
    if scheme is None or gpu.tensor_tflops is None:
        return FP32_PEAK, gpu.fp32_tflops
    products = len(scheme.products)  # 16-bit products per float32 product
    return f"16-bit peak of tensor cores ÷ {products} products", gpu.tensor_tflops / products


def _refusal(rung: Rung, shape: Shape, gpu: Gpu, artifact: Artifact, geometry: Geometry) -> str:
    broken = rung.requires(rung.config, shape)
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


def _count(
    problem: Problem, rung: Rung, artifact: Artifact, shape: Shape, notes: list[str]
) -> Counted | None:
    if rung.launches is not None:
        notes.append(
            "Not counted: this kernel is one launch of several. `gemmlab climb` counts all of them."
        )
        return None
    small = dict(shape)
    if math.prod(shape.values()) > problem.emulated_size ** len(problem.axes):
        small = {axis: min(size, problem.default_size) for axis, size in shape.items()}
        ratio = math.prod(shape.values()) / math.prod(small.values())
        notes.append(
            f"Counted at {times(small)} to keep emulation short; "
            f"{times(shape)} is {digits(ratio)} times the work."
        )
    try:
        return count(problem, rung, artifact, small)
    except EmulationError as error:
        notes.append(f"Not counted: {str(error).splitlines()[0]}.")
    return None


def _points(
    problem: Problem, roof: Gpu, peak: str, work: Work, counted: Counted | None
) -> tuple[Point, ...]:
    """Return the points of the minimum traffic, the requested traffic and the counted sectors."""
    found = [("minimum traffic", "if caches serve all reuse", work.flops, work.least_bytes)]
    asked = work.traffic and work.traffic.global_bytes
    if asked:
        found.append(("requested traffic", "without cache hits", work.flops, asked))
    if counted:
        moved = sum(counted.of(f"global {op}").sectors for op in ("load", "store", "atomic"))
        flops = problem.flops(counted.shape)
        found.append(("counted sectors", "without L2 hits", flops, SECTOR_BYTES * moved))
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


def _caches(problem: Problem, gpu: Gpu, counted: Counted) -> Caches:
    """A request to L1 takes at least one wavefront, and at least one per 128 bytes."""
    loads = counted.of("global load")
    waves = sum(
        max(totals.requests, totals.wavefronts, totals.sectors * SECTOR_BYTES // 128)
        for totals in counted.totals.values()
    )
    seconds = waves / (gpu.sms * gpu.boost_mhz * 1e6)
    return Caches(
        loads.bytes_asked,
        loads.sectors * SECTOR_BYTES,
        problem.min_bytes(counted.shape),
        waves,
        seconds,
        problem.flops(counted.shape) / seconds / 1e12 if seconds else None,
    )


def _device_memory(
    problem: Problem, rung: Rung, shape: Shape, gpu: Gpu, resident: Occupancy | None
) -> DeviceMemory:
    fits = problem.min_bytes(shape) <= gpu.l2_mb * 2**20
    reads = None
    tiled = problem.name == "gemm" and rung.launches is None and hasattr(rung.config, "block_m")
    if not fits and resident and tiled:
        reads = shared_reads(rung.config, shape, max(1, resident.blocks_per_sm * gpu.sms))
    return DeviceMemory(fits, reads)
