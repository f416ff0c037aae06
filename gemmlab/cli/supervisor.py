"""The command line runs as two processes: a worker, and a supervisor that imports almost nothing.

The worker may spend seconds in a compiler that holds the GIL. The supervisor therefore

- kills all processes at once on SIGINT, SIGTERM, SIGHUP and SIGQUIT, and removes their temporary
  folders,
- draws the status line on a terminal while nothing is printed,
- reports the signal if one kills the worker.

The worker leads a background process group, so that only the supervisor receives signals from the
keyboard. The worker's terminal output passes through a pseudo-terminal, so that it does not mix
with the status line.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import NoReturn

from gemmlab.core import status

QUIET_S = 0.3  # show the status line after this long without output
GRACE_S = 10.0  # for an interrupted worker to output its results so far
DRAIN_S = 0.5  # how long to wait for a finished worker's last output
RUN = "GEMMLAB_RUN"  # environment variable that marks the worker and all its child processes
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def split() -> None:
    """Fork. Return in the child, the worker; supervise it in this process and never return."""
    _Supervisor().start()


class _Supervisor:
    def __init__(self) -> None:
        self._child = 0
        self._screens: list[_Screen] = []
        self._mark = ""
        self._channel = -1  # file descriptor: messages from the worker, see status.py
        self._unread = b""  # the beginning of the next message
        self._interruptible = False
        self._deadline = 0.0  # when to kill an interrupted worker; 0 if it was not interrupted

    def start(self) -> None:
        handled = [number for number in _ENDING if signal.getsignal(number) != signal.SIG_IGN]
        for number in handled:
            signal.signal(number, self._stop)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # the parent may have set it to SIG_IGN
        self._mark = os.urandom(16).hex()
        self._screens = _screens()
        self._channel, write_end = os.pipe()
        own, mask = os.getpid(), signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        self._child = os.fork()  # signals are blocked until its process id is known
        if self._child == 0:
            self._become_worker(own, write_end, handled)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            return
        with suppress(OSError):  # the child may have done so itself, or have exited
            os.setpgid(self._child, self._child)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(write_end)
        for screen in self._screens:
            os.close(screen.slave)
        signal.signal(signal.SIGWINCH, lambda *_: self._resize())
        signal.signal(signal.SIGTSTP, self._suspend)
        self._supervise()

    def _become_worker(self, parent: int, channel: int, handled: list[signal.Signals]) -> None:
        from gemmlab.core.processes import die_with_parent

        with suppress(OSError):
            os.setpgid(0, 0)
        for number in handled:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        die_with_parent(parent)
        os.close(self._channel)
        if os.isatty(0):  # reading from the terminal would stop a background process
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for screen in self._screens:
            screen.use()
        os.set_blocking(channel, False)
        os.environ[RUN] = self._mark
        status.connect(channel)

    # While the worker runs

    def _supervise(self) -> NoReturn:
        waiting = [self._channel, *(screen.master for screen in self._screens)]
        shown = next((screen for screen in self._screens if screen.shows_status), None)
        while True:
            is_over = self._channel not in waiting
            ready, _, _ = select.select(waiting, [], [], 0.005 if is_over else status.TICK_S / 2)
            for screen in self._screens:
                if screen.master in ready and not screen.copy():
                    waiting.remove(screen.master)
            if self._channel in ready and not self._listen():
                waiting.remove(self._channel)
            if is_over or not ready:
                ended, code = os.waitpid(self._child, os.WNOHANG)
                if ended:
                    self._leave(os.waitstatus_to_exitcode(code))
            if self._deadline and time.monotonic() > self._deadline:
                self._end(signal.SIGINT)
            if shown is not None:
                shown.show()

    def _listen(self) -> bool:
        """Process the worker's messages. Return False when the worker has closed the channel."""
        data = os.read(self._channel, 2**16)
        *messages, self._unread = (self._unread + data).split(b"\n")
        for message in messages:
            kind, text = message[:1].decode(), message[1:].decode(errors="replace")
            if kind == status.TEXT:
                for screen in self._screens:
                    screen.tell(text)
            else:
                self._interruptible = kind == status.INTERRUPTIBLE
        return bool(data)

    def _resize(self) -> None:
        for screen in self._screens:
            screen.resize()

    def _suspend(self, _number: int, _frame: object) -> None:
        """On Ctrl-Z, stop both processes; continue both after SIGCONT."""
        os.killpg(self._child, signal.SIGSTOP)
        for screen in self._screens:
            screen.clear()
        os.kill(os.getpid(), signal.SIGSTOP)
        os.killpg(self._child, signal.SIGCONT)

    # Exit

    def _stop(self, number: int, _frame: object) -> None:
        """Handle a signal: interrupt the worker if it can output its results so far, else end."""
        while select.select([self._channel], [], [], 0)[0] if self._child else False:
            if not self._listen():
                break
        if number == signal.SIGINT and self._interruptible and not self._deadline:
            self._deadline = time.monotonic() + GRACE_S
            for screen in self._screens:
                screen.tell("finishing with the results so far; press Ctrl-C again to quit")
            os.killpg(self._child, signal.SIGINT)
        else:
            self._end(number)

    def _end(self, number: int) -> NoReturn:
        for ending in _ENDING:
            signal.signal(ending, signal.SIG_IGN)
        if self._child:
            from gemmlab.core import processes, scratch

            processes.end_all(self._child, RUN, self._mark)
            os.waitpid(self._child, 0)
            scratch.sweep()
        self._drain()
        os._exit(128 + number)

    def _leave(self, code: int) -> NoReturn:
        self._drain()
        if code < 0 or self._deadline:
            from gemmlab.core import processes, scratch

            processes.end_all(self._child, RUN, self._mark)
            scratch.sweep()
        if code < 0:
            words = signal.strsignal(-code) or f"signal {-code}"
            with suppress(OSError):
                os.write(2, f"gemmlab: killed by a signal: {words}\n".encode())
        os._exit(code if code >= 0 else 128 - code)

    def _drain(self) -> None:
        """Print the worker's remaining output."""
        stop = time.monotonic() + DRAIN_S
        for screen in self._screens:
            while select.select([screen.master], [], [], max(stop - time.monotonic(), 0))[0]:
                if not screen.copy():
                    break
            screen.clear()


class _Screen:
    """A terminal, and the pseudo-terminal that the worker's streams use in its place."""

    def __init__(self, stream: int) -> None:
        self._streams = [stream]
        self.master, self.slave = os.openpty()
        import termios

        mode = termios.tcgetattr(self.slave)
        mode[1] &= ~termios.OPOST  # the real terminal does the output processing
        termios.tcsetattr(self.slave, termios.TCSANOW, mode)
        self.resize()
        self._text, self._since = " ".join(["gemmlab", *sys.argv[1:2]]), time.monotonic()
        self._printed = self._since  # time of the last output
        self._at_start = True  # the cursor is at the start of a line
        self._drawn = False  # the status line is visible

    def add(self, stream: int) -> None:
        self._streams.append(stream)

    @property
    def shows_status(self) -> bool:
        return 2 in self._streams and os.environ.get("TERM") != "dumb"

    def use(self) -> None:
        """In the worker, redirect the streams to the pseudo-terminal."""
        for stream in self._streams:
            os.dup2(self.slave, stream)
        os.close(self.slave)
        os.close(self.master)

    def copy(self) -> bool:
        """Print the worker's pending output. Return False at its end."""
        try:
            data = os.read(self.master, 2**16)
        except OSError:
            return False
        if data:
            self.clear()
            self._write(data)
            self._at_start = data.endswith(b"\n")
            self._printed = time.monotonic()
        return bool(data)

    def tell(self, text: str) -> None:
        if text != self._text:
            self._text, self._since = text, time.monotonic()

    def show(self) -> None:
        """Draw the status line if there was no output for QUIET_S seconds."""
        quiet = time.monotonic() - self._printed > QUIET_S
        if quiet and self._at_start and self._text and self._is_ours():
            line = status.frame(self._text, self._since, status.columns(self._streams[0]))
            encoding = sys.stderr.encoding if sys.stderr else "ascii"
            self._write(b"\r\x1b[K" + line.encode(encoding, "replace"))
            self._drawn = True

    def clear(self) -> None:
        if self._drawn:
            self._write(b"\r\x1b[K")
            self._drawn = False

    def resize(self) -> None:
        import fcntl
        import termios

        with suppress(OSError):
            size = fcntl.ioctl(self._streams[0], termios.TIOCGWINSZ, bytes(8))
            fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)

    def _is_ours(self) -> bool:
        """Whether this process group is in the terminal's foreground."""
        try:
            return os.tcgetpgrp(self._streams[0]) == os.getpgrp()
        except OSError:  # not the controlling terminal of this process
            return True

    def _write(self, data: bytes) -> None:
        with suppress(OSError):  # the terminal may have closed
            while data:
                data = data[os.write(self._streams[0], data) :]


def _screens() -> list[_Screen]:
    """Return one screen per terminal among stdout and stderr, if pseudo-terminals are available."""
    found: dict[int, _Screen] = {}
    for stream in (1, 2):
        with suppress(OSError):
            if os.isatty(stream):
                device = os.fstat(stream).st_rdev
                if device in found:
                    found[device].add(stream)
                else:
                    found[device] = _Screen(stream)
    return list(found.values())
