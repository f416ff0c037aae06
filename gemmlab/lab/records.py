"""One record per (rung, shape, device): everything the lab says about a run, as plain JSON."""

from __future__ import annotations

import json
import math
import os
import reprlib
import tempfile
from collections.abc import Iterable
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from gemmlab.errors import InputError

Json = dict[str, Any]
Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Record:
    """What one rung did on one case.

    `verdict` is a judge's status ("pass", "wrong answer", …), "skipped" when the kernel does not
    take the shape, or "not run" when it could not be compiled or launched; `message` says why.
    Errors are in units of u·magnitude, u = 2**-24; None where nothing was compared or a NaN or
    infinity is out of place. `counters` come from the emulator, on a GPU too; None when the case is
    too large to be emulated beside it, or there was nothing to launch. `time_s` is GPU time, None
    on the emulator; `host_s` is what the whole step took. `timeline` is of a rung with a host side
    of its own, each operation as devices/flow.py describes it: `time_s` is then the length of it,
    copies included, and `counters` are of all its launches, of which `launch` is one over all.
    """

    rung: str
    change: str
    problem: str
    shape: dict[str, int]
    layout: str
    family: str
    seed: int
    device: str
    arch: str
    verdict: str
    message: str
    bound_u: float
    flops: int
    min_bytes: int
    max_error_u: float | None = None
    wrong_count: int | None = None
    worst: Json | None = None  # {index, got, expected, error_u}
    launch: Json | None = None  # {grid, block, dynamic_smem_bytes}
    resources: Json | None = None  # {registers, spill_bytes, static_smem_bytes}
    occupancy: Json | None = None  # {blocks_per_sm, warps_per_sm, fraction, limiter, limits}
    counters: dict[str, int] | None = None
    timeline: list[Json] | None = None  # [{name, stream, bytes, start_ms, end_ms}]
    emulator_bits_equal: bool | None = None  # to the GPU's, where the order of additions is fixed
    time_s: float | None = None
    tflops: float | None = None
    host_s: float | None = None
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Nothing is wrong with it; a skipped rung has not failed."""
        return self.verdict in ("pass", "skipped") and self.emulator_bits_equal is not False

    def as_json(self) -> Json:
        return {key: finite(value) for key, value in asdict(self).items()}


def dumps(records: Iterable[Record]) -> str:
    """A JSON list, strict: NaN and infinities become null."""
    return json.dumps([record.as_json() for record in records], indent=2, allow_nan=False) + "\n"


RUN = "run.json"  # in the folder of a run: what all its results, FOLDER/*/*/*.json, have in common


def entries(source: Path) -> list[Any]:
    """The JSON of a file, or of all files below a folder in order of path, as one list.

    A result in the folder of a run gets the keys of the run's record.

    Raises:
        InputError: The source cannot be read, is not JSON, or is empty.
    """
    found: list[Any] = []
    for file in sorted(source.rglob("*.json")) if source.is_dir() else [source]:
        held = _parsed(file)
        if isinstance(held, list):
            found += held
        elif not isinstance(held, dict):
            found.append(held)
        elif file.name != RUN:
            found.append(_common(file) | held)
    if not found:
        raise InputError(f"{source} holds no records")
    return found


def _common(file: Path) -> Json:
    """The keys that a result shares with the others of its run; none if it belongs to no run."""
    run = file.resolve().parent.parent.parent / RUN
    if not run.exists():
        return {}
    held = _parsed(run)
    if not isinstance(held, dict):
        raise InputError(f"{run} is not the record of a run")
    return held


def _parsed(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} holds no records, as it is no JSON: {error}") from error


def decoded(kind: type[Kind], held: Iterable[Any], source: Path) -> list[Kind]:
    """Records, of a dataclass, from their JSON. Raises InputError for what is none; it names the
    source."""
    return [_decoded(kind, entry, source) for entry in held]


def _decoded(kind: type[Kind], entry: Any, source: Path) -> Kind:
    known = {x.name: x for x in fields(kind)}  # type: ignore[arg-type]
    if not isinstance(entry, dict):
        raise InputError(f"{source} holds {reprlib.repr(entry)}, which is no record")
    needed = {name for name, x in known.items() if x.default is x.default_factory is MISSING}
    for problem, names in (("lacks", needed - entry.keys()), ("has", entry.keys() - known)):
        if names:
            rule = "is it of another version, or another kind?"
            raise InputError(f"a record in {source} {problem} {', '.join(sorted(names))}: {rule}")
    for name, value in entry.items():
        annotation = str(known[name].type)
        if not isinstance(value, _types(annotation)):
            told = f"{name} is {reprlib.repr(value)}, not {annotation}"
            raise InputError(f"a record in {source} is damaged: {told}")
    return kind(**entry)


_TYPES: dict[str, tuple[type, ...]] = {
    **{"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,), "None": (type(None),)},
    **{"list": (list,), "dict": (dict,), "Json": (dict,)},
}


def _types(annotation: str) -> tuple[type, ...]:
    """Classes of an annotation such as "list[Json] | None"; what a list holds is not looked at."""
    names = (part.strip().partition("[")[0] for part in annotation.split("|"))
    return tuple(found for name in names for found in _TYPES[name])


def read(path: Path) -> list[Record]:
    """Records that `write` wrote. Raises InputError for a file that is not such a list."""
    return decoded(Record, entries(path), path)


def write(path: Path, records: Iterable[Record]) -> None:
    """Write the list to `path`, whole or not at all. Raises InputError."""
    write_text(path, dumps(records))


def make_folder(path: Path) -> None:
    """Make a folder, and those that it lies in. Raises InputError where it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise InputError(f"{path} is no folder") from None
    except OSError as error:
        raise InputError(f"folder {path} cannot be made: {error.strerror}") from error


def write_text(path: Path, text: str) -> None:
    """Write a file, whole or not at all. Raises InputError where it cannot be written.

    A symbolic link keeps pointing where it does, and what is no regular file (a pipe, a device) is
    written into, not replaced.
    """
    try:
        _write(path.resolve(), text)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error


def _write(path: Path, text: str) -> None:
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def finite(value: Any) -> Any:
    """JSON data in which NaN and infinities are None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value
