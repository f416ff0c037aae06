"""The machine code of a launch: built before the release, or compiled once per machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmlab import kernels
from gemmlab.compile import cache as disk
from gemmlab.compile.artifact import Artifact
from gemmlab.core import disk_cache
from gemmlab.errors import InternalError
from gemmlab.linalg.arch import Architecture
from gemmlab.linalg.planning.launch import Code, PlannedLaunch, Value
from gemmlab.linalg.runtime import built

if TYPE_CHECKING:
    from gemmlab.kernels.rung import Rung

_PACKAGE = "gemmlab.kernels.gemm"  # of the modules that an architecture names
_loadable: dict[Code, Artifact] = {}


def loadable(code: Code) -> Artifact:
    """Return a kernel that a GPU can load: a built one, which has no PTX, or a compiled one."""
    if code not in _loadable:
        prepare([code])
    return _loadable[code]


def prepare(codes: Iterable[Code]) -> None:
    """Make kernels loadable. Raises the errors of `artifact`."""
    missing = []
    for code in dict.fromkeys(codes):
        if code in _loadable:
            continue
        if (found := built.find(code)) is None:
            missing.append(code)
        else:
            _loadable[code] = found
    if missing:
        _loadable.update(zip(missing, compile_all(missing), strict=True))


def compile_all(codes: Sequence[Code]) -> list[Artifact]:
    """Compile kernels for GPUs, in parallel processes, or load them from the cache on disk.

    Raises the errors of `artifact`.
    """
    missing = [code for code in codes if not disk.has(_parts(code, line_info=False))]
    if len(missing) > 1 and disk_cache.is_writable():
        from gemmlab.linalg.runtime import compilation

        compilation.compile_all(missing)
    return [artifact(code, line_info=False) for code in codes]


def artifact_of(launch: PlannedLaunch) -> Artifact:
    """Compile the kernel of a launch, for any device. Raises the errors of `artifact`."""
    return artifact(launch.code)


@cache
def artifact(code: Code, line_info: bool = True) -> Artifact:
    """Compile a kernel, or load it from the cache on disk. The emulator needs its line information.

    Raises the errors of `compile.cute.compile_kernel`.
    """
    name, config, block, arch = code

    def build() -> Artifact:
        from gemmlab.compile import cute
        from gemmlab.core.packages import CUTE_DSL

        file, function = arch.kernels[name]
        with CUTE_DSL.importing():
            module = import_module(f"{_PACKAGE}.{file}")
        kernel, parameters = getattr(module, function), module.SIGNATURES[function]
        rest = config, block, f"matmul_{name}", arch.target, line_info
        return cute.compile_kernel(kernel, parameters, *rest)

    return disk.fetch(_parts(code, line_info), build, f"kernel matmul_{name}")


def source_of(name: str, arch: Architecture) -> Path:
    """Return the file of a kernel, given its name in launches."""
    folder = Path(kernels.__file__).parent / "gemm"
    return folder.joinpath(*arch.kernels[name][0].split(".")).with_suffix(".py")


def _parts(code: Code, line_info: bool) -> list[str]:
    """All text that determines a kernel's artifact. Raises MissingDependencyError."""
    from gemmlab.compile import cute

    name, config, block, arch = code
    made_by = [cute.sources(source_of(name, arch)), repr(cute.versions()), repr(line_info)]
    return ["linalg", name, repr(config), repr(block), arch.target, *made_by]


def artifacts(
    rung: Rung, shape: Mapping[str, int], args: Mapping[str, Any], own: Artifact
) -> Iterator[tuple[Artifact, PlannedLaunch]]:
    """Yield the launches of a rung that has several, each after its compiled kernel.

    `args` are the problem's arguments and the workspace by name; `own` is the rung's kernel. Raises
    the errors of `artifact_of`.
    """
    assert rung.launches is not None
    for launch in rung.launches(rung.config, shape, args, own.arch):
        is_own = launch.config == rung.config
        yield own if is_own else artifact_of(launch), launch


def arguments(launch: PlannedLaunch, artifact: Artifact) -> tuple[Value, ...]:
    """Return the launch's arguments in its kernel's order, without the leading tensor maps.

    Raises InternalError as `check_arguments`.
    """
    check_arguments(launch, artifact)
    return tuple(launch.args[x.name] for x in artifact.parameters[len(launch.maps) :])


def check_arguments(launch: PlannedLaunch, artifact: Artifact) -> None:
    """Raise InternalError unless the launch names exactly the kernel's parameters."""
    names = [parameter.name for parameter in artifact.parameters[len(launch.maps) :]]
    if launch.args.keys() != {*names}:
        wrong = ", ".join(sorted(launch.args.keys() ^ {*names}))
        raise InternalError(
            f"the arguments of a launch of {launch.kernel} do not match its parameters: {wrong}"
        )
