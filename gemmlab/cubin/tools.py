"""NVIDIA's readers of a cubin, which need no GPU: cuobjdump and nvdisasm."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import zlib
from functools import cache
from pathlib import Path

from gemmlab.core import disk_cache, scratch
from gemmlab.core.packages import NVDISASM, Package
from gemmlab.cubin import elf
from gemmlab.errors import CompileError, UnknownNameError

# What nvdisasm adds to its plain output: the PTX line of the instructions that follow, and the two
# words of an instruction, after it and on a line of its own.
_PTX_LINE = re.compile(r"(?m)^\t//## File .*\n")
_SECOND_WORD = re.compile(r"(?m)^ +/\* 0x[0-9a-f]{16} \*/\n")
_WORD = re.compile(r"(?m) +/\* 0x[0-9a-f]{16} \*/$")

# nvdisasm fills tables of 70 MB when it starts, with a tenth less processor time in huge pages.
_HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def sass(
    cubin: bytes, entry: str | None = None, *, ptx_lines: bool = False, words: bool = False
) -> str:
    """Return the machine code of a cubin as text; only that of kernel `entry` if it is given.

    With `ptx_lines`, comments give the PTX line of the instructions that follow; with `words`, the
    128 bits of each instruction. Raises UnknownNameError, CompileError and MissingDependencyError.
    """
    text = _disassembled(cubin)
    if not ptx_lines:
        text = _PTX_LINE.sub("", text)
    if not words:
        text = _WORD.sub("", _SECOND_WORD.sub("", text))
    if entry is None:
        return text
    sections = re.split(r"(?m)^(?=//-+ \.text\.|\s*\.section\s)", text)
    heading = rf"\s*\.section\s+\.text\.{re.escape(entry)},"
    found = [part for part in sections if re.match(heading, part)]
    if not found:
        raise UnknownNameError(f"no entry {entry!r} in the cubin")
    return found[0]


def _disassembled(cubin: bytes) -> str:
    """Return the code with PTX lines and words.

    nvdisasm takes a quarter of a second to start, so its output is kept in the disk cache. It does
    not depend on the lines of the source and its path, which the debug_line sections have.
    """
    digest = hashlib.sha256(str(NVDISASM.version).encode() + cubin[elf.TARGET])
    for section, offset, length in elf.sections(cubin):
        if not section.endswith(".debug_line"):
            digest.update(cubin[offset : offset + length])
    name = disk_cache.name_of(["nvdisasm", digest.hexdigest()])
    kept = disk_cache.load(name)
    if kept is not None:
        return zlib.decompress(kept).decode()
    options = ["--print-code", "--no-dataflow", "--print-line-info-ptx", "-hex"]
    text = run(NVDISASM, options, cubin)
    disk_cache.save(name, zlib.compress(text.encode(), 1))
    return text


def run(tool: Package, options: list[str], cubin: bytes) -> str:
    """Return what a tool prints about a cubin. Raises CompileError and MissingDependencyError."""
    with scratch.folder() as folder:
        path = folder / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run(
            [_path(tool), *options, str(path)],
            capture_output=True,
            text=True,
            env={**_HUGE_PAGES, **os.environ},
        )
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
