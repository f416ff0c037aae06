"""One task in a process of its own, with limits, of which nothing is left behind.

The child leads a session, so that it can be killed with its children; what left the session is
found by a word in its environment. It writes to a folder that goes when the task is over. What it
prints is read to the end, so that it cannot block, and a few thousand characters of it are kept.
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

MARK = "GEMMLAB_TASK"  # in the environment of the child and all that come from it
REQUEST, ANSWERS, CACHE = "request", "answers", "cache"  # in its folder
BEGUN = "begun"  # an answer's key: what the task does from now on
DONE = "done"  # the last answer of a task that came to its end
KEPT = 4000  # characters of what it prints
_LOOK_S = 0.05


@dataclass(frozen=True)
class Limits:
    """Of one task. `memory_bytes` None: as much as there is. `own_cache`: it runs code of the file,
    which could leave something in the common one."""

    seconds: float = 120.0
    memory_bytes: int | None = 8 * 2**30
    own_cache: bool = True


@dataclass
class Ended:
    """What a task told, line by line, and how it ended: `status` is None if it came to its end."""

    answers: list[dict[str, Any]] = field(default_factory=list)
    status: Status | None = None
    message: str = ""
    output: str = ""


def run(task: str, request: Any, limits: Limits) -> Ended:
    """Run a task of tasks.py by name; never raises for what happens in it."""
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
        return Ended(others, None, "", output)
    if "error" in last:
        failures = [name for name in STATUSES if name not in ("pass", "skipped")]
        said: Any = last["error"]  # a list has no hash, but may be looked for in one
        status: Status = said if said in failures else "crashed"
        return Ended(others, status, str(last.get("message")), output)
    if not in_time:
        return Ended(answers, "time limit", f"not done in {limits.seconds:g} s", output)
    return Ended(answers, "crashed", _last_words(child.returncode), output)


def _answers(file: Path) -> Iterator[dict[str, Any]]:
    # The last line may be half written, and a file's own code may have written any of them.
    with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
        for line in file.read_text(encoding="utf-8").splitlines():
            yield dict(json.loads(line))


def _environment(folder: Path, mark: str, own_cache: bool) -> dict[str, str]:
    """The caller's, with a place of its own for files."""
    changed = {MARK: mark, "TMPDIR": str(folder)}
    if own_cache:
        changed["GEMMLAB_CACHE"] = str(folder / CACHE)
    return processes.environment() | changed


def _listen(child: subprocess.Popen[bytes], seconds: float, answers: Path) -> tuple[str, bool]:
    """The beginning of what the child prints, and whether it ended in time. Meanwhile who waits is
    told what the answers say has begun."""
    assert child.stdout is not None
    kept, printed, told = bytearray(), 0, 0
    stop = time.monotonic() + seconds
    os.set_blocking(child.stdout.fileno(), False)
    with selectors.DefaultSelector() as waiting:
        waiting.register(child.stdout, selectors.EVENT_READ)
        ended = False
        while time.monotonic() < stop:
            ready = waiting.select(_LOOK_S)
            part = child.stdout.read(2**16) if ready else None
            if part:
                kept += part[: KEPT - len(kept)]
                printed += len(part)
                continue
            if ended:
                break
            told = _tell(answers, told)
            ended = child.poll() is not None  # what it printed last is read in one more turn
            if part == b"" and not ended:  # it closed its output
                time.sleep(_LOOK_S)
    text = kept.decode(errors="replace")
    if printed > len(kept):
        text += f"\n… and {printed - len(kept)} more bytes"
    return text, ended


def _tell(answers: Path, told: int) -> int:
    """Tell the last thing that has begun, if the file has more than `told` bytes; its bytes now."""
    with contextlib.suppress(OSError):
        if (size := answers.stat().st_size) > told:
            begun = [answer[BEGUN] for answer in _answers(answers) if BEGUN in answer]
            if begun:
                detail(str(begun[-1]))
            return size
    return told


def _kill(child: subprocess.Popen[bytes], mark: str) -> None:
    """The child and all that came from it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    processes.end_marked(MARK, mark)
    child.wait()
    assert child.stdout is not None
    child.stdout.close()


def _last_words(code: int) -> str:
    if code >= 0:
        return f"the process ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"the process was ended by {signal.Signals(-code).name}"
    return f"the process was ended by signal {-code}"
