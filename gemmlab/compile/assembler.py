"""nvJitLink as a program: reads PTX from stdin and writes a cubin to stdout.

On an error it writes its log to stderr and exits with code 1. It runs in a separate process because
invalid PTX can crash nvJitLink. It imports nothing from gemmlab, so it is run by its path.
"""

from __future__ import annotations

import sys

from cuda.bindings import nvjitlink


def main(name: str, *options: str) -> int:
    """Assemble stdin; messages refer to the PTX as `name`. Returns the exit code."""
    linker = nvjitlink.create(len(options), list(options))
    data = sys.stdin.buffer.read()
    try:
        nvjitlink.add_data(linker, nvjitlink.InputType.PTX, data, len(data), name)
        nvjitlink.complete(linker)
        cubin = bytearray(nvjitlink.get_linked_cubin_size(linker))
        nvjitlink.get_linked_cubin(linker, cubin)
    except nvjitlink.nvJitLinkError:
        log = bytearray(nvjitlink.get_error_log_size(linker))
        nvjitlink.get_error_log(linker, log)
        sys.stderr.buffer.write(log.rstrip(b"\0"))
        return 1
    finally:
        nvjitlink.destroy(linker)
    sys.stdout.buffer.write(cubin)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
