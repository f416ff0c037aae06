"""The process in which NVRTC compiles: started by the first compilation, asked by all that follow.

Source can make NVRTC crash; then this process is lost, and nothing else.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Lock
from typing import Any

from gemmlab.errors import CompileError

_COMPILER = Path(__file__).with_name("cuda_compiler.py")


class _Compiler:
    """A child that answers one request at a time. It ends when its stdin does, so with us."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def ask(self, request: dict[str, Any]) -> dict[str, str]:
        """What cuda_compiler.py answers. Raises CompileError where it ends instead."""
        with self._lock:
            child = self._running()
            assert child.stdin is not None and child.stdout is not None
            try:
                line = json.dumps(request | {"folder": _folder()})
                child.stdin.write(line.encode() + b"\n")
                child.stdin.flush()
                answer = child.stdout.readline()
            except BrokenPipeError:
                answer = b""
            except BaseException:  # Ctrl-C, say; the pending answer would be taken for the next one
                self.end()
                raise
            if answer.endswith(b"\n"):
                return dict(json.loads(answer))
            child.wait()
            self.end()
        raise CompileError(f"{request['name']}: {_last_words(child.returncode)}")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            self.end()
            command = [sys.executable, "-P", str(_COMPILER)]
            pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
            try:
                self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing)
            except OSError as error:
                raise CompileError(f"the compiler's process does not start: {error}") from error
        return self._child

    def end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            with contextlib.suppress(BrokenPipeError):
                child.communicate()  # closes the pipes, and waits


_compilers: dict[int, _Compiler] = {}  # by our process: a fork has the parent's, which is not its


def ask(**request: Any) -> dict[str, str]:
    """Have NVRTC compile; takes and gives what `cuda_compiler._compile` does.

    Raises CompileError, with the signal and the name of the source, where NVRTC crashes.
    """
    return _compilers.setdefault(os.getpid(), _Compiler()).ask(request)


@atexit.register
def _end() -> None:
    if compiler := _compilers.get(os.getpid()):
        compiler.end()


def _folder() -> str:
    """The working directory, which may be gone."""
    try:
        return os.getcwd()
    except OSError:
        return os.sep


def _last_words(code: int) -> str:
    if code >= 0:
        return f"the compiler's process ended with exit code {code}"
    return f"the compiler crashed: {signal.strsignal(-code)}"
