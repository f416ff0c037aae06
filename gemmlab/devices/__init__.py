"""Where an artifact runs: `open_device` gives a GPU or the emulator."""

from __future__ import annotations

from gemmlab.compile.architectures import DEFAULT, check_architecture
from gemmlab.devices.device import Buffer, Device, Launched, Span
from gemmlab.errors import DeviceError, MissingDependencyError, UnknownNameError

__all__ = ["CHOICES", "Buffer", "Device", "Launched", "Span", "open_device"]

CHOICES = ("auto", "emulated", "cuda")


def open_device(name: str = "auto", arch: str | None = None, tier: str = "auto") -> Device:
    """The device of that name; "auto" takes a GPU when one can be used, else the emulator.

    `arch` is what kernels are compiled for: by default the GPU's own, sm_90a on the emulator.
    `tier` is the emulator's: auto, numpy or native. Raises UnknownNameError for another name of any
    of them, and for "cuda" MissingDependencyError (no package) or DeviceError (no driver, no GPU).
    """
    from gemmlab.devices.emulated import EmulatedDevice

    if name not in CHOICES:
        raise UnknownNameError(f"no device {name!r}; there is: {', '.join(CHOICES)}")
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
