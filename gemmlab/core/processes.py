"""Find and kill processes by an environment variable, which their children inherit."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator

_PR_SET_PDEATHSIG = 1  # prctl(2)


def end_marked(name: str, value: str) -> None:
    """Kill all other processes with name=value in their environment. Requires /proc."""
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
    """Arrange for the system to kill this process when its parent exits (Linux only).

    `parent` is the parent's process id. If the parent has already exited, the process kills itself
    at once.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
