"""Find the submissions in a folder, and read them as untrusted files.

A kernel file in the folder is a submission: its process sees no other file. A folder in it is the
submission of one author, with headers. Links, pipes and large files are not read.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

from gemmlab.compile import SUFFIXES
from gemmlab.core import foreign
from gemmlab.errors import InputError, UnknownNameError

FILE_BYTES = 2**20
FOLDER_FILES = 100
_DIRECTIVE = re.compile(rb"^[ \t]*(?://|#)![ \t]*gemmlab\b", re.MULTILINE)


@dataclass(frozen=True)
class Submitted:
    """A submission: its name in the folder, the kernel file, and the files that it may see.

    `fault` says why it is not judged.
    """

    name: str
    kernel: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    fault: str = ""

    @property
    def title(self) -> str:
        """The name as text for a line: a file's name may be any bytes."""
        text = self.name.encode(errors="surrogateescape").decode(errors="backslashreplace")
        return foreign.printable(text).replace("\n", "\\n").replace("\t", "\\t")

    @property
    def digest(self) -> str:
        """A hash of what the files contain, not of their names; empty without files."""
        others = sorted(text for name, text in self.files.items() if name != self.kernel)
        parts = [self.files[self.kernel], *others] if self.files else []
        text = b"".join(b"%d:%s" % (len(part), part) for part in parts)
        return hashlib.sha256(text).hexdigest() if text else ""


def submissions(folder: Path) -> list[Submitted]:
    """Return the submissions of a folder, by name.

    Raises UnknownNameError if there is none, and InputError if the folder cannot be read.
    """
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {error.strerror}") from error
    found = list[Submitted]()
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            found += _of_author(entry.name, Path(entry.path))
        elif Path(entry.name).suffix in SUFFIXES:
            found.append(_of_file(entry.name, Path(entry.path)))
    if not found:
        raise UnknownNameError(f"{folder} has no kernel files: {', '.join(SUFFIXES)}")
    return found


def _of_file(name: str, path: Path) -> Submitted:
    try:
        return Submitted(name, name, {name: _read(path)})
    except OSError as error:
        return Submitted(name, fault=str(error.strerror))


def _of_author(author: str, folder: Path) -> list[Submitted]:
    """Return the submissions of an author's folder: its kernel files, those with a directive if any
    has one."""
    files = dict[str, bytes]()
    try:
        for place, folders, names in os.walk(folder, onerror=_raise):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for name in names:
                if not name.startswith("."):
                    path = Path(place) / name
                    files[str(path.relative_to(folder))] = _read(path)
                if len(files) > FOLDER_FILES:
                    raise OSError(0, f"more than {FOLDER_FILES} files")
    except OSError as error:
        return [Submitted(author, fault=str(error.strerror))]
    kernels = [name for name in sorted(files) if Path(name).suffix in SUFFIXES]
    called = [name for name in kernels if _DIRECTIVE.search(files[name])]
    return [Submitted(f"{author}/{name}", name, files) for name in called or kernels]


def _read(path: Path) -> bytes:
    """Return the content of a regular file. Raises OSError for anything else."""
    if path.is_symlink():
        raise OSError(0, f"{path.name} is a symbolic link")
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(file, "rb") as opened:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(0, f"{path.name} is not a regular file")
        content = opened.read(FILE_BYTES + 1)
    if len(content) > FILE_BYTES:
        raise OSError(0, f"{path.name} has more than {FILE_BYTES // 2**20} MiB")
    return content


def _raise(error: OSError) -> None:
    raise error
