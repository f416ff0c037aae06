"""Read the output of a child process that may hang, flood or lie; stop it at its limits."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import stat
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemmlab.core import foreign
from gemmlab.core.status import detail

BEGUN = "begun"  # key of an answer that describes what the task does next
OUTPUT_BYTES = 4000  # of the child's output that are kept
ANSWER_BYTES, ANSWERS = 16 * 2**20, 10_000
THREADS = max(512, 8 * (os.cpu_count() or 1))
DISK_BYTES, DISK_FILES = 2 * 2**30, 20_000
PATH_CHARS = 3000  # the system takes no path of 4096
_POLL_S = 0.05
_WATCH_S = 0.25


@dataclass
class Heard:
    """The output of a child, and whether it ended, ran out of time or exceeded a limit."""

    answers: list[dict[str, Any]] = field(default_factory=list)
    output: str = ""
    in_time: bool = False
    excess: str = ""


class Listener:
    """Reads a child's output, and its answers: one JSON object per line of a pipe."""

    def __init__(self, child: subprocess.Popen[bytes], answers: int, folder: Path) -> None:
        assert child.stdout is not None
        self._child, self._folder = child, folder
        self._output, self._answers = child.stdout.fileno(), answers
        self._kept, self._printed = bytearray(), 0
        self._line, self._said, self._sane = bytearray(), 0, True
        self._heard = Heard()

    def listen(self, seconds: float) -> Heard:
        """Listen until the child ends, for at most `seconds`.

        Meanwhile the status line shows what the task is doing.
        """
        stop, watch, heard = time.monotonic() + seconds, 0.0, self._heard
        with selectors.DefaultSelector() as waiting:
            for stream in (self._output, self._answers):
                os.set_blocking(stream, False)
                waiting.register(stream, selectors.EVENT_READ)
            ended = False
            while (now := time.monotonic()) < stop and not heard.excess:
                if now > watch and not ended:
                    watch, heard.excess = now + _WATCH_S, self._excess()
                if self._read(waiting):
                    continue
                if ended:
                    heard.in_time = True
                    break
                ended = self._child.poll() is not None  # one more iteration reads its last output
        heard.output = foreign.printable(self._kept.decode(errors="replace"))
        if self._printed > len(self._kept):
            heard.output += f"\n… and {self._printed - len(self._kept)} more bytes"
        return heard

    def _read(self, waiting: selectors.BaseSelector) -> bool:
        """Read the available output, or wait a moment; return whether there was any."""
        if not waiting.get_map():  # it closed both
            time.sleep(_POLL_S)
            return False
        any_read = False
        for key, _ in waiting.select(_POLL_S):
            part = os.read(key.fd, 2**16)
            any_read = any_read or bool(part)
            if not part:
                waiting.unregister(key.fd)
            elif key.fd == self._output:
                self._kept += part[: max(0, OUTPUT_BYTES - len(self._kept))]
                self._printed += len(part)
            else:
                self._answer(part)
        return any_read

    def _answer(self, part: bytes) -> None:
        """Parse a part of the answers, which the file's code may have written."""
        self._said += len(part)
        if self._said > ANSWER_BYTES:
            self._heard.excess = f"more than {ANSWER_BYTES // 2**20} MiB of answers"
            return
        *before, rest = part.split(b"\n")
        for piece in before:
            line = bytes(self._line + piece)
            self._line.clear()
            if self._sane:
                self._take(line)
        self._line += rest

    def _take(self, line: bytes) -> None:
        """Keep an answer. After a line that is no answer, all further lines are ignored."""
        try:
            answer = dict(foreign.cleaned(json.loads(line)))
        except (ValueError, TypeError, RecursionError):
            self._sane = False
            return
        self._heard.answers.append(answer)
        if len(self._heard.answers) > ANSWERS:
            self._heard.excess = f"more than {ANSWERS} answers"
        if BEGUN in answer:
            detail(str(answer[BEGUN]))

    def _excess(self) -> str:
        """Describe how the child exceeds a limit that the system does not enforce; "" if not."""
        threads, deleted = 0, list[os.stat_result]()
        for own in _family(self._child.pid):
            with contextlib.suppress(OSError):
                threads += len(os.listdir(f"{own}/task"))
            deleted += _deleted(own)
        if threads > THREADS:
            return f"more than {THREADS} threads"
        try:
            files = _files(self._folder) + deleted
        except PermissionError:
            return "a folder that cannot be read"
        if len(files) > DISK_FILES:
            return f"more than {DISK_FILES} files"
        if sum(512 * status.st_blocks for status in files) > DISK_BYTES:
            return f"more than {DISK_BYTES // 2**30} GiB of files"
        return ""


def _family(process: int) -> Iterator[str]:
    """Yield the folders in /proc of a process and its descendants.

    bubblewrap starts the process that it confines as a grandchild of its own.
    """
    folder = f"/proc/{process}"
    yield folder
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"{folder}/task"):
            with contextlib.suppress(OSError), open(f"{folder}/task/{thread}/children") as file:
                for child in file.read().split():
                    yield from _family(int(child))


def _files(folder: Path) -> list[os.stat_result]:
    """Return the status of the files and folders below a folder, up to a little over the limit.

    Raises PermissionError for a folder that hides what is below it, also by its depth.
    """
    found, todo = list[os.stat_result](), [str(folder)]
    while todo and len(found) <= DISK_FILES:
        path = todo.pop()
        if len(path) > PATH_CHARS:
            raise PermissionError(f"the path has {len(path)} characters")
        with contextlib.suppress(FileNotFoundError), os.scandir(path) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    found.append(entry.stat(follow_symlinks=False))
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                if len(found) > DISK_FILES:
                    break
    return found


def _deleted(process: str) -> list[os.stat_result]:
    """Return the status of files that a process has open and that have no name."""
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir(f"{process}/fd"):
            with contextlib.suppress(OSError):
                status = os.stat(f"{process}/fd/{name}")
                if stat.S_ISREG(status.st_mode) and not status.st_nlink:
                    found.append(status)
    return found
