"""What is being done, for who waits for it at a terminal.

On the command line supervisor.py shows it. In a program of somebody's own, only what takes long is
shown: a line on stderr while it takes, where that is a terminal.
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
_SIGNS = "|/-\\"
TEXT, INTERRUPTIBLE, DEADLY = "t", "i", "d"  # what a message to the supervisor is about

_channel: int | None = None  # to the supervisor
_last = ""  # text that was said
_busy = False  # within `doing`


def connect(channel: int) -> None:
    """Send to this pipe from now on."""
    global _channel
    _channel = channel


def say(text: str) -> None:
    """Tell what is being done from now on; on the command line only."""
    global _last
    _last = text
    _send(TEXT, text)


def detail(text: str) -> None:
    """Add to what was said; what is said next replaces both."""
    _send(TEXT, f"{_last}: {text}")


@contextlib.contextmanager
def doing(text: str) -> Iterator[None]:
    """Tell that this is being done, until it is done; of what it consists of, nothing."""
    global _busy
    if _busy:
        yield
        return
    _busy = True
    try:
        with _told(text) if _channel is not None else _shown(text):
            yield
    finally:
        _busy = False


@contextlib.contextmanager
def interruptible(action: Callable[[], object]) -> Iterator[None]:
    """Let a first Ctrl-C call `action` here, to keep what is done. A second one, and one elsewhere
    on the command line, ends the process.

    `action` must not raise where a compiler of C++ may be at work: that would abort the process.
    """
    if _channel is None:
        yield
        return

    def once(number: int, frame: object) -> None:
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
    """Of a terminal, by its file descriptor; 80 where it does not say."""
    with contextlib.suppress(OSError):
        return os.get_terminal_size(terminal).columns or 80
    return 80


def frame(text: str, since: float, width: int) -> str:
    """One line of less than `width` columns: a sign that moves, the text, seconds `since`."""
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
    if _channel is not None:
        # Never wait for it: it may have ended.
        with contextlib.suppress(OSError):
            os.write(_channel, f"{kind}{text}".replace("\n", " ").encode(errors="replace") + b"\n")


@contextlib.contextmanager
def _told(text: str) -> Iterator[None]:
    before = _last
    say(f"{before}: {text}" if before else text)
    try:
        yield
    finally:
        say(before)


@contextlib.contextmanager
def _shown(text: str) -> Iterator[None]:
    """A line on this process's own stderr. Another process draws it: the work may let no thread of
    this one run."""
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
    """Draw on stderr until stdin ends, which it does also with the process that works."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # that is for the one that works
    since = time.monotonic()
    while True:
        line = frame(text, since, columns(2))
        os.write(2, b"\r\x1b[K" + line.encode(sys.stderr.encoding, "replace"))
        if select.select([0], [], [], TICK_S)[0]:
            break
    os.write(2, b"\r\x1b[K")


if __name__ == "__main__":
    with contextlib.suppress(OSError):  # the terminal may be gone
        _draw(sys.argv[1])
