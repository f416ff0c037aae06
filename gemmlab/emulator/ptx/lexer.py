"""PTX text to tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from gemmlab.errors import PtxSyntaxError


class Token(NamedTuple):
    kind: str
    text: str
    line: int


_TOKEN = re.compile(
    r"""(?P<skip>[ \t\r\f]+|//[^\n]*|/\*.*?\*/)
      |(?P<newline>\n)
      |(?P<string>"(?:[^"\\\n]|\\.)*")
      |(?P<number>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?
         |\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+U?)
      |(?P<word>[.%$_A-Za-z][\w$]*(?:\.[\w$]+|::[\w$]+)*)
      |(?P<punct>[{}()\[\],;:|!@+\-<>=*])""",
    re.VERBOSE | re.DOTALL,
)


def tokenize(text: str) -> Iterator[Token]:
    """Split PTX text. Raises PtxSyntaxError at a character that starts no token."""
    line, position = 1, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise PtxSyntaxError(f"unexpected character {text[position]!r}", line)
        kind, word = match.lastgroup or "", match.group()
        if kind not in ("skip", "newline"):
            yield Token(kind, word, line)
        line += word.count("\n")
        position = match.end()
