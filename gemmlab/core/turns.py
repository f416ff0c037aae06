"""Take turns with other processes of this user on this machine: one at a time uses a GPU."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

_POLL_S = 0.1


@contextlib.contextmanager
def turn(names: Sequence[str]) -> Iterator[str]:
    """Wait until one of these resources is free, and hold it. The system frees it on any exit."""
    folder = Path(tempfile.gettempdir()) / f"gemmlab-turns-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    while True:
        for name in names:
            flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW
            lock = os.open(folder / re.sub(r"\W", "-", name), flags, 0o600)
            try:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    yield name
                    return
            finally:
                os.close(lock)
        time.sleep(_POLL_S)
