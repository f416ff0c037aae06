"""NVRTC and nvJitLink as a program: JSON requests on stdin, JSON answers on stdout, one per line.

It exits when stdin closes. It is a separate process because invalid source can crash NVRTC, and
invalid PTX nvJitLink. It imports nothing from gemmlab, so it is run by its path.
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

from cuda.bindings import nvjitlink, nvrtc


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    # Redirect the compiler's own output to stderr, away from the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    requests = SimpleQueue[bytes]()
    Thread(target=_read, args=(requests,), daemon=True).start()
    while True:
        request = json.loads(requests.get())
        # File names are relative to this folder, which may have been deleted.
        with contextlib.suppress(OSError):
            os.chdir(request.pop("folder"))
        serve = _assemble if "ptx" in request else _compile
        json.dump(serve(**request), answers)
        answers.write("\n")
        answers.flush()


def _read(requests: SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        requests.put(line)
    os._exit(0)  # the parent process has exited; abandon the compilation


def _compile(
    source: str,
    name: str,
    headers: dict[str, str],
    options: list[str],
    instance: str | None = None,
    only_log: bool = False,
) -> dict[str, str]:
    """Compile one source; return its log, PTX and cubin (base64).

    `error` is the name of the status unless it is success. `entry` is the PTX name of the C++
    expression `instance`. With `only_log` the compilation stops after the front end.
    """
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
    answer = {"log": _text(log)}
    if _failed(status):
        return answer | {"error": status.name}
    if only_log:
        return answer
    if instance is not None:
        status, entry = nvrtc.nvrtcGetLoweredName(program, _bytes(instance))
        if _failed(status):
            return answer | {"error": status.name}
        answer["entry"] = _text(entry)
    answer["ptx"] = _text(_data(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX))
    cubin = _data(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
    return answer | {"cubin": base64.b64encode(cubin).decode()}


def _assemble(ptx: str, name: str, options: list[str]) -> dict[str, str]:
    """Assemble PTX, which messages call `name`; return the cubin (base64), or `error`, the log."""
    linker, data = nvjitlink.create(len(options), options), _bytes(ptx)
    try:
        nvjitlink.add_data(linker, nvjitlink.InputType.PTX, data, len(data), name)
        nvjitlink.complete(linker)
        cubin = bytearray(nvjitlink.get_linked_cubin_size(linker))
        nvjitlink.get_linked_cubin(linker, cubin)
        return {"cubin": base64.b64encode(cubin).decode()}
    except nvjitlink.nvJitLinkError:
        log = bytearray(nvjitlink.get_error_log_size(linker))
        nvjitlink.get_error_log(linker, log)
        return {"error": _text(bytes(log))}
    finally:
        nvjitlink.destroy(linker)


def _failed(status: Any) -> bool:
    return bool(status != nvrtc.nvrtcResult.NVRTC_SUCCESS)


def _data(program: Any, size: Callable[[Any], Any], get: Callable[[Any, bytes], Any]) -> bytes:
    _, count = size(program)
    data: bytes = b" " * count
    get(program, data)
    return data


def _bytes(text: str) -> bytes:
    """Encode text; a path may contain bytes that are not UTF-8."""
    return text.encode(errors="surrogateescape")


def _text(data: bytes) -> str:
    return data.rstrip(b"\0").decode(errors="replace")


if __name__ == "__main__":
    main()
