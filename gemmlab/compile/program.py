"""The text that NVRTC compiles: a source and the headers that it includes from disk, of which code
of the host is left out step by step."""

from __future__ import annotations

import os
import re
from pathlib import Path

from gemmlab.compile import headers
from gemmlab.compile.host_code import without_host_code
from gemmlab.compile.source import read

ERROR = re.compile(r"^(.*)\((\d+)\): (?:catastrophic )?error(?: #\d+-D)?: (.*)$", re.MULTILINE)
_NO_HEADER = re.compile(r'(?:could not|cannot) open source file "([^"]+)"')
_INCLUDE = re.compile(r'^([ \t]*#[ \t]*include[ \t]*)(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)


_NO_MEMBER = re.compile(r'namespace "std" has no member(?: [\w ]+)? "(\w+)"')
# What the host's headers bring of others that device code uses, by its header.
_BROUGHT = dict.fromkeys(["min", "max", "clamp"], "algorithm")
_BROUGHT |= dict.fromkeys(["abs", "sqrt", "exp", "log", "pow", "fma", "isnan", "isinf"], "cmath")
_BROUGHT |= dict.fromkeys(["swap", "pair", "move", "forward"], "utility")
_BROUGHT |= {"numeric_limits": "limits", "is_same": "type_traits", "is_same_v": "type_traits"}
_QUOTABLE = re.compile(r'[^"\n\\\ud800-\udfff]+')  # a path that C++ can include
# nvcc takes lambdas that say where they run; here all do.
_LAMBDA = re.compile(r"(?<=\])\s*(?:__(?:host|device)__\s*)+(?=[({])")


class Program:
    """`source` is the text of a file that is called `name`; `headers` are texts by name, those from
    disk by their whole path, as which `source` includes them."""

    def __init__(self, source: str, name: str) -> None:
        self.name = name
        self.headers = headers.provided(source)
        self._folder, self._from_disk = Path(name).resolve().parent, set[str]()
        self.source = self._with_headers(source, self._folder)
        self._left_out = dict[str, str]()  # names, and the error for which each is left out

    @property
    def left_out(self) -> tuple[str, ...]:
        return tuple(self._left_out)

    def leave_out(self, log: str) -> bool:
        """Take out what the log finds wrong and is not marked as the device's, or else bring what
        headers of the host include; whether there was any."""
        before = len(self._left_out)
        errors = {(file, int(line)): text for file, line, text in reversed(ERROR.findall(log))}
        changed = False
        for file in {file for file, _ in errors}:
            lines = {line: text for (there, line), text in errors.items() if there == file}
            if file == self.name:
                self.source, names = without_host_code(self.source, lines)
            elif file in self._from_disk:
                self.headers[file], names = without_host_code(self.headers[file], lines)
            else:
                names = {}
            changed = changed or bool(names)
            for name, line in names.items():
                self._left_out.setdefault(name, f"{file}({line}): {lines[line]}")
        for header in [*filter(_is_host, _NO_HEADER.findall(log)), *self._of_thrust(errors)]:
            self.headers[header] = ""
            self._left_out[header] = "not found"
        if changed or len(self._left_out) > before:
            return True
        brought = {_BROUGHT[name] for name in _NO_MEMBER.findall(log) if name in _BROUGHT}
        more = [f"#include <{name}>\n" for name in sorted(brought)]
        more = [line for line in more if line not in self.headers[headers.PRELUDE]]
        self.headers[headers.PRELUDE] += "".join(more)
        return bool(more)

    def why(self, log: str) -> str:
        """What the log does not say: why there is no such thing as what it finds to be missing."""
        told = [
            f"{name} is left out as code of the host: {why}"
            for name, why in self._left_out.items()
            if re.search(rf"(?<![\w:]){re.escape(name)}\b", log)
        ]
        missing = [name for name, why in self._left_out.items() if why == "not found"]
        if missing:
            told.append(f"headers that are taken to be empty: {', '.join(missing)}")
        return "\n".join(told)

    def _of_thrust(self, errors: dict[tuple[str, int], str]) -> set[str]:
        """Headers of Thrust that the user's files include, where NVRTC cannot compile its own."""
        if not any(f"{os.sep}thrust{os.sep}" in file for file, _ in errors):
            return set()
        texts = [self.source, *(self.headers[path] for path in self._from_disk)]
        included = {found[3] for text in texts for found in _INCLUDE.finditer(text)}
        return {
            header
            for header in included
            if header and header.startswith("thrust/") and header not in self.headers
        }

    def _with_headers(self, text: str, folder: Path) -> str:
        """The text, with the headers on disk that it includes taken in, and theirs."""

        def taken(include: re.Match[str]) -> str:
            header = include[2] or include[3]
            for start in dict.fromkeys([folder, self._folder] if include[2] else [self._folder]):
                path = (start / header).resolve()
                name = str(path)
                if header in self.headers or not path.is_file() or not _QUOTABLE.fullmatch(name):
                    continue
                if name not in self._from_disk:
                    self._from_disk.add(name)
                    self.headers[name] = self._with_headers(read(path), path.parent)
                return f'{include[1]}"{name}"'
            return include[0]

        return _INCLUDE.sub(taken, _LAMBDA.sub(_blank, text))


def _is_host(header: str) -> bool:
    """CUDA's own C++ library is for the device; who lacks it has to hear of it."""
    return not header.startswith(("cuda/", "nv/"))


def _blank(found: re.Match[str]) -> str:
    """As many lines and columns of nothing."""
    return re.sub(r"\S", " ", found[0])
