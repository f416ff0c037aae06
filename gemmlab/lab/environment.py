"""The versions, packages and hardware that gemmlab finds on this machine."""

from __future__ import annotations

import importlib.metadata
import platform

from gemmlab.core import built
from gemmlab.core.packages import CUDA_BINDINGS, CUDA_CORE, CUTE_DSL, LLVMLITE, PACKAGES, Package
from gemmlab.errors import MissingDependencyError

# Packages that `report` imports, to find broken ones. Most commands need them; importing the others
# would take too long.
_TRIED = (CUTE_DSL, CUDA_BINDINGS, CUDA_CORE, LLVMLITE)


def own_version() -> str:
    """Return gemmlab's version; "unknown" in a checkout that is not installed."""
    try:
        return importlib.metadata.version("gemmlab")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def report() -> dict[str, object]:
    """Return Python, platform, packages, device and cache folder as JSON data."""
    from gemmlab.compile import cache
    from gemmlab.devices import open_device
    from gemmlab.emulator.native.compiler import host, missing
    from gemmlab.errors import DeviceError, GemmlabError

    gpu, trouble, has_gpu = None, None, True
    try:
        gpu = open_device("cuda").name
    except GemmlabError as error:
        trouble, has_gpu = str(error), not isinstance(error, DeviceError)
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
        "built_kernels": _built_kernels(),
        "packages": [_as_json(package, has_gpu) for package in PACKAGES],
    }


def _built_kernels() -> str:
    """Say which kernels of `gemmlab.matmul` need no compiling, e.g. "84 for sm_90a"."""
    found = []
    for folder in sorted(built.FOLDER.glob("*")):
        if manifest := built.read(folder):
            outdated = " (outdated, not used)" if manifest.changed() else ""
            found.append(f"{len(manifest.kernels)} for {folder.name}{outdated}")
    return ", ".join(found) or "none"


def _as_json(package: Package, has_gpu: bool) -> dict[str, str | None]:
    """Return a package as JSON data.

    `install` is the command that installs or repairs it; None if it works, or if it is missing and
    useless without a GPU.
    """
    version, trouble = package.version, None
    install = None if version or (package.needs_gpu and not has_gpu) else package.install
    if version and package in _TRIED:
        try:
            package.load()
        except MissingDependencyError as error:
            trouble, install = str(error), package.reinstall
    return {
        "name": package.name,
        "purpose": package.purpose,
        "version": version,
        "trouble": trouble,
        "install": install,
    }
