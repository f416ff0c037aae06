"""The compiled kernel of a launch: loaded once per process, compiled once per machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from gemmlab import kernels
from gemmlab.compile import cache as disk
from gemmlab.compile.artifact import Artifact
from gemmlab.core.packages import CUTE_DSL
from gemmlab.errors import InternalError
from gemmlab.kernels.rung import Dim3, Rung
from gemmlab.linalg.arch import DEFAULT, Architecture
from gemmlab.linalg.planning.plan import PlannedLaunch, Value


def artifact_of(launch: PlannedLaunch) -> Artifact:
    """Compile the kernel of a launch. Raises the errors of `compile.cute.compile_kernel`."""
    return artifact(*launch.code)


@cache
def artifact(name: str, config: Any, block: Dim3, arch: Architecture = DEFAULT) -> Artifact:
    """Compile a kernel, given its name, configuration, block and architecture."""
    from gemmlab.compile import cute

    file, function = arch.kernels[name]

    def build() -> Artifact:
        with CUTE_DSL.importing():
            module = import_module(f"{arch.package}.{file}")
        kernel, parameters = getattr(module, function), module.SIGNATURES[function]
        return cute.compile_kernel(kernel, parameters, config, block, f"matmul_{name}", arch.target)

    folder = Path(kernels.__file__).parent.joinpath(*arch.package.split(".")[2:])
    parts = ["linalg", name, repr(config), repr(block), arch.target]
    made_by = [cute.sources(folder / f"{file}.py"), repr(cute.versions())]
    return disk.fetch([*parts, *made_by], build, f"kernel matmul_{name}")


def artifacts(
    rung: Rung, shape: Mapping[str, int], args: Mapping[str, Any], own: Artifact
) -> Iterator[tuple[Artifact, PlannedLaunch]]:
    """Yield the launches of a rung that has several, each after its compiled kernel.

    `args` are the problem's arguments and the workspace by name; `own` is the rung's kernel. Raises
    the errors of `artifact_of`.
    """
    assert rung.launches is not None
    for launch in rung.launches(rung.config, shape, args):
        is_own = launch.config == rung.config
        yield own if is_own else artifact_of(launch), launch


def arguments(launch: PlannedLaunch, artifact: Artifact) -> tuple[Value, ...]:
    """Return the launch's arguments in its kernel's order, without the leading tensor maps.

    Raises InternalError unless the launch names exactly the kernel's parameters.
    """
    names = [parameter.name for parameter in artifact.parameters[len(launch.maps) :]]
    if launch.args.keys() != {*names}:
        wrong = ", ".join(sorted(launch.args.keys() ^ {*names}))
        raise InternalError(
            f"the arguments of a launch of {launch.kernel} do not match its parameters: {wrong}"
        )
    return tuple(launch.args[name] for name in names)
