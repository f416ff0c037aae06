"""nvJitLink as a program: PTX from stdin, a cubin to stdout; or its log, and exit code 1.

In a process of its own because PTX with a mistake in it can make nvJitLink crash. It needs nothing
of gemmlab, and so is run by its path.
"""

from __future__ import annotations

import sys

from cuda.bindings import nvjitlink


def main(name: str, *options: str) -> int:
    """`name` is what messages call the PTX."""
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
