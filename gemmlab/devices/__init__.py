"""Devices that run artifacts: `open_device` returns a GPU or the emulator."""

from __future__ import annotations

from gemmlab.compile.architectures import DEFAULT, check_architecture
from gemmlab.devices.device import Buffer, Device, Launched, Span
from gemmlab.errors import DeviceError, MissingDependencyError, UnknownNameError

__all__ = ["CHOICES", "Buffer", "Device", "Launched", "Span", "open_device"]

CHOICES = ("auto", "emulated", "cuda")


def open_device(name: str = "auto", arch: str | None = None, tier: str = "auto") -> Device:
    """Open a device: "cuda", "emulated", or "auto" for a GPU if one is usable, else the emulator.

    `arch` is the architecture to compile for: by default the GPU's, or sm_90a on the emulator.
    `tier` is the emulator's tier: auto, numpy or native. Raises UnknownNameError for an unknown
    name, arch or tier; for "cuda" also MissingDependencyError (package) and DeviceError (no driver
    or no GPU).
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
