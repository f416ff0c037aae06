"""Artifacts on disk, by the content that they were made of.

One JSON file per artifact, under $GEMMLAB_CACHE or the user's cache folder. Files are written whole
or not at all, so that processes may share the folder; one that cannot be read is built again.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

import platformdirs

from gemmlab.compile.artifact import Artifact, ParameterType, Resources

FORMAT = "1"  # of the files; part of every key


def folder() -> Path:
    """Where artifacts lie."""
    chosen = os.environ.get("GEMMLAB_CACHE")
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("gemmlab")) / "artifacts"


def fetch(parts: Iterable[str], build: Callable[[], Artifact]) -> Artifact:
    """The artifact made of `parts` (all text that decides it): from disk, or built and kept."""
    digest = hashlib.sha256(json.dumps([FORMAT, *parts]).encode()).hexdigest()
    path = folder() / f"{digest}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return _decode(path.read_text(encoding="utf-8"))
    artifact = build()
    # A cache that cannot be written costs time, nothing else.
    with contextlib.suppress(OSError):
        _write(path, _encode(artifact))
    return artifact


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _encode(artifact: Artifact) -> str:
    record = asdict(artifact)
    record["cubin"] = base64.b64encode(artifact.cubin).decode() if artifact.cubin else None
    body = json.dumps(record)
    return json.dumps({"sha256": hashlib.sha256(body.encode()).hexdigest(), "artifact": body})


def _decode(text: str) -> Artifact:
    stored = json.loads(text)
    body = stored["artifact"]
    if hashlib.sha256(body.encode()).hexdigest() != stored["sha256"]:
        raise ValueError("the file is not what was written")
    record = json.loads(body)
    return Artifact(
        **{
            **record,
            "parameters": tuple(ParameterType(**p) for p in record["parameters"]),
            "cubin": base64.b64decode(record["cubin"]) if record["cubin"] else None,
            "resources": Resources(**record["resources"]) if record["resources"] else None,
            "block": tuple(record["block"]) if record["block"] else None,
        }
    )
