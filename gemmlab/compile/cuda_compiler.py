"""NVRTC as a program: requests from stdin, answers to stdout, one line of JSON each, until stdin
ends.

In a process of its own because source with a mistake in it can make NVRTC crash. It needs nothing
of gemmlab, and so is run by its path.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

from cuda.bindings import nvrtc


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    # Nothing that the compiler prints gets between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    requests = SimpleQueue[bytes]()
    Thread(target=_read, args=(requests,), daemon=True).start()
    while True:
        request = json.loads(requests.get())
        with contextlib.suppress(OSError):  # where names of files count from; it may be gone
            os.chdir(request.pop("folder"))
        json.dump(_compile(**request), answers)
        answers.write("\n")
        answers.flush()


def _read(requests: SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        requests.put(line)
    os._exit(0)  # the parent process has ended; drop what is being compiled


def _compile(
    source: str,
    name: str,
    headers: dict[str, str],
    options: list[str],
    instance: str | None = None,
    only_log: bool = False,
) -> dict[str, str]:
    """`error` is the name of the status where it is not success. `entry` is what the C++ expression
    `instance` is called in the PTX. With `only_log` all ends behind the front end."""
    names, texts = ([_bytes(text) for text in part] for part in (headers, headers.values()))
    status, program = nvrtc.nvrtcCreateProgram(
        _bytes(source), _bytes(name), len(names), texts, names
    )
    if _failed(status):
        return {"error": status.name}
    try:
        flags = [*options, *(["--fdevice-syntax-only"] if only_log else [])]
        return _built(program, [_bytes(flag) for flag in flags], instance, only_log)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _built(
    program: Any, options: list[bytes], instance: str | None, only_log: bool
) -> dict[str, str]:
    if instance is not None:
        nvrtc.nvrtcAddNameExpression(program, _bytes(instance))
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    log = _data(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
    told = {"log": _text(log)}
    if _failed(status):
        return told | {"error": status.name}
    if only_log:
        return told
    if instance is not None:
        status, entry = nvrtc.nvrtcGetLoweredName(program, _bytes(instance))
        if _failed(status):
            return told | {"error": status.name}
        told["entry"] = _text(entry)
    told["ptx"] = _text(_data(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX))
    cubin = _data(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
    return told | {"cubin": base64.b64encode(cubin).decode()}


def _failed(status: Any) -> bool:
    return bool(status != nvrtc.nvrtcResult.NVRTC_SUCCESS)


def _data(program: Any, size: Callable[[Any], Any], get: Callable[[Any, bytes], Any]) -> bytes:
    _, count = size(program)
    data: bytes = b" " * count
    get(program, data)
    return data


def _bytes(text: str) -> bytes:
    """A path need not be UTF-8."""
    return text.encode(errors="surrogateescape")


def _text(data: bytes) -> str:
    return data.rstrip(b"\0").decode(errors="replace")


if __name__ == "__main__":
    main()
