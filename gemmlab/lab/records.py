"""Records of a climb: one per rung and shape. A JSON file holds them below what its run shares."""

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

from gemmlab.core import markup
from gemmlab.core.figures import seconds
from gemmlab.errors import InputError

Json = dict[str, Any]
Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Record:
    """The result of one rung on one case.

    `verdict` is a judge's status ("pass", "wrong answer", …), "skipped" if the kernel does not
    support the shape, or "not run" if it could not be compiled or launched; `message` is the
    reason. Errors are in units of u·magnitude, u = 2**-24 (the unit roundoff of float32); None if
    nothing was compared or a NaN or infinity is misplaced. `counters` come from the emulator, also
    for a run on a GPU; None if the case is too large to emulate or the grid is empty. `time_s` is
    GPU time, None on the emulator; `host_s` is the wall time of the whole step.

    `prediction` is the predicted time of one launch with empty caches, if it was asked for: a dict
    as of `timing.Prediction.as_json`, or with `refused`, the reason why there is none.

    `timeline` exists for rungs with a host flow; devices/flow.py describes its operations. For
    them, `time_s` spans the whole timeline, copies included, `counters` sum over all launches, and
    `launch` describes the launch that would cover the whole problem.
    """

    rung: str
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
    emulator_bits_equal: bool | None = None  # to the GPU's; None if not compared
    time_s: float | None = None
    tflops: float | None = None
    prediction: Json | None = None
    host_s: float | None = None
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether the rung did not fail. A skipped rung passes."""
        return self.verdict in ("pass", "skipped") and self.emulator_bits_equal is not False

    def _repr_html_(self) -> str:
        shown: Json = {"verdict": self.verdict, "result": self.message, "problem": self.problem}
        shown |= {name: str(size) for name, size in self.shape.items()}
        if self.time_s is not None:
            shown["time"] = seconds(self.time_s)
        for held in (self.resources, self.counters):
            shown |= {name: value for name, value in (held or {}).items() if value}
        return markup.table(f"{self.rung} on {self.device}", shown)

    def as_json(self) -> Json:
        return {key: finite(value) for key, value in asdict(self).items()}


RUN = "run.json"  # a run's record in its folder: the keys that all results FOLDER/*/*/*.json share


def dumps(records: Iterable[Record]) -> str:
    """Return the records of one climb as strict JSON, {"run": …, "records": […]}, a line each.

    `run` has the device, the architecture and the versions of software; `records` the rest. NaN and
    infinities become null. Raises ValueError for records of several runs.
    """
    machine: Json = {}
    versions: Json = {}  # a skipped rung has no compiler version
    held = [record.as_json() for record in records]
    for entry in held:
        own = {name: entry.pop(name) for name in ("device", "arch")}
        for shared, new in ((machine, own), (versions, entry.pop("versions"))):
            for name, value in new.items():
                if shared.setdefault(name, value) != value:
                    raise ValueError(f"several runs: {name} is {shared[name]} and {value}")
    run = machine | {"versions": versions}
    head, *lines = (json.dumps(value, allow_nan=False) for value in (run, *held))
    text = ",\n".join(lines)
    return f'{{"run": {head},\n"records": [\n{text}\n]}}\n'


def entries(source: Path) -> list[Any]:
    """Return the JSON entries of a file, or of all files below a folder in order of path.

    A record of a climb gets the keys that its file states once, a result in the folder of a run
    those of the run's record.

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
        elif "records" in held:
            found += _climbed(held, file)
        elif file.name != RUN:
            found.append(_common(file) | held)
    if not found:
        raise InputError(f"{source} contains no records")
    return found


def _climbed(held: Json, file: Path) -> list[Any]:
    """Return the records in the content of a climb's file."""
    run, records = held.get("run"), held["records"]
    if not (
        isinstance(run, dict) and isinstance(records, list) and held.keys() <= {"run", "records"}
    ):
        raise InputError(f"{file} is not the file of a climb: it needs a run and a list of records")
    return [run | entry if isinstance(entry, dict) else entry for entry in records]


def _common(file: Path) -> Json:
    """Return the keys that all results of the file's run share; {} if it belongs to no run."""
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
        raise InputError(f"{file} contains no records; it is not JSON: {error}") from error


def decoded(kind: type[Kind], held: Iterable[Any], source: Path) -> list[Kind]:
    """Convert JSON entries to records of the dataclass `kind`.

    Raises InputError, naming the source, for an entry that is not such a record.
    """
    return [_decoded(kind, entry, source) for entry in held]


def _decoded(kind: type[Kind], entry: Any, source: Path) -> Kind:
    known = {x.name: x for x in fields(kind)}  # type: ignore[arg-type]
    if not isinstance(entry, dict):
        raise InputError(f"{source} contains {reprlib.repr(entry)}, which is not a record")
    needed = {name for name, x in known.items() if x.default is x.default_factory is MISSING}
    for problem, names in (("lacks", needed - entry.keys()), ("has", entry.keys() - known)):
        if names:
            listed = ", ".join(sorted(names))
            raise InputError(
                f"a record in {source} {problem} {listed}: it is of another kind, or written by "
                "another version"
            )
    for name, value in entry.items():
        annotation = str(known[name].type)
        if not isinstance(value, _types(annotation)):
            raise InputError(
                f"a record in {source} is invalid: "
                f"{name} is {reprlib.repr(value)}, not {annotation}"
            )
    return kind(**entry)


_TYPES: dict[str, tuple[type, ...]] = {
    **{"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,), "None": (type(None),)},
    **{"list": (list,), "dict": (dict,), "Json": (dict,)},
}


def _types(annotation: str) -> tuple[type, ...]:
    """Return the classes of an annotation such as "list[Json] | None"; item types are ignored."""
    names = (part.strip().partition("[")[0] for part in annotation.split("|"))
    return tuple(found for name in names for found in _TYPES[name])


def read(path: Path) -> list[Record]:
    """Read the records that `write` wrote. Raises InputError for any other content."""
    return decoded(Record, entries(path), path)


def write(path: Path, records: Iterable[Record]) -> None:
    """Write the records to `path` atomically. Raises InputError if it cannot be written."""
    write_text(path, dumps(records))


def make_folder(path: Path) -> None:
    """Create a folder and its parents. Raises InputError if that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise InputError(f"{path} is not a folder") from None
    except OSError as error:
        raise InputError(f"folder {path} cannot be created: {error.strerror}") from error


def write_text(path: Path, text: str) -> None:
    """Write a file atomically. Raises InputError if it cannot be written.

    Follows symbolic links. A pipe or a device is written to, not replaced.
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
    """Return JSON data with NaN and infinities replaced by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value
