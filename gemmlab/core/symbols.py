"""Names of C++ symbols as in the source."""

from __future__ import annotations

import ctypes
from functools import cache


@cache
def demangled(name: str) -> str:
    """The C++ declaration of a mangled name: "scale(float*, int)" for "_Z5scalePfi".

    Returns the name itself if it is not mangled, or if the C++ library is missing.
    """
    if not name.startswith("_Z"):
        return name
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return name
    status = ctypes.c_int()
    function = library["__cxa_demangle"]
    function.restype = ctypes.c_void_p
    pointer = function(name.encode(), None, None, ctypes.byref(status))
    if not pointer:
        return name
    try:
        return ctypes.string_at(pointer).decode()
    finally:
        libc = ctypes.CDLL(None)
        libc.free.argtypes = [ctypes.c_void_p]
        libc.free(pointer)
