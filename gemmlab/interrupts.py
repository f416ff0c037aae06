"""Ctrl-C while a library in C++ is at work that no exception of Python's may go through."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred() -> Iterator[None]:
    """Let it be a KeyboardInterrupt when this is over. Within, one that the library has called
    Python for would abort the process."""
    waiting: list[tuple[int, FrameType | None]] = []
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not raises or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, lambda *call: waiting.append(call))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if waiting:
            signal.default_int_handler(*waiting[0])
