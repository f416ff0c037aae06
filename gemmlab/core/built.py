"""What is built before a release: a folder of kernels and formulas, with a manifest.

    manifest.json   what each cubin is, hashes of all files, and of the sources they come from
    <name>.cubin    the machine code of one kernel
    <name>.py       formulas of one function: `linalg.planning.prepared`

This needs the standard library alone, because the build hook of a wheel runs it, too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]
FOLDER = PACKAGE / "built"  # has a folder for each architecture
_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Manifest:
    """What a folder of built kernels has.

    compiler: version by name. sources: the hash of each file that determines which kernels there
    are, or their code, by its path in the package. kernels: the description of each kernel by the
    name of its file; "sha256" is the hash of its cubin. formulas: hashes by the names of the files.
    """

    compiler: Mapping[str, str]
    sources: Mapping[str, str]
    kernels: Mapping[str, Mapping[str, Any]]
    formulas: Mapping[str, str] = field(default_factory=dict)

    def changed(self) -> list[str]:
        """Return the source files that are no longer as they were when the kernels were built."""
        return [name for name, sha256 in self.sources.items() if hash_of(name) != sha256]


def read(folder: Path) -> Manifest | None:
    """Return the manifest of a folder; None if nothing is built there."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Manifest(**json.loads((folder / _MANIFEST).read_bytes()))
    return None


@cache
def current(folder: Path) -> Manifest | None:
    """Return the manifest of a folder if it was built from the present sources, else None."""
    manifest = read(folder)
    return None if manifest is None or manifest.changed() else manifest


def problem(folder: Path, pins: Iterable[str]) -> str | None:
    """Return why kernels in a folder must not be released; None if they may.

    `pins` are requirements, one of which names the compiler and its version.
    """
    manifest = read(folder)
    if manifest is None:
        return "the manifest cannot be read"
    if changed := manifest.changed():
        return f"built from other sources ({', '.join(changed)})"
    for compiler, version in manifest.compiler.items():
        if f"{compiler}=={version}" not in pins:
            return f"built with {compiler} {version}, which the extra does not name"
    for name, kernel in manifest.kernels.items():
        if cubin(folder, name, kernel["sha256"]) is None:
            return f"{name}.cubin is missing or damaged"
    for name, sha256 in manifest.formulas.items():
        if _sha256(folder / f"{name}.py") != sha256:
            return f"{name}.py is missing or damaged"
    return None


def cubin(folder: Path, name: str, sha256: str) -> bytes | None:
    """Return the machine code of a kernel; None if it is missing or damaged."""
    with contextlib.suppress(OSError):
        data = (folder / f"{name}.cubin").read_bytes()
        if hashlib.sha256(data).hexdigest() == sha256:
            return data
    return None


def formulas(folder: Path, name: str) -> Callable[..., Any] | None:
    """Return the function in a file of formulas; None if it is missing, damaged or outdated."""
    manifest, file = current(folder), folder / f"{name}.py"
    wanted = manifest and manifest.formulas.get(name)
    spec = spec_from_file_location(f"{__name__}.{name}", file)
    if not wanted or _sha256(file) != wanted or spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)  # keeps its bytecode, as imports do
    function: Callable[..., Any] = module.traced
    return function


def write(
    folder: Path,
    compiler: Mapping[str, str],
    sources: Iterable[str],
    kernels: Mapping[str, tuple[Mapping[str, Any], bytes]],
    formulas: Mapping[str, str],
) -> Manifest:
    """Replace a folder by these kernels and formulas.

    kernels: description and machine code of each by its name. formulas: the text of each file.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    described = {}
    for name, (description, data) in kernels.items():
        (folder / f"{name}.cubin").write_bytes(data)
        described[name] = {**description, "sha256": hashlib.sha256(data).hexdigest()}
    for name, text in formulas.items():
        (folder / f"{name}.py").write_text(text)
    hashes = {name: hash_of(name) for name in sorted(sources)}
    made = {name: _sha256(folder / f"{name}.py") for name in formulas}
    manifest = Manifest(dict(compiler), hashes, described, made)
    (folder / _MANIFEST).write_text(json.dumps(asdict(manifest)))  # last: complete now
    return manifest


def name_of(*parts: str) -> str:
    """Return the name of a file in a folder: a hash of all that distinguishes it."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def hash_of(name: str) -> str:
    """Return the hash of a file of the package; "" if it is missing."""
    return _sha256(PACKAGE / name)


def _sha256(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""
