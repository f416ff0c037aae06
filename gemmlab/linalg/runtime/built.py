"""Kernels built before a release, so that products on a GPU need no compiler.

`building.py` builds them, and a wheel contains them. In a source tree whose kernels have changed
since, they are ignored.
"""

from __future__ import annotations

from gemmlab.compile.artifact import Artifact, ParameterType
from gemmlab.core import built
from gemmlab.linalg.planning.launch import Code


def find(code: Code) -> Artifact | None:
    """Return a built kernel, without its PTX; None if there is none of the present sources."""
    target, name = code[-1].target, name_of(code)
    folder = built.FOLDER / target
    manifest = built.current(folder)
    kernel = manifest and manifest.kernels.get(name)
    if not manifest or not kernel:
        return None
    cubin = built.cubin(folder, name, kernel["sha256"])
    if cubin is None:
        return None
    return Artifact(
        entry=kernel["entry"],
        ptx="",
        arch=target,
        parameters=tuple(ParameterType(*parameter) for parameter in kernel["parameters"]),
        cubin=cubin,
        versions=dict(manifest.compiler),
    )


def name_of(code: Code) -> str:
    """Return the name of a built kernel's file."""
    name, config, block, _ = code
    return built.name_of(name, repr(config), repr(block))
