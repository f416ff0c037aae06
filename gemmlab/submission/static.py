"""What can be said against a kernel without running it."""

from __future__ import annotations

import re

_GLOBAL = re.compile(
    r"^\s*(?:\.visible\s+|\.weak\s+|\.extern\s+|\.common\s+)*\.global\b[^;={]*?([$%\w]+)\s*"
    r"(?:\[[^;]*?\])*\s*(?:=|;)",
    re.MULTILINE,
)
_NAME = re.compile(r"[$%\w]+")


def forbidden(ptx: str) -> str | None:
    """The rule that a PTX text breaks, or None.

    A variable of a module in global memory keeps its value from launch to launch: a kernel could
    count its launches, or keep a result. The texts of printf and of assertions ($str, __unnamed_1)
    only look like one, and headers declare variables that nobody uses.
    """
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
