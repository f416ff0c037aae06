"""The process in which NVRTC and nvJitLink run: started by the first request, reused by later ones.

Some source text crashes NVRTC, and some PTX nvJitLink. Only that process is lost then.
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

_COMPILER = Path(__file__).with_name("cuda_compilers.py")


class _Compiler:
    """A child process that serves one request at a time. It exits when its stdin closes."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def ask(self, request: dict[str, Any]) -> dict[str, str]:
        """Return the answer of cuda_compilers.py. Raises CompileError if the process exits."""
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
            except BaseException:  # e.g. Ctrl-C: the next request would read this one's answer
                self.end()
                raise
            if answer.endswith(b"\n"):
                return dict(json.loads(answer))
            child.wait()
            self.end()
        raise CompileError(f"{request['name']}: {_exit_reason(child.returncode)}")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            self.end()
            command = [sys.executable, "-P", str(_COMPILER)]
            pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
            try:
                self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing)
            except OSError as error:
                raise CompileError(f"the compiler process cannot be started: {error}") from error
        return self._child

    def end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            with contextlib.suppress(BrokenPipeError):
                child.communicate()  # closes the pipes and waits for the exit


_compilers: dict[int, _Compiler] = {}  # by this process's id: a fork must not use its parent's


def ask(**request: Any) -> dict[str, str]:
    """Compile with NVRTC, or assemble with nvJitLink.

    Arguments and result are those of `_compile` or `_assemble` in cuda_compilers.py. Raises
    CompileError, with the source's name and the signal, if the compiler crashes.
    """
    return _compilers.setdefault(os.getpid(), _Compiler()).ask(request)


@atexit.register
def _end() -> None:
    if compiler := _compilers.get(os.getpid()):
        compiler.end()


def _folder() -> str:
    """Return the working directory, or the root if it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return os.sep


def _exit_reason(code: int) -> str:
    if code >= 0:
        return f"the compiler process exited with code {code}"
    return f"the compiler crashed: {signal.strsignal(-code)}"
