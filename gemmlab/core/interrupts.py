"""Ctrl-C, and other signals, during calls that Python exceptions must not pass through."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def deferred() -> Iterator[None]:
    """Raise KeyboardInterrupt for a Ctrl-C only when this context ends.

    Raised in Python code that a library calls back, it would abort the process.
    """
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with _handled_later([signal.SIGINT] if raises else []):
        yield


@contextmanager
def all_deferred() -> Iterator[None]:
    """Call the handlers of all signals only when this context ends.

    An exception that a handler raises where compiled code has just called Python is lost.
    """
    numbers = signal.valid_signals()
    with _handled_later([x for x in numbers if callable(signal.getsignal(x))]):
        yield


@contextmanager
def _handled_later(numbers: Iterable[signal.Signals | int]) -> Iterator[None]:
    """Call the handlers of these signals when this context ends."""
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers are called in the main thread alone
        return
    waiting: list[tuple[int, FrameType | None]] = []
    handlers: dict[int, Any] = {number: signal.getsignal(number) for number in numbers}
    for number in handlers:
        signal.signal(number, lambda *call: waiting.append(call))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for call in waiting:
            handlers[call[0]](*call)
