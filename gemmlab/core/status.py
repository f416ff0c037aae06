"""The status line: what gemmlab is doing, shown on a terminal.

On the command line, supervisor.py draws it. In a user's program, only long operations draw one, on
stderr and only if stderr is a terminal.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator

TICK_S = 0.25
LONG_S = 1.0  # a user's program shows what takes longer
_SIGNS = "|/-\\"
TEXT, INTERRUPTIBLE, DEADLY = "t", "i", "d"  # kinds of message to the supervisor

_channel: int | None = None  # file descriptor of the pipe to the supervisor
_last = ""  # the text of the last `say`
_busy = False  # inside `doing`
_listener: Callable[[str], object] | None = None  # gets the texts, in a notebook


def connect(channel: int) -> None:
    """Send status messages to this pipe, the supervisor's."""
    global _channel
    _channel = channel


def say(text: str) -> None:
    """Set the status line. No effect outside the command line."""
    global _last
    _last = text
    _send(TEXT, text)


def detail(text: str) -> None:
    """Append to the status line until the next `say`."""
    _send(TEXT, f"{_last}: {text}")


@contextlib.contextmanager
def listening(listener: Callable[[str], object]) -> Iterator[None]:
    """Within this context, also pass every text of the status line to `listener`."""
    global _listener
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before


@contextlib.contextmanager
def doing(text: str) -> Iterator[None]:
    """Show `text` until the context ends. Nested calls show nothing."""
    global _busy
    if _busy:
        yield
        return
    _busy = True
    try:
        is_heard = _channel is not None or _listener is not None
        with _supervised(text) if is_heard else _drawn(text):
            yield
    finally:
        _busy = False


@contextlib.contextmanager
def interruptible(action: Callable[[], object]) -> Iterator[None]:
    """Within this context, call `action` on the first Ctrl-C, to keep the results so far.

    A second Ctrl-C ends the process, as does one outside any such context on the command line.
    `action` must not raise while a C++ compiler may be running: that would abort the process.
    """
    if _channel is None:
        yield
        return

    def once(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        action()

    signal.signal(signal.SIGINT, once)
    _send(INTERRUPTIBLE)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _send(DEADLY)


def columns(terminal: int) -> int:
    """Return the width of a terminal, given its file descriptor; 80 if it is unknown."""
    with contextlib.suppress(OSError):
        return os.get_terminal_size(terminal).columns or 80
    return 80


def frame(text: str, since: float, width: int) -> str:
    """Format one line of less than `width` columns: spinner, text, seconds elapsed since `since`.

    `since` is a time.monotonic() value. The seconds appear from 1 s on.
    """
    from unicodedata import east_asian_width

    now = time.monotonic()
    tail = f" {now - since:.0f} s" if now - since >= 1 else ""
    line, room = f"{_SIGNS[int(now / TICK_S) % len(_SIGNS)]} ", width - 3 - len(tail)
    for character in text:
        room -= 2 if east_asian_width(character) in "WF" else 1
        if room < 0:
            break
        line += character if character.isprintable() else "?"
    return line + tail


def _send(kind: str, text: str = "") -> None:
    if _listener is not None and kind == TEXT:
        _listener(text)
    if _channel is not None:
        # The supervisor may have exited; do not wait for it.
        with contextlib.suppress(OSError):
            os.write(_channel, f"{kind}{text}".replace("\n", " ").encode(errors="replace") + b"\n")


@contextlib.contextmanager
def _supervised(text: str) -> Iterator[None]:
    """The status line of the command line, drawn by the supervisor."""
    before = _last
    say(f"{before}: {text}" if before else text)
    try:
        yield
    finally:
        say(before)


@contextlib.contextmanager
def _drawn(text: str) -> Iterator[None]:
    """A line on this process's stderr.

    A child process draws it, because the work may keep all threads of this one from running.
    """
    file = sys.stderr
    if file is None or file.closed or not file.isatty():
        yield
        return
    import subprocess

    child = None
    with contextlib.suppress(OSError, ValueError):
        file.flush()
        command = [sys.executable, "-I", "-S", __file__, text]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=file)
    try:
        yield
    finally:
        if child is not None:
            child.communicate()


def _draw(text: str) -> None:
    """Draw on stderr until stdin closes, which also happens when the working process exits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the working process
    since = time.monotonic()
    if select.select([0], [], [], LONG_S)[0]:
        return
    while True:
        line = frame(text, since, columns(2))
        os.write(2, b"\r\x1b[K" + line.encode(sys.stderr.encoding, "replace"))
        if select.select([0], [], [], TICK_S)[0]:
            break
    os.write(2, b"\r\x1b[K")


if __name__ == "__main__":
    with contextlib.suppress(OSError):  # the terminal may have closed
        _draw(sys.argv[1])
