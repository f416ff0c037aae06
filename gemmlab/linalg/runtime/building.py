"""Build all kernels and formulas of an architecture for a release."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path

from gemmlab.compile import closure, cute
from gemmlab.core import built
from gemmlab.core.built import Manifest
from gemmlab.linalg.arch import Architecture
from gemmlab.linalg.planning import prepared, variants
from gemmlab.linalg.runtime import kernels
from gemmlab.linalg.runtime.built import name_of


def build(arch: Architecture) -> Manifest:
    """Compile all kernels, make all formulas, and replace the built ones.

    Raises the errors of `kernels.artifact`.
    """
    codes = variants.kernels(arch)
    described = {}
    for code, artifact in zip(codes, kernels.compile_all(codes), strict=True):
        assert artifact.cubin is not None
        parameters = [astuple(parameter) for parameter in artifact.parameters]
        description = {"entry": artifact.entry, "parameters": parameters}
        described[name_of(code)] = description, artifact.cubin
    rest = sources(arch), described, prepared.texts(arch)
    return built.write(built.FOLDER / arch.target, cute.versions(), *rest)


def sources(arch: Architecture) -> list[str]:
    """Return the files that determine which kernels and formulas there are, and their code.

    Paths are relative to the package.
    """
    files = [kernels.source_of(name, arch) for name in arch.kernels]
    files += [Path(variants.__file__), Path(prepared.__file__)]
    files.append(Path(cute.__file__).with_name("cute_launch.py"))
    return [*closure.members(*files), "compile/cache.py"]  # the latter has the cache's FORMAT
