"""Processes: what a child inherits, how long it lives, how to find and kill it by a variable."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # prctl(2)
_GONE_S = 1.0  # a killed process may need some time to free its memory


def end_marked(name: str, value: str) -> None:
    """Kill all other processes with name=value in their environment, and wait until they are gone.

    Requires /proc. Waits up to a second.
    """
    stop = time.monotonic() + _GONE_S
    while (found := [*_marked(f"{name}={value}".encode())]) and time.monotonic() < stop:
        for process in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.005)


def _marked(word: bytes) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != os.getpid():
                with contextlib.suppress(OSError), open(f"/proc/{entry}/environ", "rb") as file:
                    if word in file.read().split(b"\0"):
                        yield int(entry)


def environment() -> dict[str, str]:
    """This process's environment, with which a child's Python imports this gemmlab."""
    package = str(Path(__file__).parents[2])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


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


def collect_seldom() -> None:
    """Look for garbage in cycles seldom, in a process that ends when its command is done.

    Compilers and the emulator make many objects that stay to the end. Walking over them again and
    again took 7 % of a climb whose kernels were compiled before.
    """
    gc.set_threshold(20_000)
