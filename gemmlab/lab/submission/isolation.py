"""What a process that reads or runs a submission may access."""

from __future__ import annotations

import glob
import os
import site
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

from gemmlab.core import disk_cache
from gemmlab.core.sandbox import Policy, support
from gemmlab.errors import SandboxError, UnknownNameError

Mode = Literal["auto", "required", "off"]

# The dynamic loader's files, the interpreter's, CUDA's; no user's files are below them.
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt/cuda", "/opt/nvidia")
_SETTINGS = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime", "/etc/nvidia", "/etc/cuda")
_KERNEL: tuple[str, ...] = ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys/vm")
_KERNEL += ("/proc/sys/kernel/osrelease", "/sys/devices/system")
_KERNEL += tuple(f"/proc/self/{name}" for name in ("cgroup", "maps", "mountinfo", "stat", "status"))
_PLAIN_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/dev/full")
# The driver's own; no host code of a submission runs in a process that may reach these.
_DRIVER_READS = ("/sys", "/etc", "/run/nvidia-persistenced", "/run/nvidia-fabricmanager")
# The driver names its threads in /proc/<process>/task/<thread>/comm, and fails if it may not; a
# process that inherits the restrictions has a number that is unknown when they are set.
_DRIVER_DEVICES = ("/proc", "/dev/nvidia*", "/dev/dri", "/dev/shm", "/tmp/nvidia-mps")
# What compilers and the driver keep on disk, in gemmlab's cache folder.
_CACHES = ("CUDA_CACHE_PATH", "CUPY_CACHE_DIR", "TRITON_CACHE_DIR")
# What a process may know of the judge's environment.
_KEPT = {"PATH", "USER", "LANG", "LANGUAGE", "TZ", "COLUMNS", "PYTHONPATH", "PYTHONWARNINGS"}
_KEPT |= {"LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "GEMMLAB_CACHE", "GEMMLAB_RUN"}
_KEPT |= {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "OMP_NUM_THREADS"}
_KEPT_PREFIXES = ("LC_", "CUDA_", "CUTE_DSL_", "OPENBLAS_")


def named(mode: str) -> Mode:
    """Return the mode of this name. Raises UnknownNameError."""
    known = get_args(Mode)
    for name in known:
        if name == mode:
            found: Mode = name
            return found
    raise UnknownNameError(f"unknown --sandbox {mode}; choose {', '.join(known)}")


def checked(mode: Mode) -> None:
    """Raise SandboxError if this machine cannot have the mode."""
    if mode == "required" and not support().complete:
        raise SandboxError(
            f"no sandbox: {support().lacking}; install bubblewrap (apt install bubblewrap) or use "
            "Linux 6.2 or later with Landlock. --sandbox off judges without: then a Python "
            "submission has the rights of the user who runs the judge"
        )


def described(mode: Mode) -> str:
    """Return what confines the processes of a judgement, for its verdict."""
    return "off" if mode == "off" else str(support())


def policy(
    file: Path, folder: Path, runs_file: bool, on_gpu: bool, problem: Path | None = None
) -> Policy:
    """Return the policy of a process whose own folder is `folder`.

    `runs_file` if it executes the file `file` on the host, `on_gpu` if it uses a GPU. `problem` is
    the file of the problem, if it has one.
    """
    readable = [*_SYSTEM, *_SETTINGS, *_KERNEL, *_python(), *_libraries(), _own_folder(file)]
    if problem is not None:
        readable.append(str(problem))
    writable, devices = [str(folder)], list(_PLAIN_DEVICES)
    if runs_file:
        return Policy(_present(readable), tuple(writable), _present(devices), alone=True)
    if disk_cache.is_writable():
        writable.append(str(disk_cache.folder()))
    if on_gpu:
        readable += _DRIVER_READS
        devices += [path for pattern in _DRIVER_DEVICES for path in sorted(glob.glob(pattern))]
    return Policy(_present(readable), _present(writable), _present(devices), alone=False)


def environment(given: Mapping[str, str], folder: Path, runs_file: bool) -> dict[str, str]:
    """Return the environment variables of a process whose own folder is `folder`.

    Keys and tokens are not among them. A process that executes the file gets an empty compile
    cache: its code could tamper with the shared one.
    """
    kept = {
        name: value
        for name, value in given.items()
        if name in _KEPT or name.startswith(_KEPT_PREFIXES)
    }
    cache = folder / "cache" if runs_file else disk_cache.folder()
    own = {"GEMMLAB_CACHE": str(cache), "TMPDIR": str(folder), "HOME": str(folder)}
    return kept | own | {name: str(cache / name.lower()) for name in _CACHES}


def _python() -> list[str]:
    """Return the folders of the interpreter, of installed packages and of gemmlab."""
    own = str(Path(__file__).parents[2])
    packages = [path for path in sys.path if _has_packages(Path(path))]
    return [sys.prefix, sys.base_prefix, own, *packages, *site.getsitepackages()]


def _has_packages(folder: Path) -> bool:
    """Whether a folder of the import path is one that packages were installed into.

    Another one, such as a user's project, may hold what is not for a submission.
    """
    if folder.name in ("site-packages", "dist-packages"):
        return True
    return not _is_shared(folder) and any(folder.glob("*.dist-info"))


def _libraries() -> list[str]:
    """Return the folders that the environment names for libraries, such as a cluster's CUDA."""
    named = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH")]
    paths = [Path(path) for path in os.pathsep.join(named).split(os.pathsep)]
    return [str(path) for path in paths if path.is_absolute() and not _is_shared(path)]


def _own_folder(file: Path) -> str:
    """Return the folder of a submission; the file alone if much else is in that folder."""
    folder = file.resolve().parent
    return str(file if _is_shared(folder) else folder)


def _is_shared(folder: Path) -> bool:
    """Whether the home folder or a folder of temporary files is in this one, or is this one."""
    shared = [Path.home().resolve(), Path(tempfile.gettempdir()).resolve(), Path("/tmp")]
    return any(place.is_relative_to(folder.resolve()) for place in shared)


def _present(paths: list[str]) -> tuple[str, ...]:
    """Return the paths that exist; never the root, which is no folder of packages."""
    return tuple(dict.fromkeys(path for path in paths if path != os.sep and os.path.exists(path)))
