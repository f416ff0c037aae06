"""The limits of a child process, which it sets itself before it imports any package.

Threads that a package has started would keep their rights.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass

from gemmlab.core import sandbox
from gemmlab.core.processes import die_with_parent
from gemmlab.core.sandbox import Policy

FILE_BYTES = 2**30  # largest file that the process may write
OPEN_FILES = 512  # of a process that runs foreign code


@dataclass(frozen=True)
class Confinement:
    """The limits of a process.

    `parent` is the judge's process id, None if the process does not see it. `policy` None confines
    nothing; `with_landlock` False leaves files to the program that started the process.
    """

    parent: int | None
    memory_bytes: int | None
    policy: Policy | None
    with_landlock: bool

    def enter(self) -> None:
        """Set the limits of this process. Raises OSError."""
        if self.parent is not None:
            # A judge that is killed cannot stop this process, which might block the GPU.
            die_with_parent(self.parent)
        _limit(resource.RLIMIT_CORE, 0)
        _limit(resource.RLIMIT_CPU, resource.getrlimit(resource.RLIMIT_CPU)[1])  # not the judge's
        _limit(resource.RLIMIT_FSIZE, FILE_BYTES)
        if self.memory_bytes is not None:
            _limit(resource.RLIMIT_AS, self.memory_bytes)
        if self.policy is not None:
            if self.policy.alone:
                _limit(resource.RLIMIT_NOFILE, OPEN_FILES)
            sandbox.enter(self.policy, self.with_landlock)


def _limit(kind: int, value: int) -> None:
    resource.setrlimit(kind, (value, value))
