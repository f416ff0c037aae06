"""What this machine has of what gemmlab can use."""

from __future__ import annotations

import importlib.metadata
import platform
from dataclasses import dataclass


@dataclass(frozen=True)
class Package:
    """A distribution, what it is for, and the install that brings it."""

    name: str
    purpose: str
    extra: str | None = None  # None: part of the plain install

    @property
    def version(self) -> str | None:
        """The installed version; None where it is missing."""
        try:
            return importlib.metadata.version(self.name)
        except importlib.metadata.PackageNotFoundError:
            return None

    @property
    def install(self) -> str:
        target = f"gemmlab[{self.extra}]" if self.extra else self.name
        return f"pip install '{target}'"


PACKAGES = (
    Package("numpy", "emulator, judge"),
    Package("nvidia-cutlass-dsl", "compiles the rungs (CuTe DSL)"),
    Package("cuda-bindings", "compiles CUDA C++, calls the driver"),
    Package("nvidia-cuda-nvrtc", "compiles CUDA C++"),
    Package("nvidia-nvjitlink", "assembles PTX"),
    Package("nvidia-cuda-cuobjdump", "registers and spills"),
    Package("nvidia-cuda-nvdisasm", "SASS"),
    Package("cuda-core", "runs kernels on a GPU", "cu13"),
    Package("cuda-bench", "times kernels (NVBench)", "bench"),
    Package("nvmath-python", "cuBLAS to compare with", "bench"),
    Package("cupy-cuda13x", "CUB and CuPy to compare with", "bench"),
    Package("llvmlite", "the emulator's native tier", "native"),
)


def own_version() -> str:
    """gemmlab's version; "unknown" in a checkout that was not installed."""
    try:
        return importlib.metadata.version("gemmlab")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def report() -> dict[str, object]:
    """Python, platform, packages, device and cache folder, as plain JSON."""
    from gemmlab.compile import cache
    from gemmlab.devices import open_device
    from gemmlab.emulator.native.compiler import host, missing
    from gemmlab.errors import GemmlabError

    try:
        gpu, trouble = open_device("cuda").name, None
    except GemmlabError as error:
        gpu, trouble = None, str(error)
    return {
        "gemmlab": own_version(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "gpu": gpu,
        "gpu_missing_because": trouble,
        "device_auto": gpu or "emulated",
        "native_tier": None if missing() else host()[0],
        "native_tier_missing_because": missing(),
        "cache": str(cache.folder()),
        "packages": [
            {
                "name": package.name,
                "purpose": package.purpose,
                "version": package.version,
                "install": None if package.version else package.install,
            }
            for package in PACKAGES
        ],
    }
