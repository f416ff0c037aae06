"""Landlock: the Linux security module with which a process restricts its own access to files.

The numbers are those of linux/landlock.h, https://docs.kernel.org/userspace-api/landlock.html.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from collections.abc import Iterable

LEAST = 3  # the first version that restricts truncation: Linux 6.2
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # system calls, on every architecture
_VERSION = 1  # flag: return the version
_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_ALL_FILES = (1 << 15) - 1  # version 3
_DEVICES = {1 << 6, 1 << 11}  # create character and block devices
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
READ = _EXECUTE | _READ_FILE | _READ_DIR
WRITE = _ALL_FILES & ~sum(_DEVICES)
DEVICE = _READ_FILE | _WRITE_FILE | _READ_DIR | _TRUNCATE | _IOCTL_DEV


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("access", ctypes.c_uint64), ("folder", ctypes.c_int32)]


def version() -> int:
    """Return the version of the kernel's interface; 0 without Landlock."""
    with contextlib.suppress(OSError):
        return _call(_CREATE_RULESET, None, 0, _VERSION)
    return 0


def restrict(rules: Iterable[tuple[str, int]]) -> None:
    """Deny this thread all files but those of `rules`, and what the version can deny besides.

    A rule is a file or folder with the rights to it and all below it; a missing one is ignored.
    Version 4 denies TCP, version 6 signals to other processes and abstract Unix sockets. Requires
    no-new-privileges. Raises OSError.
    """
    known = version()
    files = _ALL_FILES | (_IOCTL_DEV if known >= 5 else 0)
    handled = _Ruleset(files, 3 if known >= 4 else 0, 3 if known >= 6 else 0)
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    ruleset = _call(_CREATE_RULESET, ctypes.byref(handled), size, 0)
    try:
        for path, access in rules:
            with contextlib.suppress(FileNotFoundError, PermissionError):
                place = os.open(path, os.O_PATH | os.O_CLOEXEC)
                try:
                    if not stat.S_ISDIR(os.fstat(place).st_mode):
                        access &= _OF_FILES
                    rule = _PathBeneath(access & files, place)
                    _call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
                finally:
                    os.close(place)
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _call(number: int, *arguments: object) -> int:
    """Make a system call. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    values = [ctypes.c_long(part) if isinstance(part, int) else part for part in arguments]
    done: int = libc.syscall(ctypes.c_long(number), *values)
    if done < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return done
