"""NVIDIA's readers of a cubin, which need no GPU: cuobjdump and nvdisasm."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from gemmlab.core import scratch
from gemmlab.core.packages import NVDISASM, Package
from gemmlab.errors import CompileError, UnknownNameError


def sass(
    cubin: bytes, entry: str | None = None, *, ptx_lines: bool = False, words: bool = False
) -> str:
    """Return the machine code of a cubin as text; only that of kernel `entry` if it is given.

    With `ptx_lines`, comments give the PTX line of the instructions that follow; with `words`, the
    128 bits of each instruction. Raises UnknownNameError, CompileError and MissingDependencyError.
    """
    options = ["--print-line-info-ptx"] * ptx_lines + ["-hex"] * words
    text = run(NVDISASM, ["--print-code", "--no-dataflow", *options], cubin)
    if entry is None:
        return text
    sections = re.split(r"(?m)^(?=//-+ \.text\.|\s*\.section\s)", text)
    heading = rf"\s*\.section\s+\.text\.{re.escape(entry)},"
    found = [part for part in sections if re.match(heading, part)]
    if not found:
        raise UnknownNameError(f"no entry {entry!r} in the cubin")
    return found[0]


def run(tool: Package, options: list[str], cubin: bytes) -> str:
    """Return what a tool prints about a cubin. Raises CompileError and MissingDependencyError."""
    with scratch.folder() as folder:
        path = folder / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run([_path(tool), *options, str(path)], capture_output=True, text=True)
    if done.returncode:
        raise CompileError(
            f"{Path(done.args[0]).name} could not read the cubin", done.stdout + done.stderr
        )
    return done.stdout


@cache
def _path(package: Package) -> str:
    """Return the path of the program that a package installs. Raises MissingDependencyError."""
    name = package.name.rpartition("-")[2]
    try:
        files = importlib.metadata.files(package.name) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == name:
            return str(Path(str(file.locate())).resolve())
    found = shutil.which(name)
    if found is None:
        raise package.unusable()
    return found
