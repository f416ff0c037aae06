"""The hardware's peak rates, from its data sheet and from two measured probes.

The probes are a kernel of FMAs only (fma_peak.cu), and a copy of a large buffer in device memory,
whose bytes count twice: read and written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gemmlab.compile.artifact import Artifact
from gemmlab.compile.nvrtc import compile_cuda
from gemmlab.devices.cuda import CudaDevice
from gemmlab.devices.device import Span
from gemmlab.errors import ImplausibleTimeError
from gemmlab.hardware.specs import architecture, gpu
from gemmlab.lab.bench.record import IEEE

COPY_BYTES = 2**30
BLOCK = 512
BLOCKS_PER_SM = 4
ROUNDS = 4096
FMAS_PER_ROUND = 16 * 8  # per thread, see fma_peak.cu


@dataclass(frozen=True)
class Roofs:
    """Peaks in TFLOPS and GB/s. `tensor_tflops` is for float16 inputs; None if unknown."""

    fp32_tflops: float
    bandwidth_gbs: float
    tensor_tflops: float | None
    source: str


def datasheet(name: str, arch: str, sms: int, sm_mhz: float, memory_gbs: float) -> Roofs:
    """Return the peaks of a GPU by its name; if it is not in the table, from the driver's facts."""
    product = gpu(name)
    if product is not None:
        return Roofs(
            product.fp32_tflops, product.bandwidth_gbs, product.tensor_tflops, product.source
        )
    peak = 2 * sms * architecture(arch).fp32_lanes * sm_mhz / 1e6
    return Roofs(peak, memory_gbs, None, "the driver's clocks and bus width")


@dataclass(frozen=True)
class Limits:
    """The lower bound for a kernel's time on some hardware."""

    roofs: Roofs
    flops: int
    l2_bytes: int
    precision: str | None

    def check(self, seconds: float, nbytes: int) -> None:
        """Raise ImplausibleTimeError if the hardware cannot do the work in `seconds`.

        The work is `flops`, at the tensor cores' peak unless the precision class is ieee, and
        moving `nbytes`, less the size of L2: data in L2 when the kernel ends need not have reached
        memory.
        """
        roofs = self.roofs
        peak = roofs.fp32_tflops if self.precision == IEEE else roofs.tensor_tflops
        arithmetic = self.flops / (peak * 1e12) if peak else 0.0
        memory = max(0, nbytes - self.l2_bytes) / (roofs.bandwidth_gbs * 1e9)
        least = max(arithmetic, memory)
        if seconds < least:
            raise ImplausibleTimeError(
                f"{1e6 * seconds:.4g} µs for {self.flops:.4g} operations and {nbytes:.4g} bytes; "
                f"the hardware needs at least {1e6 * least:.4g} µs ({roofs.source})"
            )


def fma_probe(arch: str) -> Artifact:
    """Compile the FMA kernel. Raises CompileError, MissingDependencyError."""
    file = Path(__file__).parent / "fma_peak.cu"
    return compile_cuda(file.read_text(encoding="utf-8"), "fma_peak", arch, file.name)


def copy_launch(device: CudaDevice) -> Callable[[], None]:
    """Return a launch that copies COPY_BYTES within device memory."""
    source, target = (Span(device.allocate(COPY_BYTES), 0, COPY_BYTES) for _ in range(2))
    return lambda: device.copy(target, source)


def fma_launch(device: CudaDevice, probe: Artifact, sms: int) -> Callable[[], None]:
    """Return a launch that fills the GPU with FMAs: `fma_flops` operations."""
    blocks = BLOCKS_PER_SM * sms
    out = Span(device.allocate(4 * blocks * BLOCK), 0, 4 * blocks * BLOCK)
    return device.prepare(probe, (blocks, 1, 1), (BLOCK, 1, 1), [out, 0.999, 0.001, ROUNDS])


def fma_flops(sms: int) -> int:
    return 2 * FMAS_PER_ROUND * ROUNDS * BLOCKS_PER_SM * sms * BLOCK


def measured(copy_s: float | None, fma_s: float | None, sms: int) -> Roofs:
    """Return the peaks by the probes' median times; 0 for a probe without samples."""
    return Roofs(
        fp32_tflops=fma_flops(sms) / fma_s / 1e12 if fma_s else 0.0,
        bandwidth_gbs=2 * COPY_BYTES / copy_s / 1e9 if copy_s else 0.0,
        tensor_tflops=None,
        source="a copy and FMAs in this run",
    )
