"""What can be said against a kernel without running it."""

from __future__ import annotations

import re

_GLOBAL = re.compile(
    r"^\s*(?:\.visible\s+|\.weak\s+|\.extern\s+|\.common\s+)*\.global\b[^;={]*?([$%\w]+)\s*"
    r"(?:\[[^;]*?\])*\s*(?:=|;)",
    re.MULTILINE,
)
_NAME = re.compile(r"[$%\w]+")
_EXTERN = re.compile(r"^\s*\.extern\s+\.func\b[^;]*?([$\w]+)\s*\(", re.MULTILINE)
_RETURNED = re.compile(r"\.func\s*\([^)]*\)")
# What the driver itself links to any kernel: printf and failed assertions.
_SYSTEM = {"vprintf", "__assertfail"}


def forbidden(ptx: str) -> str | None:
    """The rule that a PTX text breaks, or None.

    A variable of a module in global memory keeps its value from launch to launch: a kernel could
    count its launches, or keep a result. A function from elsewhere is a library's, not the file's.
    The texts of printf and of assertions ($str, __unnamed_1) only look like the first, and headers
    declare variables that nobody uses.
    """
    body = _RETURNED.sub(".func", ptx)
    called = [name for name in _EXTERN.findall(body) if name not in _SYSTEM]
    if called:
        return f"calls functions that are not in the file: {', '.join(called)}"
    code = set(_NAME.findall(_GLOBAL.sub("", ptx)))
    kept = [
        name
        for name in _GLOBAL.findall(ptx)
        if name in code and not name.startswith(("$str", "__unnamed_"))
    ]
    if kept:
        return (
            f"keeps {', '.join(kept[:3])} in global memory of its module, which outlives a launch; "
            "take an array as an argument, or __constant__ or __shared__ memory"
        )
    return None
