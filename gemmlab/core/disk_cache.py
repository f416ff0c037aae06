"""A cache of files on disk that processes share: a file is written completely or not at all.

Files are under $GEMMLAB_CACHE or in the user's cache folder. A damaged file is treated as missing.
If the folder is not writable, results are recomputed each time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from gemmlab.core.packages import PLATFORMDIRS

_PART = ".part-"  # prefix of the names of files being written
_OLD_S = 3600.0  # a partial file older than this was abandoned


def folder() -> Path:
    """Return the folder of the cached files. Raises MissingDependencyError."""
    chosen = os.environ.get("GEMMLAB_CACHE")
    if chosen:
        return Path(chosen)
    return _of_user(os.environ.get("XDG_CACHE_HOME"), os.environ.get("HOME"))


@cache
def _of_user(_cache: str | None, _home: str | None) -> Path:
    """The folder in the user's cache folder, which these two variables determine."""
    return Path(PLATFORMDIRS.load().user_cache_dir("gemmlab")) / "artifacts"


def is_writable() -> bool:
    """Whether files can be saved; makes the folder if it is missing."""
    with contextlib.suppress(OSError):
        folder().mkdir(parents=True, exist_ok=True)
    return os.access(folder(), os.W_OK)


def name_of(parts: Iterable[str]) -> str:
    """Return a file's name: a hash of `parts`, all text that determines its content."""
    return hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()


def load(name: str) -> bytes | None:
    """Return the data saved under a name; None if it is missing or damaged."""
    with contextlib.suppress(OSError):
        checksum, _, data = (folder() / name).read_bytes().partition(b"\n")
        if hashlib.sha256(data).hexdigest().encode() == checksum:
            return data
    return None


def save(name: str, data: bytes) -> None:
    """Save data under a name, preceded by a line with its checksum."""
    with contextlib.suppress(OSError):
        folder().mkdir(parents=True, exist_ok=True)
        _sweep(folder())
        handle, part = tempfile.mkstemp(dir=folder(), prefix=_PART)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
            os.replace(part, folder() / name)
        except BaseException:
            os.unlink(part)
            raise


@cache
def _sweep(folder: Path) -> None:
    """Remove the partial files of processes that were killed; once per process and folder."""
    for part in folder.glob(f"{_PART}*"):
        with contextlib.suppress(OSError):
            if time.time() - part.stat().st_mtime > _OLD_S:
                part.unlink()
