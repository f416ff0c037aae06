"""What a confined process may do, and how far this machine can enforce it."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache

from gemmlab.core.sandbox import bubblewrap, landlock, seccomp

_NO_NEW_PRIVILEGES = 38  # prctl(2)
_CAPABILITIES = 0x20080522  # version of capset(2)


@dataclass(frozen=True)
class Policy:
    """What a process may access: files and folders, with all below them.

    It may write what is in `devices`, but create nothing there.
    A process that is `alone` runs foreign code: it may start no process, make no connection and
    signal only itself. Others may start programs, which inherit the restrictions.
    """

    readable: tuple[str, ...]
    writable: tuple[str, ...]
    devices: tuple[str, ...]
    alone: bool


@dataclass(frozen=True)
class Support:
    """What confines processes on this machine."""

    landlock: int  # version; 0 without
    bubblewrap: bool
    seccomp: bool

    @property
    def complete(self) -> bool:
        return self.seccomp and (self.uses_landlock or self.bubblewrap)

    @property
    def uses_landlock(self) -> bool:
        return self.landlock >= landlock.LEAST

    def __str__(self) -> str:
        if not self.complete:
            return f"none: {self.lacking}"
        return f"Landlock {self.landlock}, seccomp" if self.uses_landlock else "bubblewrap, seccomp"

    @property
    def lacking(self) -> str:
        """Why there is no sandbox; empty if there is one."""
        if not self.seccomp:
            return "this kernel has no seccomp"
        if self.complete:
            return ""
        have = f"version {self.landlock} of Landlock" if self.landlock else "no Landlock"
        return f"this kernel has {have}, and bubblewrap is not installed or may make no namespaces"

    def prefix(self, policy: Policy, folder: str) -> list[str]:
        """Return the command, if any, that confines the command after it, run in `folder`."""
        if self.uses_landlock:
            return []
        return bubblewrap.prefix(policy.readable, policy.writable, policy.devices, folder)


@cache
def support() -> Support:
    """Return what this machine can enforce."""
    version = landlock.version()
    needed = version < landlock.LEAST
    return Support(version, needed and bubblewrap.available(), seccomp.available())


def enter(policy: Policy, with_landlock: bool) -> None:
    """Confine this process, for good. Raises OSError, also if it has several threads."""
    if len(os.listdir("/proc/self/task")) != 1:
        raise OSError("a process with several threads cannot be confined")
    libc = ctypes.CDLL(None, use_errno=True)
    if policy.alone:
        _drop_capabilities(libc)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no-new-privileges is refused")
    if with_landlock:
        rules = [(path, landlock.READ) for path in policy.readable]
        rules += [(path, landlock.WRITE) for path in policy.writable]
        rules += [(path, landlock.DEVICE) for path in policy.devices]
        landlock.restrict(rules)
    seccomp.restrict(policy.alone)


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Give up root's privileges; without any, it has no effect."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES, 0)
    if libc.capset(header, (ctypes.c_uint32 * 6)()):
        raise OSError(ctypes.get_errno(), "capabilities cannot be dropped")
