"""A second process for a command: a new Python that answers on its stdout, in lines.

It is not a fork, so it does not inherit a CUDA context. Ctrl-C does not reach it, and the system
kills it if this process ends.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from gemmlab.core import processes, scratch


def has_processor() -> bool:
    """Whether this process may use a second processor."""
    return len(os.sched_getaffinity(0)) > 1


class Second:
    """A running second process: `python -m module`, whose main reads its request with `asked`.

    Raises OSError if it cannot be started.
    """

    def __init__(self, module: str, request: object) -> None:
        # The process inherits the signal mask, so Ctrl-C interrupts only this one.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                env=processes.environment(),
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self.has_ended = False
        self._unread = b""  # the beginning of the next line
        assert self.process.stdin is not None
        with suppress(BrokenPipeError), self.process.stdin as pipe:  # it may have failed already
            pipe.write(pickle.dumps((os.getpid(), request)))

    def lines(self, timeout_ms: int | None = None) -> list[bytes]:
        """Return the lines written since the last call, waiting up to `timeout_ms` for more; None:
        until there are some or the process has ended."""
        assert self.process.stdout is not None
        pipe = self.process.stdout.fileno()
        said = select.poll()
        said.register(pipe, select.POLLIN)
        found: list[bytes] = []
        while not (found or self.has_ended) and said.poll(timeout_ms):
            data = os.read(pipe, 2**16)
            *found, self._unread = (self._unread + data).split(b"\n")
            self.has_ended = not data
        return found

    def end(self) -> None:
        """Kill the process and remove its temporary folders."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        scratch.sweep()


@contextmanager
def asked() -> Iterator[tuple[Any, TextIO]]:
    """In the second process: the request, and where to write the answers' lines."""
    parent, request = pickle.load(sys.stdin.buffer)
    processes.die_with_parent(parent)
    processes.collect_seldom()
    with os.fdopen(os.dup(1), "w", buffering=1) as answers:
        os.dup2(2, 1)  # keep compiler output out of the answers
        yield request, answers
