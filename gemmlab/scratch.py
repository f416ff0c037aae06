"""Folders for temporary files, of which nothing stays: not even of a process that was killed.

Whoever makes one holds a lock on it, which ends with its process. What nobody holds is removed by
the next process that makes one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "gemmlab-scratch-"


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder of one's own, for a while."""
    sweep()
    path, lock = _locked()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        _close(lock)


def sweep() -> None:
    """Remove the folders of processes that are no more."""
    with contextlib.suppress(OSError):
        with os.scandir(tempfile.gettempdir()) as entries:
            found = [entry.path for entry in entries if entry.name.startswith(PREFIX)]
        for path in found:
            with contextlib.suppress(OSError):  # of another user, or gone
                lock = _open(path)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
                finally:
                    os.close(lock)


def _locked() -> tuple[Path, int | None]:
    """A new folder and the file descriptor that holds it."""
    while True:
        path = tempfile.mkdtemp(prefix=PREFIX)
        lock = None
        with contextlib.suppress(OSError):  # a file system without locks keeps folders of the dead
            lock = _open(path)
            fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.isdir(path):  # nobody took it for a dead one's before it was locked
            return Path(path), lock
        _close(lock)


def _close(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
