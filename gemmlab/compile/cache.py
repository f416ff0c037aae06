"""A disk cache of Artifacts, keyed by everything they are compiled from: one JSON file each."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any

from gemmlab.compile.artifact import Artifact, ParameterType, Resources, VariableType
from gemmlab.core import disk_cache, status
from gemmlab.core.disk_cache import folder

__all__ = ["fetch", "folder"]

FORMAT = "9"  # version of the file format and of the compilation; part of every key


# The CuTe DSL keeps global state: two threads must not compile at the same time.
_building = threading.RLock()


def fetch(parts: Iterable[str], build: Callable[[], Artifact], what: str) -> Artifact:
    """Load the artifact from disk, or build and save it.

    `parts` is all text that determines the artifact. The status line shows `what` while building.
    Only one thread builds at a time.
    """
    name = _name(parts)
    if (kept := _load(name)) is not None:
        return kept
    with _building:
        if (kept := _load(name)) is not None:  # built by another thread in the meantime
            return kept
        with compiling(what):
            artifact = build()
        disk_cache.save(name, _encode(artifact).encode())
    return artifact


def has(parts: Iterable[str]) -> bool:
    """Whether an artifact made from `parts` is on disk."""
    return (folder() / _name(parts)).is_file()


def compiling(what: str) -> AbstractContextManager[None]:
    """The status line while `what` is compiled."""
    return status.doing(f"compiling {what} (first use; kept in cache)")


def _name(parts: Iterable[str]) -> str:
    return f"{disk_cache.name_of([FORMAT, *parts])}.json"


def _load(name: str) -> Artifact | None:
    data = disk_cache.load(name)
    if data is not None:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return _decode(data.decode())
    return None


def _encode(artifact: Artifact) -> str:
    record = asdict(artifact)
    record["cubin"] = base64.b64encode(artifact.cubin).decode() if artifact.cubin else None
    return json.dumps(record)


def _decode(text: str) -> Artifact:
    record = json.loads(text)
    return Artifact(
        **{
            **record,
            "parameters": tuple(ParameterType(**p) for p in record["parameters"]),
            "cubin": base64.b64decode(record["cubin"]) if record["cubin"] else None,
            "resources": Resources(**record["resources"]) if record["resources"] else None,
            "block": tuple(record["block"]) if record["block"] else None,
            "left_out": tuple(record["left_out"]),
            "variable_types": tuple(_variable(v) for v in record["variable_types"]),
        }
    )


def _variable(record: dict[str, Any]) -> VariableType:
    return VariableType(**record | {"shape": tuple(record["shape"])})
