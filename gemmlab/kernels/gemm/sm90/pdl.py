"""Programmatic dependent launch (PDL): a kernel starts while the previous one still runs.

When a kernel lets the next one start, blocks of the next one take whatever room multiprocessors
have left, and keep it while they wait. If several blocks fit on a multiprocessor, they then end up
distributed unevenly, and the fullest multiprocessor determines the time. So such kernels let the
next one start late: 16 × 4096 × 4096 takes 31 instead of 42 µs in a CUDA graph of products on an
H200. The earlier the next one may start, the more of its launch is hidden: up to 1 µs.
"""

from cutlass import Int32, cute
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


@cute.jit
def pdl_begin(beside: Int32) -> None:
    """Begin a kernel that may share the GPU with the next one; `pdl_end` is its counterpart.

    If `beside` is 0, wait for the previous kernel to finish, and only then let the next one start:
    while the next one runs, only this kernel may be unfinished. Otherwise, the previous kernel
    began in that way, and this one runs beside it without waiting for it.
    """
    if beside == 0:
        wait_for_previous()
    let_next_start()


@cute.jit
def pdl_end(beside: Int32) -> None:
    """End a kernel: if it ran `beside` the previous one, it finishes after that one."""
    if beside != 0:
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
