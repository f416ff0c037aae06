"""Run a task in a child process with limits, and clean up all its processes and files.

The child leads a session, so that it can be killed together with its descendants; those that left
the session are found by a variable in their environment. Its folder is removed when the task ends.
Its output is drained so that it cannot block, and truncated to a few thousand bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import selectors
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemmlab.core import processes, scratch
from gemmlab.core.status import detail
from gemmlab.lab.submission.steps import STATUSES, Status

MARK = "GEMMLAB_TASK"  # environment variable of the child and its descendants
REQUEST, ANSWERS, CACHE = "request", "answers", "cache"  # names in the child's folder
BEGUN = "begun"  # key of an answer that describes what the task does next
DONE = "done"  # key of the last answer of a completed task
OUTPUT_BYTES = 4000  # of the child's output that are kept
_POLL_S = 0.05


@dataclass(frozen=True)
class Limits:
    """The limits of a task.

    `memory_bytes` None means unlimited. A task with `own_cache` gets an empty compile cache: it
    executes code of the file, which could tamper with the shared cache.
    """

    seconds: float = 120.0
    memory_bytes: int | None = 8 * 2**30
    own_cache: bool = True


@dataclass
class TaskResult:
    """The answers of a task in order, and how it ended: `status` is None if it completed."""

    answers: list[dict[str, Any]] = field(default_factory=list)
    status: Status | None = None
    message: str = ""
    output: str = ""


def run(task: str, request: Any, limits: Limits) -> TaskResult:
    """Run the task of tasks.py with this name; its failures become a status, not an exception."""
    mark = uuid.uuid4().hex
    with scratch.folder() as folder:
        (folder / REQUEST).write_bytes(pickle.dumps((task, request, limits.memory_bytes)))
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", f"{__package__}.child", str(folder), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=folder,
            env=_environment(folder, mark, limits.own_cache),
        )
        try:
            output, in_time = _listen(child, limits.seconds, folder / ANSWERS)
        finally:
            _kill(child, mark)
        answers = list(_answers(folder / ANSWERS))
    *others, last = answers or [{}]
    if DONE in last:
        return TaskResult(others, None, "", output)
    if "error" in last:
        failures = [name for name in STATUSES if name not in ("pass", "skipped")]
        given: Any = last["error"]  # may be unhashable, so `failures` is a list
        status: Status = given if given in failures else "crashed"
        return TaskResult(others, status, str(last.get("message")), output)
    if not in_time:
        return TaskResult(answers, "time limit", f"not done in {limits.seconds:g} s", output)
    return TaskResult(answers, "crashed", _exit_message(child.returncode), output)


def _answers(file: Path) -> Iterator[dict[str, Any]]:
    # The last line may be incomplete, and the submitted file's code may have written any line.
    with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
        for line in file.read_text(encoding="utf-8").splitlines():
            yield dict(json.loads(line))


def _environment(folder: Path, mark: str, own_cache: bool) -> dict[str, str]:
    """Return the caller's environment with the mark and a temporary folder for the child."""
    changed = {MARK: mark, "TMPDIR": str(folder)}
    if own_cache:
        changed["GEMMLAB_CACHE"] = str(folder / CACHE)
    return processes.environment() | changed


def _listen(child: subprocess.Popen[bytes], seconds: float, answers: Path) -> tuple[str, bool]:
    """Return the start of the child's output and whether the child ended in time.

    Meanwhile the status line shows what the task is doing.
    """
    assert child.stdout is not None
    kept, printed, seen = bytearray(), 0, 0
    stop = time.monotonic() + seconds
    os.set_blocking(child.stdout.fileno(), False)
    with selectors.DefaultSelector() as waiting:
        waiting.register(child.stdout, selectors.EVENT_READ)
        ended = False
        while time.monotonic() < stop:
            ready = waiting.select(_POLL_S)
            part = child.stdout.read(2**16) if ready else None
            if part:
                kept += part[: OUTPUT_BYTES - len(kept)]
                printed += len(part)
                continue
            if ended:
                break
            seen = _show_progress(answers, seen)
            ended = child.poll() is not None  # one more iteration reads its last output
            if part == b"" and not ended:  # it closed its output
                time.sleep(_POLL_S)
    text = kept.decode(errors="replace")
    if printed > len(kept):
        text += f"\n… and {printed - len(kept)} more bytes"
    return text, ended


def _show_progress(answers: Path, seen: int) -> int:
    """Show the latest activity in the status line if `answers` has grown beyond `seen` bytes.

    Returns the size of the file in bytes.
    """
    with contextlib.suppress(OSError):
        if (size := answers.stat().st_size) > seen:
            begun = [answer[BEGUN] for answer in _answers(answers) if BEGUN in answer]
            if begun:
                detail(str(begun[-1]))
            return size
    return seen


def _kill(child: subprocess.Popen[bytes], mark: str) -> None:
    """Kill the child and its descendants."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    processes.end_marked(MARK, mark)
    child.wait()
    assert child.stdout is not None
    child.stdout.close()


def _exit_message(code: int) -> str:
    if code >= 0:
        return f"the process ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"the process was killed by {signal.Signals(-code).name}"
    return f"the process was killed by signal {-code}"
