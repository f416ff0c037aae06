"""Temporary folders that are removed even if their process is killed.

The creating process holds a lock on its folder; the kernel releases the lock when the process
exits. The next process that creates a folder removes all unlocked ones.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "gemmlab-scratch-"


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Create a temporary folder; remove it on exit."""
    sweep()
    path, lock = _locked()
    try:
        yield path
    finally:
        _remove(str(path))
        _close(lock)


def sweep() -> None:
    """Remove the folders of processes that have exited."""
    with contextlib.suppress(OSError):
        with os.scandir(tempfile.gettempdir()) as entries:
            found = [entry.path for entry in entries if entry.name.startswith(PREFIX)]
        for path in found:
            with contextlib.suppress(OSError):  # locked, another user's, or already removed
                lock = _open(path)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(path)
                finally:
                    os.close(lock)


def _locked() -> tuple[Path, int | None]:
    """Create a folder; return it and the file descriptor that holds its lock."""
    while True:
        path = tempfile.mkdtemp(prefix=PREFIX)
        lock = None
        # On a file system without locks, the folders of killed processes remain.
        with contextlib.suppress(OSError):
            lock = _open(path)
            fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.isdir(path):  # no other process swept it before it was locked
            return Path(path), lock
        _close(lock)


def _remove(path: str) -> None:
    """Remove a folder, also one that foreign code made hard to remove."""
    with contextlib.suppress(RecursionError):  # folders thousands deep, before Python 3.13
        shutil.rmtree(path, ignore_errors=True)
    if os.path.lexists(path):  # or without rights
        for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
            subprocess.run([*command, "--", path], capture_output=True)


def _close(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
