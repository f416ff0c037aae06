"""Text of a kernel's file, and what it says of its templates."""

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
# Types and values that mean the same everywhere in a source.
_KNOWN = {"float", "double", "int", "unsigned", "long", "short", "char", "bool", "true", "false"}
_KNOWN |= {"half", "__half", "float2", "float4", "int4", "__nv_bfloat16"}


def read(path: Path) -> str:
    """The text of a file: UTF-8 or UTF-16, with or without a byte order mark, or else Latin-1.

    Raises UnknownNameError where there is no such file, InputError where it cannot be read.
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
            raise InputError(f"{path} cannot be read: it is no text")
        return _lines(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return _lines(data.decode("latin-1"))


def _lines(text: str) -> str:
    """With the line ends that Python's own reading gives."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def instances(source: str) -> dict[str, str]:
    """How an instance of each template of a kernel may be named: "sgemm" -> "sgemm<128, 8>".

    As the source launches it, where that uses no names of its own; else with examples.
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
    """One argument for each parameter that has no default: "float, 32"."""
    given = []
    for parameter in parameters.split(","):
        if "=" in parameter:
            break
        type_ = parameter.split()[0] if parameter.split() else ""
        examples = {"typename": "float", "class": "float", "bool": "true"}
        given.append(examples.get(type_, "32"))
    return ", ".join(given)
