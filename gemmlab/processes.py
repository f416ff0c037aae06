"""Processes found by a word in their environment, which all that come from them have too."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator

_PR_SET_PDEATHSIG = 1  # prctl(2)


def end_marked(name: str, value: str) -> None:
    """Kill all processes, but for this one, that have name=value in their environment, where the
    system tells."""
    for process in _marked(f"{name}={value}".encode()):
        if process != os.getpid():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)


def _marked(word: bytes) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError), open(f"/proc/{entry}/environ", "rb") as file:
                    if word in file.read().split(b"\0"):
                        yield int(entry)


def die_with_parent(parent: int) -> None:
    """Have the system kill this process when its parent ends, if it has not yet; only Linux does.

    `parent` is its process id.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
