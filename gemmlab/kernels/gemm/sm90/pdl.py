"""Programmatic dependent launch (PDL): a kernel starts while the previous one still runs."""

from cutlass import cute


@cute.jit
def pdl_wait() -> None:
    """Wait for the previous kernel in the stream to finish; let the next one start and wait.

    Blocks of the next kernel fill multiprocessors as they become free, and set up barriers and
    shared memory meanwhile. Without the launch attribute both instructions do nothing.
    """
    cute.arch.griddepcontrol_launch_dependents()
    cute.arch.griddepcontrol_wait()
