"""The packages that gemmlab uses, and how to import those that may be missing or broken.

An installed package can still fail to import: a wheel that lacks one of its libraries, files of two
versions mixed, a fault in another package. In either case the error is one sentence with the
command that fixes it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType

from gemmlab.core import interrupts
from gemmlab.errors import InputError, MissingDependencyError


@dataclass(frozen=True)
class Package:
    """A distribution and its purpose.

    `module` is the module that gemmlab imports. `extra` is the extra of gemmlab that installs it;
    None for a package of the default install. `needs_gpu` marks packages that are useless on a
    machine without a GPU.
    """

    name: str
    purpose: str
    module: str | None = None
    extra: str | None = None
    needs_gpu: bool = False

    @property
    def version(self) -> str | None:
        """The installed version; None if the package is not installed."""
        try:
            return importlib.metadata.version(self.name)
        except importlib.metadata.PackageNotFoundError:
            return None

    @property
    def requirement(self) -> str:
        """Name and version from gemmlab's metadata, e.g. "nvidia-cutlass-dsl==4.8.1"."""
        try:
            needed = importlib.metadata.requires("gemmlab") or []
        except importlib.metadata.PackageNotFoundError:
            needed = []
        own = (text for text in needed if re.match(rf"{re.escape(self.name)}(?![\w.-])", text))
        return next(own, self.name).partition(";")[0].strip()

    @property
    def install(self) -> str:
        """The command that installs it."""
        target = f"gemmlab[{self.extra}]" if self.extra else self.requirement
        return f"pip install '{target}'"

    @property
    def reinstall(self) -> str:
        """The command that repairs the installation."""
        return f"pip install --force-reinstall '{self.requirement}'"

    def load(self, module: str | None = None) -> ModuleType:
        """Import `module`, by default the package's own, and return it.

        Raises MissingDependencyError, and InputError if the working directory was deleted.
        """
        name = module or self.module
        assert name is not None, f"{self.name} has no module to import"
        try:
            return importlib.import_module(name)
        except Exception as error:  # a broken package can raise anything
            _check_folder()
            raise self.unusable(error) from error

    @contextmanager
    def importing(self) -> Iterator[None]:
        """Import, within this context, gemmlab's modules that depend on this package.

        Raises MissingDependencyError if the package cannot be imported, or if those modules cannot
        and the installed version is not the one they were written for.
        """
        with interrupts.deferred():
            self.load()
            try:
                yield
            except (AttributeError, ImportError) as error:
                if self.requirement == f"{self.name}=={self.version}":
                    raise
                raise self.unusable(error) from error

    def unusable(self, error: Exception | None = None) -> MissingDependencyError:
        """Return the error to raise if the package is missing or its import raised `error`."""
        if self.version is None or error is None:
            return MissingDependencyError(
                f"{self.name} ({self.purpose}) is not installed; run: {self.install}"
            )
        said = " ".join(f"{type(error).__name__}: {error}".split())
        return MissingDependencyError(
            f"{self.name} {self.version} ({self.purpose}) is installed but cannot be used: "
            f"{said}; run: {self.reinstall}"
        )


def _check_folder() -> None:
    """Raise InputError if the working directory was deleted: packages read it on import."""
    try:
        os.getcwd()
    except OSError as error:
        raise InputError(f"the working directory cannot be used: {error.strerror}") from error


TYPER = Package("typer", "the command line", "typer", "lab")
RICH = Package("rich", "tables", "rich", "lab")
PLATFORMDIRS = Package("platformdirs", "finds the folder of caches", "platformdirs", "lab")
CUTE_DSL = Package("nvidia-cutlass-dsl", "compiles the rungs", "cutlass.cute", "lab")
CUDA_BINDINGS = Package("cuda-bindings", "calls compilers and the driver", "cuda.bindings.driver")
NVRTC = Package("nvidia-cuda-nvrtc", "compiles CUDA C++", extra="lab")
NVJITLINK = Package("nvidia-nvjitlink", "assembles PTX", extra="lab")
CUOBJDUMP = Package("nvidia-cuda-cuobjdump", "registers and spills", extra="lab")
NVDISASM = Package("nvidia-cuda-nvdisasm", "SASS", extra="lab")
CUDA_CORE = Package("cuda-core", "runs the lab's kernels on a GPU", "cuda.core", "lab", True)
NVBENCH = Package("cuda-bench", "times kernels (NVBench)", "cuda.bench", "bench", needs_gpu=True)
CUPTI = Package("cupti-python", "times kernels (CUPTI)", "cupti.cupti", "bench", needs_gpu=True)
NVMATH = Package("nvmath-python", "cuBLAS baselines", "nvmath", "bench", needs_gpu=True)
CUPY = Package("cupy-cuda13x", "CUB and CuPy baselines", "cupy", "bench", needs_gpu=True)
TORCH = Package("torch", "PyTorch baselines", "torch", needs_gpu=True)
TRITON = Package("triton", "Triton baselines", "triton", needs_gpu=True)
LLVMLITE = Package("llvmlite", "the emulator's native tier", "llvmlite.binding", "lab")
DISTRIBUTED = Package("distributed", "judges on several machines (Dask)", "distributed", "class")
VL_CONVERT = Package("vl-convert-python", "charts of reports", "vl_convert", "report")

PACKAGES = (
    Package("numpy", "products on the host, emulator, judge"),
    CUDA_BINDINGS,
    TYPER,
    RICH,
    PLATFORMDIRS,
    CUTE_DSL,
    NVRTC,
    NVJITLINK,
    CUOBJDUMP,
    NVDISASM,
    LLVMLITE,
    VL_CONVERT,
    CUDA_CORE,
    NVBENCH,
    NVMATH,
    CUPY,
)
