"""Confine a process for good, with no privileges: files, network, signals, system calls.

Landlock (Linux 6.2 and later) or bubblewrap restricts files, seccomp the rest. The process confines
itself, while it has a single thread: threads that already run would keep their rights. So nothing
here imports a package that starts threads.
"""

from gemmlab.core.sandbox.policy import Policy, Support, enter, support

__all__ = ["Policy", "Support", "enter", "support"]
