"""The sections of a cubin, which is an ELF-64 file."""

from __future__ import annotations

import struct

from gemmlab.errors import CompileError

TARGET = slice(48, 52)  # of the header: the bytes that tell the architecture


def sections(cubin: bytes) -> list[tuple[str, int, int]]:
    """Return the name of each section, its offset and its size in bytes. Raises CompileError."""
    try:
        (first,) = struct.unpack_from("<Q", cubin, 40)
        size, count, names = struct.unpack_from("<HHH", cubin, 58)
        headers = [struct.unpack_from("<IIQQQQ", cubin, first + i * size) for i in range(count)]
        strings = headers[names][4]
        starts = [strings + name for name, *_ in headers]
        called = [cubin[start : cubin.index(b"\0", start)].decode() for start in starts]
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise CompileError(f"these {len(cubin)} bytes are not a cubin") from error
    return [(name, *header[4:6]) for name, header in zip(called, headers, strict=True)]
