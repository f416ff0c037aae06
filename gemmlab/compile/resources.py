"""A cubin's resource usage and machine code, read without a GPU."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from gemmlab.compile.artifact import Resources
from gemmlab.core import scratch
from gemmlab.errors import CompileError, MissingDependencyError, UnknownNameError

_USAGE = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\S+) SHARED:(\d+) LOCAL:(\d+)")
SYSTEM_SMEM = 1024  # bytes per block


def read(cubin: bytes, entry: str, arch: str) -> Resources:
    """Return registers, local memory and static shared memory of one kernel of a cubin.

    Raises UnknownNameError, CompileError and MissingDependencyError.
    """
    usage = {name: rest for name, *rest in _USAGE.findall(_run("cuobjdump", ["-res-usage"], cubin))}
    if entry not in usage:
        raise UnknownNameError(f"no entry {entry!r} in the cubin; it has {', '.join(usage)}")
    stack = usage[entry][1]
    # cuobjdump reports no number for the stack of a recursive kernel.
    frame = int(stack) if stack.isdigit() else 0
    registers, shared, local = (int(usage[entry][i]) for i in (0, 2, 3))
    # From Hopper on, the system reserves the first 1 KB of shared memory, which ptxas includes in
    # the size if the kernel uses any.
    if shared and int(re.sub(r"\D", "", arch)) >= 90:
        shared -= SYSTEM_SMEM
    return Resources(registers, frame + local, shared)


def sass(cubin: bytes, entry: str | None = None, *, ptx_lines: bool = False) -> str:
    """Return the machine code of a cubin as text; only that of kernel `entry` if it is given.

    With `ptx_lines`, comments give the PTX line of the instructions that follow. Raises
    UnknownNameError, CompileError and MissingDependencyError.
    """
    lines = ["--print-line-info-ptx"] if ptx_lines else []
    text = _run("nvdisasm", ["--print-code", "--no-dataflow", *lines], cubin)
    if entry is None:
        return text
    sections = re.split(r"(?m)^(?=//-+ \.text\.|\s*\.section\s)", text)
    heading = rf"\s*\.section\s+\.text\.{re.escape(entry)},"
    found = [part for part in sections if re.match(heading, part)]
    if not found:
        raise UnknownNameError(f"no entry {entry!r} in the cubin")
    return found[0]


@cache
def _tool(name: str) -> str:
    package = f"nvidia-cuda-{name}"
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == name:
            return str(Path(str(file.locate())).resolve())
    found = shutil.which(name)
    if found is None:
        raise MissingDependencyError(f"{name} is not installed; run: pip install {package}")
    return found


def _run(name: str, options: list[str], cubin: bytes) -> str:
    with scratch.folder() as folder:
        path = folder / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run([_tool(name), *options, str(path)], capture_output=True, text=True)
    if done.returncode:
        raise CompileError(f"{name} could not read the cubin", done.stdout + done.stderr)
    return done.stdout
