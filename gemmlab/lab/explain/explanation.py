"""Everything that formulas, the compiler and the emulator say of one rung on one GPU."""

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
    """What is to be done at the shape that was asked for, by formulas alone."""

    flops: int
    least_bytes: int  # each input read once, each output written once
    threads: int  # of the whole launch
    traffic: Traffic | None

    def per_thread(self, field: str) -> Fraction | None:
        """Elements that a thread asks for, of one field of the traffic."""
        return self._share(field, self.threads)

    def per_result(self, field: str) -> Fraction | None:
        """The same for an element of the output, where each is written once."""
        results = self.traffic and self.traffic.results
        return self._share(field, results.value if results else 0)

    def _share(self, field: str, among: int) -> Fraction | None:
        quantity = getattr(self.traffic, field, None)
        return Fraction(quantity.value, among) if quantity and among else None


FP32_PEAK = "FP32 peak"


@dataclass(frozen=True)
class Point:
    """A place on the roofline."""

    name: str
    condition: str  # when that is what device memory moves
    intensity: float  # FLOPs per byte
    tflops: float  # that they allow
    bound: str  # "memory", or what the peak is called


@dataclass(frozen=True)
class DeviceMemory:
    """What is read from device memory at the shape that was asked for."""

    fits_l2: bool  # inputs and outputs together do
    reads: float | None  # bytes, estimated where they do not; None: no estimate


@dataclass(frozen=True)
class Caches:
    """Who has to serve how much, in bytes, at the shape that was counted."""

    asked: int  # by lanes, of loads from global memory
    sectors: int  # that L1 finds for them
    least: int  # of inputs and outputs, each once
    wavefronts: int  # of L1 and shared memory
    wavefront_s: float  # that they take at one per clock and SM
    wavefront_tflops: float | None  # and the FLOPs that this allows; None without any


@dataclass(frozen=True)
class Explanation:
    """One rung at one shape on one GPU; parts that need a count are None or empty without one."""

    rung: str
    change: str
    problem: str
    layout: str
    shape: dict[str, int]
    gpu: Gpu
    peak: str  # what bounds its FLOPs: `FP32_PEAK`, or a share of that of the tensor cores
    peak_tflops: float
    arch: str  # what the kernel was compiled for
    geometry: Geometry
    resources: Resources | None
    refusal: str  # why the kernel refuses the shape, or the GPU the launch; "" if nobody does
    occupancy: Occupancy | None
    work: Work
    points: tuple[Point, ...]
    counted: Counted | None
    rows: tuple[Row, ...]
    caches: Caches | None
    device_memory: DeviceMemory
    measured: tuple[Reading, ...]  # of this rung, and of others at the same shapes
    notes: tuple[str, ...]

    @property
    def arithmetic_time_s(self) -> float:
        """What the FLOPs take at the peak."""
        return self.work.flops / (self.peak_tflops * 1e12)

    @property
    def memory_time_s(self) -> float:
        """What the least bytes take at the bandwidth of device memory. A launch whose data L2 holds
        already, or keeps, need not move them."""
        return self.work.least_bytes / (self.gpu.bandwidth_gbs * 1e9)

    @property
    def least_time_s(self) -> float:
        """No launch is faster, whatever L2 holds: the FLOPs at the peak, or, at the bandwidth of
        device memory, what of the least bytes is more than L2."""
        more = max(self.work.least_bytes - self.gpu.l2_mb * 2**20, 0)
        return max(self.arithmetic_time_s, more / (self.gpu.bandwidth_gbs * 1e9))

    @property
    def roof(self) -> Gpu:
        """The GPU as this kernel's roofline sees it: with the peak of the units that it uses."""
        return replace(self.gpu, fp32_tflops=self.peak_tflops)

    def as_json(self) -> dict[str, Any]:
        """Plain data, with what the properties work out."""
        told = asdict(self)
        for name in ("least_time_s", "arithmetic_time_s", "memory_time_s"):
            told[name] = getattr(self, name)
        told["gpu"]["ridge"] = self.gpu.ridge
        told["geometry"] = self.geometry._asdict()
        for row, plain in zip(self.rows, told["rows"], strict=True):
            plain["difference"] = row.difference
        for field in ("global_loads", "shared_loads"):
            for name, share in (("thread", self.work.per_thread), ("result", self.work.per_result)):
                value = share(field)
                told["work"][f"{field}_per_{name}"] = None if value is None else float(value)
        return told


def default_gpu() -> Gpu:
    """The GPU of this machine, as its driver describes it, or else an H200 by its data sheet."""
    try:
        return CudaDevice().facts
    except (DeviceError, MissingDependencyError):
        return product("H200")


def times(shape: Mapping[str, int]) -> str:
    """512×512×64"""
    return "×".join(map(str, shape.values()))


def explain(problem: Problem, rung: Rung, shape: Shape, gpu: Gpu) -> Explanation:
    """Explain `rung` at `shape` on `gpu`. Counts are the emulator's, at that shape or, where it is
    too large, at a smaller one; `notes` says so.

    Raises ShapeError for a size that the problem does not have.
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
        notes.append("It computes on tensor cores: the float32 peak is not its roof.")
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
    """Without drawing inputs: a tiny case finds what is too small, the C ABI what is too large."""
    tiny = {axis: min(size, 1) for axis, size in shape.items()}
    problem.case(tiny, rung.layout, problem.families[0], seed=0)
    types = {parameter.name: parameter.dtype for parameter in problem.parameters}
    for axis, size in shape.items():
        dtype = types.get(axis, "int64")
        if size > np.iinfo(dtype).max:
            raise ShapeError(f"{axis} = {size} is more than {np.iinfo(dtype).max}, an {dtype}")


def _compile(rung: Rung, gpu: Gpu, notes: list[str]) -> Artifact:
    """For the GPU's architecture where CuTe DSL can, else for the default one, and a note.

    Raises ArchitectureError for a rung that needs another GPU.
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
    """What bounds the kernel's FLOPs, and TFLOPS."""
    scheme = getattr(rung.config, "scheme", None)
    if scheme is None or gpu.tensor_tflops is None:
        return FP32_PEAK, gpu.fp32_tflops
    products = len(scheme.products)  # of 16 bits, that stand for one of float32
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
    except LaunchError:  # more than the GPU has: the refusal says so
        return None


def _count(
    problem: Problem, rung: Rung, artifact: Artifact, shape: Shape, notes: list[str]
) -> Counted | None:
    if rung.launches is not None:
        notes.append(
            "Not counted: its kernel is one launch of several. `gemmlab climb` counts all."
        )
        return None
    small = dict(shape)
    if math.prod(shape.values()) > problem.emulated_size ** len(problem.axes):
        small = {axis: min(size, problem.default_size) for axis, size in shape.items()}
        ratio = math.prod(shape.values()) / math.prod(small.values())
        notes.append(
            f"Counted at {times(small)}, where following every access takes seconds; "
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
    """By the least bytes, by the bytes that lanes ask for, and by the sectors that L1 finds."""
    found = [("least traffic", "if caches serve every reuse", work.flops, work.least_bytes)]
    asked = work.traffic and work.traffic.global_bytes
    if asked:
        found.append(("asked for by lanes", "if no cache serves any", work.flops, asked))
    if counted:
        moved = sum(counted.of(f"global {op}").sectors for op in ("load", "store", "atomic"))
        flops = problem.flops(counted.shape)
        found.append(("sectors counted", "if L2 serves none", flops, SECTOR_BYTES * moved))
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
    """A request of L1 takes a wavefront at least, and one for each 128 bytes."""
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
