"""Read the text of a kernel's file and find its kernel templates."""

from __future__ import annotations

import codecs
import re
from pathlib import Path

from gemmlab.errors import InputError, UnknownNameError

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TEMPLATE = re.compile(
    r"\btemplate\s*<(?P<parameters>[^;{}()]*)>\s*(?:static\s+|inline\s+)*__global__(?P<head>[^;{]*?)"
    r"\b(?P<name>\w+)\s*\((?!\()"
)
# Types and values that do not depend on declarations in the source.
_KNOWN = {"float", "double", "int", "unsigned", "long", "short", "char", "bool", "true", "false"}
_KNOWN |= {"half", "__half", "float2", "float4", "int4", "__nv_bfloat16"}


def read(path: Path) -> str:
    """Return the text of a file: UTF-8, UTF-16 with a byte order mark, or else Latin-1.

    Raises UnknownNameError if the file does not exist, InputError if it cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise UnknownNameError(f"no file {path}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    try:
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return _lines(data.decode("utf-16"))
        if b"\0" in data:
            raise InputError(f"{path} cannot be read: it is not text")
        return _lines(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return _lines(data.decode("latin-1"))


def _lines(text: str) -> str:
    r"""Convert all line ends to \n, as Python's text mode does."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def summary(text: str) -> str:
    """Return the first sentence of a file's leading comment or docstring; "" without one."""
    for line in text.splitlines():
        words = line.strip().lstrip('/#*;"').strip()
        if words and not words.startswith(("!", "include", "define", "pragma")):
            is_told = line.lstrip().startswith(("//", "#", "*", "/*", '"""'))
            return words.rstrip('"*/').strip() if is_told else ""
    return ""


def instances(source: str) -> dict[str, str]:
    """Return an instance of each kernel template: "sgemm" -> "sgemm<128, 8>".

    The arguments are those of a launch in the source if they use only known names, else examples.
    """
    text = _COMMENT.sub(" ", source)
    found = {}
    for template in _TEMPLATE.finditer(text):
        name = template["name"]
        found[name] = _launched(text, name) or f"{name}<{_examples(template['parameters'])}>"
    return found


def _launched(text: str, name: str) -> str | None:
    for use in re.finditer(rf"\b{name}\s*<([^<>;(){{}}]+)>\s*<<<", text):
        words = re.findall(r"[A-Za-z_]\w*", use[1])
        if set(words) <= _KNOWN:
            return f"{name}<{', '.join(part.strip() for part in use[1].split(','))}>"
    return None


def _examples(parameters: str) -> str:
    """Return an argument for each parameter without a default, e.g. "float, 32"."""
    given = []
    for parameter in parameters.split(","):
        if "=" in parameter:
            break
        type_ = parameter.split()[0] if parameter.split() else ""
        examples = {"typename": "float", "class": "float", "bool": "true"}
        given.append(examples.get(type_, "32"))
    return ", ".join(given)
