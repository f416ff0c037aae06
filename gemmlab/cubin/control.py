"""The control bits of a machine instruction: ptxas's instructions to the scheduler.

From Volta on, an instruction has 128 bits. Of the high 64, from bit 41: stall count 4, no yield 1,
write barrier 3, read barrier 3, wait mask 6, reuse 4. nvdisasm prints only the reuse bits.
"""

from __future__ import annotations

from dataclasses import dataclass

_SHIFT = 64 + 41
_NONE = 7  # of the two barriers


@dataclass(frozen=True)
class Control:
    """Control bits. A barrier is one of the warp's six scoreboards, 0 to 5.

    stall: cycles until the warp's next instruction may issue.
    yields: whether the scheduler should prefer another warp next.
    write_barrier: signals that the result is written. None for instructions of fixed latency.
    read_barrier: signals that the operands have been read.
    waits: barriers to wait for before issue.
    reuse: operand slots (0: a, 1: b, 2: c) whose registers stay in the reuse cache.
    """

    stall: int
    yields: bool
    write_barrier: int | None
    read_barrier: int | None
    waits: tuple[int, ...]
    reuse: tuple[int, ...]


def decode(word: int) -> Control:
    """Decode the control bits of a 128-bit instruction."""
    bits = word >> _SHIFT
    write, read = bits >> 5 & 7, bits >> 8 & 7
    return Control(
        stall=bits & 15,
        yields=not bits >> 4 & 1,
        write_barrier=None if write == _NONE else write,
        read_barrier=None if read == _NONE else read,
        waits=tuple(i for i in range(6) if bits >> 11 + i & 1),
        reuse=tuple(i for i in range(4) if bits >> 17 + i & 1),
    )


def without_control(word: int) -> int:
    """Return an instruction with its control bits cleared."""
    return word & (1 << _SHIFT) - 1


def with_control(
    word: int,
    *,
    stall: int,
    waits: int = 0,
    write_barrier: int = _NONE,
    reuse: int = 0,
) -> int:
    """Return an instruction with other control bits: no yield, no read barrier.

    waits, reuse: masks, of scoreboards and of operand slots.
    """
    bits = stall | 1 << 4 | write_barrier << 5 | _NONE << 8 | waits << 11 | reuse << 17
    return without_control(word) | bits << _SHIFT
