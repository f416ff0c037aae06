"""Facts about GPUs with their sources. Sizes in bytes, clocks in MHz, bandwidth in GB/s.

Limits per architecture: CUDA C++ Programming Guide, "Technical Specifications per Compute
Capability". Allocation units: NVIDIA's cuda_occupancy.h. Chips: the source named in the row. Each
word of a chip's name occurs in the device name that the driver reports. The peak is 2 · SMs ·
float32 lanes · boost clock. L2: the source named in the row or NVIDIA's tuning guide for the
generation; for H200 and L40S, the driver's report.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gemmlab.errors import UnknownNameError

KB = 1024


@dataclass(frozen=True)
class Architecture:
    """Properties of one compute capability, per multiprocessor (SM) and per block."""

    name: str  # "sm_90"
    warps_per_sm: int
    blocks_per_sm: int
    smem_per_sm: int
    smem_per_block: int  # the opt-in maximum, static and dynamic together
    smem_reserved: int  # per block, reserved by the system
    fp32_lanes: int  # float32 FMAs per clock per SM
    # What compilers accept, the target for such a GPU first. "sm_90a" has instructions that exist
    # on this architecture alone.
    targets: tuple[str, ...] = ()
    has_cute: bool = True  # whether the CuTe DSL compiles for it, and not NVRTC alone
    smem_unit: int = 128  # allocation granularity of shared memory
    registers_per_sm: int = 64 * KB
    register_unit: int = 256  # allocation granularity of registers, per warp
    partitions: int = 4  # of an SM, each with its own warps and registers
    max_registers_per_thread: int = 255


@dataclass(frozen=True)
class Gpu:
    """A GPU product."""

    name: str
    arch: str
    sms: int
    boost_mhz: int
    fp32_tflops: float
    bandwidth_gbs: float
    l2_mb: float  # 2**20 bytes
    source: str
    # float16 inputs, float32 accumulation, dense; None if not known
    tensor_tflops: float | None = None

    @property
    def ridge(self) -> float:
        """FLOPs per byte above which the float32 peak, not memory bandwidth, is the limit."""
        return self.fp32_tflops * 1e3 / self.bandwidth_gbs

    def attainable_tflops(self, intensity: float) -> float:
        """Return the roofline at `intensity` FLOPs per byte of device memory (Williams et al.,
        2009)."""
        return min(self.fp32_tflops, intensity * self.bandwidth_gbs / 1e3)


ARCHITECTURES = {
    arch.name: arch
    for arch in (
        Architecture("sm_70", 64, 32, 96 * KB, 96 * KB, 0, 64, smem_unit=256),
        Architecture(
            "sm_75", 32, 16, 64 * KB, 64 * KB, 0, 64, ("sm_75",), has_cute=False, smem_unit=256
        ),
        Architecture("sm_80", 64, 32, 164 * KB, 163 * KB, KB, 64, ("sm_80",)),
        Architecture("sm_86", 48, 16, 100 * KB, 99 * KB, KB, 128, ("sm_86",)),
        Architecture("sm_87", 48, 16, 164 * KB, 163 * KB, KB, 128, ("sm_87",)),
        Architecture("sm_89", 48, 24, 100 * KB, 99 * KB, KB, 128, ("sm_89",)),
        Architecture("sm_90", 64, 32, 228 * KB, 227 * KB, KB, 128, ("sm_90a", "sm_90")),
        Architecture("sm_100", 64, 32, 228 * KB, 227 * KB, KB, 128, ("sm_100a", "sm_100")),
        Architecture("sm_103", 64, 32, 228 * KB, 227 * KB, KB, 128, ("sm_103", "sm_103a")),
        Architecture(
            "sm_110", 48, 24, 228 * KB, 227 * KB, KB, 128, ("sm_110", "sm_110a"), has_cute=False
        ),
        Architecture("sm_120", 48, 24, 100 * KB, 99 * KB, KB, 128, ("sm_120", "sm_120a")),
        Architecture("sm_121", 48, 24, 100 * KB, 99 * KB, KB, 128, ("sm_121", "sm_121a")),
    )
}

GPUS = (
    Gpu("B200", "sm_100", 148, 1965, 74.5, 8000, 126, "HGX B200 data sheet", 2250),
    Gpu("H200", "sm_90", 132, 1980, 66.9, 4800, 60, "H200 data sheet", 989.5),
    Gpu("H100 80GB HBM3", "sm_90", 132, 1980, 66.9, 3350, 50, "H100 data sheet, SXM", 989.5),
    Gpu("A100 80GB", "sm_80", 108, 1410, 19.5, 2039, 40, "A100 data sheet", 312),
    Gpu("A100 40GB", "sm_80", 108, 1410, 19.5, 1555, 40, "A100 data sheet", 312),
    Gpu("L40S", "sm_89", 142, 2520, 91.6, 864, 96, "L40S data sheet"),
    Gpu("RTX 5090", "sm_120", 170, 2407, 104.8, 1792, 96, "RTX Blackwell whitepaper"),
    Gpu("RTX 4090", "sm_89", 128, 2520, 82.6, 1008, 72, "Ada whitepaper"),
    Gpu("RTX 3090", "sm_86", 82, 1695, 35.6, 936, 6, "GA102 whitepaper"),
    Gpu("RTX 2080 Ti", "sm_75", 68, 1635, 14.2, 616, 5.5, "Turing whitepaper, Founders Edition"),
    Gpu("T4", "sm_75", 40, 1590, 8.1, 320, 4, "T4 data sheet"),
    Gpu("V100-SXM2", "sm_70", 80, 1530, 15.7, 900, 6, "V100 data sheet"),
)


def gpu(device: str) -> Gpu | None:
    """Return the product whose name matches a driver's device name, or None."""
    found = [gpu for gpu in GPUS if all(word in device for word in gpu.name.split())]
    return max(found, key=lambda gpu: len(gpu.name), default=None)


def with_architecture(arch: str) -> Gpu | None:
    """Return the first GPU of the table with an architecture, or None."""
    name = architecture(arch).name
    return next((gpu for gpu in GPUS if gpu.arch == name), None)


def product(name: str) -> Gpu:
    """Return the first product whose name starts with the words of `name`, ignoring case, spaces
    and dashes, as in "rtx2080ti".

    Raises UnknownNameError with the known names if there is none.
    """
    wanted = _plain(name)
    found = [gpu for gpu in GPUS if wanted in _beginnings(gpu.name)]
    if not found:
        known = ", ".join(gpu.name for gpu in GPUS)
        raise UnknownNameError(f"no GPU {name!r} in the table; known: {known}")
    return found[0]


def _beginnings(name: str) -> list[str]:
    """Return the first word of a name, the first two, and so on; the A10 is no A100."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    return ["".join(words[: i + 1]) for i in range(len(words))]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def target_of(major: int, minor: int) -> str:
    """Return what to compile for on a GPU of this compute capability, such as "sm_90a"."""
    name = f"sm_{major}{minor}"
    known = ARCHITECTURES.get(name)
    return known.targets[0] if known and known.targets else name


def architecture(arch: str) -> Architecture:
    """Return the properties of "sm_90" (also "sm_90a", "sm_100f"). Raises UnknownNameError."""
    match = re.fullmatch(r"(sm_\d+)[af]?", arch)
    if match is None or match[1] not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise UnknownNameError(f"no architecture {arch!r} in the table; known: {known}")
    return ARCHITECTURES[match[1]]
