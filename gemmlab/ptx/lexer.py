"""Splits PTX text into tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NoReturn

from gemmlab.errors import PtxSyntaxError

_TOKEN = re.compile(
    r"""[ \t\r\f]*(?:(?P<newline>\n)
      |(?P<comment>//[^\n]*|/\*.*?\*/)
      |(?P<string>"(?:[^"\\\n]|\\.)*")
      |(?P<number>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?
         |\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+U?)
      |(?P<word>\.[\w$]+(?:::[\w$]+)*|[%$_A-Za-z][\w$]*(?:\.[\w$]+|::[\w$]+)*)
      |(?P<punct>[{}()\[\],;:|!@+\-<>=*])|(?P<end>\Z))""",
    re.VERBOSE | re.DOTALL,
)


def tokenize(text: str) -> Iterator[tuple[str, str, int]]:
    """Split PTX text into tokens: kind, text and line of each.

    Raises PtxSyntaxError at an unexpected character.
    """
    line, position = 1, 0
    words: dict[str, str] = {}  # interned: large files repeat few distinct words
    for match in _TOKEN.finditer(text):
        if match.start() != position:
            break
        position, kind = match.end(), match.lastgroup or ""
        if kind == "newline":
            line += 1
        elif kind == "comment":
            line += match[kind].count("\n")
        elif kind == "end":
            return
        else:
            word = match[kind]
            yield kind, words.setdefault(word, word), line
    rest = text[position:].lstrip(" \t\r\f")
    raise PtxSyntaxError(f"unexpected character {rest[0]!r}", line)


class Tokens:
    """A cursor over the tokens of a text. Methods raise PtxSyntaxError on unexpected tokens."""

    def __init__(self, text: str) -> None:
        # Three parallel lists take a third of the memory of one list of tokens.
        self.words, self.kinds, self.lines_of = list[str](), list[str](), list[int]()
        for kind, word, line in tokenize(text):
            self.words.append(word)
            self.kinds.append(kind)
            self.lines_of.append(line)
        self.position = 0

    @property
    def is_done(self) -> bool:
        return self.position >= len(self.words)

    @property
    def line(self) -> int:
        """The line of the next token, or of the last token at the end."""
        return self.lines_of[min(self.position, len(self.words) - 1)] if self.words else 1

    @property
    def kind(self) -> str:
        """The kind of the next token; "" at the end."""
        return "" if self.is_done else self.kinds[self.position]

    def fail(self, message: str) -> NoReturn:
        raise PtxSyntaxError(message, self.line)

    def peek(self, ahead: int = 0) -> str:
        at = self.position + ahead
        return self.words[at] if at < len(self.words) else ""

    def next(self) -> str:
        if self.is_done:
            self.fail("the text ends in the middle of a statement")
        self.position += 1
        return self.words[self.position - 1]

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
