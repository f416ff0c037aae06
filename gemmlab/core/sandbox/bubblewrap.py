"""bubblewrap: a program that runs another one with other mounts, in its own namespaces.

For kernels without Landlock. https://github.com/containers/bubblewrap
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from functools import cache

_ISOLATED = ["--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
_ISOLATED += ["--die-with-parent", "--proc", "/proc", "--dev", "/dev"]


@cache
def available() -> bool:
    """Whether bubblewrap is installed and may make namespaces."""
    found = shutil.which("bwrap")
    if found is None:
        return False
    done = subprocess.run([found, *_ISOLATED, "--ro-bind", "/", "/", "true"], capture_output=True)
    return done.returncode == 0


def prefix(
    readable: Sequence[str], writable: Sequence[str], devices: Sequence[str], folder: str
) -> list[str]:
    """Return the command that runs the command after it, in `folder`, with these paths alone."""
    command = ["bwrap", *_ISOLATED]
    for option, paths in (
        ("--ro-bind-try", readable),
        ("--bind-try", writable),
        ("--dev-bind-try", devices),
    ):
        for path in paths:
            given = path.startswith("/proc") or (path.startswith("/dev/") and paths is not devices)
            if not given:  # by _ISOLATED
                command += [option, path, path]
    # Mounts of bubblewrap's own are in memory that no limit counts.
    return [*command, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", folder]
