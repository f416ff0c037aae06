"""PTX text to tokens, and a place among them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

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
      |(?P<word>\.[\w$]+(?:::[\w$]+)*|[%$_A-Za-z][\w$]*(?:\.[\w$]+|::[\w$]+)*)
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


class Tokens:
    """The tokens of a text, read one after the other. What fails raises PtxSyntaxError."""

    def __init__(self, text: str) -> None:
        self.tokens = list(tokenize(text))
        self.position = 0

    def fail(self, message: str) -> NoReturn:
        at = min(self.position, len(self.tokens) - 1)
        raise PtxSyntaxError(message, self.tokens[at].line if self.tokens else 1)

    def peek(self, ahead: int = 0) -> str:
        at = self.position + ahead
        return self.tokens[at].text if at < len(self.tokens) else ""

    def next(self) -> str:
        if self.position >= len(self.tokens):
            self.fail("the text ends in the middle of a statement")
        self.position += 1
        return self.tokens[self.position - 1].text

    def expect(self, text: str) -> None:
        if self.peek() != text:
            self.fail(f"expected {text!r}, found {self.peek() or 'the end of the text'!r}")
        self.position += 1

    def accept(self, text: str) -> bool:
        if self.peek() == text:
            self.position += 1
            return True
        return False

    def integer(self) -> int:
        negative = self.accept("-")
        word = self.next().rstrip("U")
        try:
            value = int(word, 0)
        except ValueError:
            self.position -= 1
            self.fail(f"expected an integer, found {word!r}")
        return -value if negative else value
