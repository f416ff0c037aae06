"""Compile several kernels at a time, each in a child process, into the cache on disk.

The CuTe DSL keeps global state, so one process compiles one kernel at a time.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from gemmlab.compile import cache
from gemmlab.core import processes
from gemmlab.linalg.planning.launch import Code

_MOST = 16  # child processes, of 0.4 GB each


def compile_all(codes: Sequence[Code]) -> None:
    """Compile kernels, on up to `_MOST` processors, and save them in the cache.

    A kernel that cannot be compiled is not in the cache afterwards; this raises no error.
    """
    count = min(len(codes), len(os.sched_getaffinity(0)), _MOST)
    children = list[subprocess.Popen[bytes]]()
    try:
        with cache.compiling(f"{len(codes)} kernels, {count} at a time"), suppress(OSError):
            for i in range(count):
                children.append(_start())
                _send(children[-1], codes[i::count])
            for child in children:
                child.wait()
    finally:
        for child in children:
            child.kill()
            child.wait()


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "gemmlab.linalg.runtime.compile_child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=processes.environment(),
    )


def _send(child: subprocess.Popen[bytes], codes: Sequence[Code]) -> None:
    assert child.stdin is not None
    described = [(*code, arch.capability) for *code, arch in codes]
    with child.stdin as pipe:
        pipe.write(pickle.dumps((os.getpid(), described)))
