"""A cubin's resource usage, read without a GPU."""

from __future__ import annotations

import re

from gemmlab.compile.artifact import Resources
from gemmlab.core.packages import CUOBJDUMP
from gemmlab.cubin import tools
from gemmlab.errors import UnknownNameError

_USAGE = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\S+) SHARED:(\d+) LOCAL:(\d+)")
SYSTEM_SMEM = 1024  # bytes per block


def read(cubin: bytes, entry: str, arch: str) -> Resources:
    """Return registers, local memory and static shared memory of one kernel of a cubin.

    Raises UnknownNameError, CompileError and MissingDependencyError.
    """
    found = tools.run(CUOBJDUMP, ["-res-usage"], cubin)
    usage = {name: rest for name, *rest in _USAGE.findall(found)}
    if entry not in usage:
        raise UnknownNameError(f"no entry {entry!r} in the cubin; it has {', '.join(usage)}")
    stack = usage[entry][1]
    # cuobjdump reports no number for the stack of a recursive kernel.
    frame = int(stack) if stack.isdigit() else 0
    registers, shared, local = (int(usage[entry][i]) for i in (0, 2, 3))
    # From Hopper on, the system reserves the first 1 KB of shared memory, which ptxas includes in
    # the size if the kernel uses any.
    if shared and int(re.sub(r"\D", "", arch)) >= 90:
        shared -= SYSTEM_SMEM
    return Resources(registers, frame + local, shared)
