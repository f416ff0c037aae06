"""Ctrl-C during calls into C++ libraries that Python exceptions must not pass through."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred() -> Iterator[None]:
    """Raise KeyboardInterrupt for a Ctrl-C only when this context ends.

    Raised in Python code that the library calls back, it would abort the process.
    """
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
