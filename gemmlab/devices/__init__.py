"""Devices that run artifacts: `open_device` returns a GPU or the emulator."""

from __future__ import annotations

from gemmlab.compile.architectures import DEFAULT, check_architecture
from gemmlab.devices.device import Buffer, Device, Launched, Span
from gemmlab.errors import DeviceError, MissingDependencyError, UnknownNameError

__all__ = ["CHOICES", "Buffer", "Device", "Launched", "Span", "open_device"]

CHOICES = ("auto", "emulated", "cuda")
"""The names that `open_device` takes."""


def open_device(name: str = "auto", arch: str | None = None, tier: str = "auto") -> Device:
    """Open a GPU or the emulator.

    Args:
        name: "cuda", "emulated", or "auto" for a GPU if one is usable, else the emulator.
        arch: architecture to compile for; by default the GPU's, or "sm_90a" on the emulator.
        tier: the emulator's tier: "auto", "numpy" or "native".

    Raises:
        UnknownNameError: no device, architecture or tier has that name.
        MissingDependencyError: "cuda" was requested and a package is missing.
        DeviceError: "cuda" was requested and there is no driver or no GPU.

    Examples:
        >>> device = gemmlab.open_device("emulated")
        >>> device.name, device.arch
        ('emulated', 'sm_90a')
        >>> x = device.allocate(128)  # bytes
        >>> x.write(np.arange(32, dtype=np.float32))
        >>> kernel = gemmlab.load("__global__ void twice(float *x) { x[threadIdx.x] *= 2; }")
        >>> args = [gemmlab.devices.Span(x, 0, 128)]
        >>> launched = device.launch(kernel, (1, 1, 1), (32, 1, 1), args)
        >>> x.read().view(np.float32)[:4]
        array([0., 2., 4., 6.], dtype=float32)
    """
    from gemmlab.devices.emulated import EmulatedDevice

    if name not in CHOICES:
        raise UnknownNameError(f"no device {name!r}; known devices: {', '.join(CHOICES)}")
    if arch is not None:
        check_architecture(arch)
    if name != "emulated":
        from gemmlab.devices.cuda import CudaDevice

        try:
            return CudaDevice(arch)
        except (DeviceError, MissingDependencyError):
            if name == "cuda":
                raise
    return EmulatedDevice(arch or DEFAULT, tier)
