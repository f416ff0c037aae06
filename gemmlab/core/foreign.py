"""Text that strangers wrote, made safe to print."""

from __future__ import annotations

import re
from typing import Any

# Characters that a terminal does not simply display: control characters other than line feeds and
# tabs, line and paragraph separators, and those that change the direction of text; also lone
# surrogates, which cannot be encoded.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Return text with unsafe characters as the escapes of a Python string."""
    return _UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text.replace("\r\n", "\n"))


def cleaned(value: Any) -> Any:
    """Return JSON data with all its texts printable. Raises RecursionError."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [cleaned(part) for part in value]
    if isinstance(value, dict):
        return {printable(name): cleaned(part) for name, part in value.items()}
    return value
