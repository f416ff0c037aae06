"""Programmatic dependent launch (PDL): a kernel starts while the previous one still runs."""

from cutlass import cute
from cutlass.base_dsl import Arch
from cutlass.cutlass_dsl import CuTeDSL


def pdl_wait() -> None:
    """Wait for the previous kernel in the stream to finish; let the next one start and wait.

    Blocks of the next kernel fill multiprocessors as they become free, and set up barriers and
    shared memory meanwhile. Without the launch attribute both instructions do nothing. Before
    compute capability 9.0 there are none, and kernels run one after the other.
    """
    let_next_start()
    wait_for_previous()


def let_next_start() -> None:
    """Let blocks of the next kernel start as soon as all blocks of this one have come here."""
    if _has_pdl():
        cute.arch.griddepcontrol_launch_dependents()


def wait_for_previous() -> None:
    """Wait for the previous kernel in the stream to finish."""
    if _has_pdl():
        cute.arch.griddepcontrol_wait()


def _has_pdl() -> bool:
    return CuTeDSL._get_dsl().get_arch_enum() >= Arch.sm_90
