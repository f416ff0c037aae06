"""Processes: what a child inherits, how long it lives, how to find and kill it by a variable."""

from __future__ import annotations

import atexit
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


def end_all(group: int, name: str, value: str) -> None:
    """Kill a process group and all other processes with name=value in their environment.

    Waits until they have exited, up to a second. A process that is exiting loses its environment
    before its locks, so all of them are found first and killed then. Without /proc, kills the
    group alone and does not wait.
    """
    stop = time.monotonic() + _GONE_S
    ending: set[int] = set()
    while time.monotonic() < stop:
        ending.update(_members(group), _marked(f"{name}={value}".encode()))
        ending = {process for process in ending if _runs(process)}
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)  # also what it starts meanwhile
        if not ending:
            break
        for process in ending:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.005)


def _others() -> list[int]:
    with contextlib.suppress(OSError):
        found = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
        return [process for process in found if process != os.getpid()]
    return []


def _members(group: int) -> Iterator[int]:
    for process in _others():
        with contextlib.suppress(OSError):
            if os.getpgid(process) == group:
                yield process


def _marked(word: bytes) -> Iterator[int]:
    for process in _others():
        with contextlib.suppress(OSError), open(f"/proc/{process}/environ", "rb") as file:
            if word in file.read().split(b"\0"):
                yield process


def _runs(process: int) -> bool:
    """Whether a process exists and is no zombie: a zombie has closed its files."""
    with contextlib.suppress(OSError), open(f"/proc/{process}/stat", "rb") as file:
        return file.read().rpartition(b") ")[2][:1] not in (b"Z", b"X")
    return False


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
    """Run the cyclic garbage collector rarely, in a process that exits after its command.

    Compilers and the emulator make many objects that stay to the end. Walking over them again and
    again took 7 % of a climb whose kernels were compiled before. Python also walks over them when
    it ends, which took a quarter of a second once the CuTe DSL was imported.
    """
    gc.set_threshold(20_000)
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
