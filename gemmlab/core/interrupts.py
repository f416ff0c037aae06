"""Ctrl-C, and other signals, during calls that Python exceptions must not pass through."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

# Signals that programs handle; to look at all takes as long as a small launch.
_NAMES = "INT", "TERM", "ALRM", "HUP", "QUIT", "USR1", "USR2"
_HANDLED = tuple(getattr(signal, f"SIG{name}") for name in _NAMES)

_Handler = Callable[[int, FrameType | None], object]


@contextmanager
def deferred() -> Iterator[None]:
    """Raise KeyboardInterrupt for a Ctrl-C only when this context ends.

    Raised in Python code that a library calls back, it would abort the process.
    """
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with Deferred((signal.SIGINT,) if raises else ()):
        yield


class Deferred(AbstractContextManager["Deferred"]):
    """Calls the handlers of signals only in `handle`, and when the context ends.

    An exception that a handler raises where compiled code has just called Python is lost.
    """

    def __init__(self, numbers: tuple[int, ...] = _HANDLED) -> None:
        self._numbers = numbers
        self._handlers: dict[int, _Handler] = {}
        self._waiting: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> Deferred:
        if threading.current_thread() is threading.main_thread():  # else no handler is called here
            for number in self._numbers:
                if callable(handler := signal.getsignal(number)):
                    self._handlers[number] = handler
                    signal.signal(number, self._wait)
        return self

    def _wait(self, number: int, frame: FrameType | None) -> None:
        self._waiting.append((number, frame))

    def handle(self) -> None:
        """Call the handlers of signals that have come."""
        while self._waiting:
            number, frame = self._waiting.pop(0)
            self._handlers[number](number, frame)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self.handle()
