"""The text that NVRTC compiles: a source and its headers, with host code removed step by step."""

from __future__ import annotations

import os
import re
from pathlib import Path

from gemmlab.compile import headers
from gemmlab.compile.host_code import without_host_code
from gemmlab.compile.source import read
from gemmlab.errors import InputError

ERROR = re.compile(r"^(.*)\((\d+)\): (?:catastrophic )?error(?: #\d+-D)?: (.*)$", re.MULTILINE)
_NO_HEADER = re.compile(r'(?:could not|cannot) open source file "([^"]+)"')
_INCLUDE = re.compile(r'^([ \t]*#[ \t]*include[ \t]*)(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)
_NO_MEMBER = re.compile(r'namespace "std" has no member(?: [\w ]+)? "(\w+)"')
# Names that device code uses and host headers include indirectly -> the header that declares them.
_INDIRECT = dict.fromkeys(["min", "max", "clamp"], "algorithm")
_INDIRECT |= dict.fromkeys(["abs", "sqrt", "exp", "log", "pow", "fma", "isnan", "isinf"], "cmath")
_INDIRECT |= dict.fromkeys(["swap", "pair", "move", "forward"], "utility")
_INDIRECT |= {"numeric_limits": "limits", "is_same": "type_traits", "is_same_v": "type_traits"}
_QUOTABLE = re.compile(r'[^"\n\\\ud800-\udfff]+')  # a path that C++ can include
# nvcc accepts execution space specifiers on lambdas; NVRTC does not, and here they are redundant.
_LAMBDA = re.compile(r"(?<=\])\s*(?:__(?:host|device)__\s*)+(?=[({])")


class Program:
    """A source and its headers.

    `source` is the text of the file `name`. `headers` maps names to texts; `source` includes
    headers from disk by their full path.
    """

    def __init__(self, source: str, name: str) -> None:
        self.name = name
        self.headers = headers.provided(source)
        self._folder, self._from_disk = Path(name).resolve().parent, set[str]()
        self._barred = set[str]()  # headers that exist but cannot be read
        self.source = self._with_headers(source, self._folder)
        self._left_out = dict[str, str]()  # name -> the error that caused its removal

    @property
    def left_out(self) -> tuple[str, ...]:
        return tuple(self._left_out)

    def leave_out(self, log: str) -> bool:
        """Remove host code that the log reports as wrong, or add headers that host headers include.

        Returns whether anything changed.
        """
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
        indirect = {_INDIRECT[name] for name in _NO_MEMBER.findall(log) if name in _INDIRECT}
        more = [f"#include <{name}>\n" for name in sorted(indirect)]
        more = [line for line in more if line not in self.headers[headers.PRELUDE]]
        self.headers[headers.PRELUDE] += "".join(more)
        return bool(more)

    def why(self, log: str) -> str:
        """Return, for names that the log reports as missing, why they were removed."""
        lines = [
            f"{name} was removed as host code: {why}"
            for name, why in self._left_out.items()
            if re.search(rf"(?<![\w:]){re.escape(name)}\b", log)
        ]
        missing = [
            name
            for name, why in self._left_out.items()
            if why == "not found" and name not in self._barred
        ]
        if missing:
            lines.append(f"headers not found, assumed empty: {', '.join(missing)}")
        if self._barred:
            lines.append(f"headers that cannot be read: {', '.join(sorted(self._barred))}")
        return "\n".join(lines)

    def _of_thrust(self, errors: dict[tuple[str, int], str]) -> set[str]:
        """Return the Thrust headers that the user's files include, if NVRTC failed in Thrust."""
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
        """Return the text with includes by full path; read those headers, recursively."""

        def located(include: re.Match[str]) -> str:
            header = include[2] or include[3]
            for start in dict.fromkeys([folder, self._folder] if include[2] else [self._folder]):
                path = (start / header).resolve()
                name = str(path)
                if header in self.headers or not path.is_file() or not _QUOTABLE.fullmatch(name):
                    continue
                if name not in self._from_disk:
                    try:
                        found = read(path)
                    except InputError:
                        self._barred.add(header)
                        continue
                    self._from_disk.add(name)
                    self.headers[name] = self._with_headers(found, path.parent)
                return f'{include[1]}"{name}"'
            return include[0]

        return _INCLUDE.sub(located, _LAMBDA.sub(_blank, text))


def _is_host(header: str) -> bool:
    """Whether a missing header may be ignored; one of libcu++ is device code and may not."""
    return not header.startswith(("cuda/", "nv/"))


def _blank(found: re.Match[str]) -> str:
    """Replace text by white space of the same lines and columns."""
    return re.sub(r"\S", " ", found[0])
