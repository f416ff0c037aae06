"""Files kept for later, whole or not at all, so that processes may share the folder.

They lie under $GEMMLAB_CACHE or the user's cache folder. One that is not what was written is as
good as missing; a folder that cannot be written costs time, nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import platformdirs

_PART = ".part-"  # the beginning of the name of a file that is being written
_OLD_S = 3600.0  # nobody writes as long


def folder() -> Path:
    """Where the files lie."""
    chosen = os.environ.get("GEMMLAB_CACHE")
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("gemmlab")) / "artifacts"


def name_of(parts: Iterable[str]) -> str:
    """A file's name, from all text that decides its content."""
    return hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()


def load(name: str) -> bytes | None:
    """What was saved under a name; None where nothing was, or where it is damaged."""
    with contextlib.suppress(OSError):
        checksum, _, data = (folder() / name).read_bytes().partition(b"\n")
        if hashlib.sha256(data).hexdigest().encode() == checksum:
            return data
    return None


def save(name: str, data: bytes) -> None:
    """Keep data, behind a line with its checksum."""
    with contextlib.suppress(OSError):
        folder().mkdir(parents=True, exist_ok=True)
        _sweep()
        handle, part = tempfile.mkstemp(dir=folder(), prefix=_PART)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
            os.replace(part, folder() / name)
        except BaseException:
            os.unlink(part)
            raise


def _sweep() -> None:
    """Remove what processes that were killed had begun to write."""
    for part in folder().glob(f"{_PART}*"):
        with contextlib.suppress(OSError):
            if time.time() - part.stat().st_mtime > _OLD_S:
                part.unlink()
