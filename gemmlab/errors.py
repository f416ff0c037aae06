"""Every exception gemmlab raises on purpose.

    GemmlabError
    ├── InputError (ValueError)              a value the caller gave breaks a rule
    │   ├── ShapeError                       sizes that do not fit together, or an empty matrix
    │   ├── DTypeError (TypeError)           a value of the wrong type
    │   ├── UnknownNameError (LookupError)   no rung, entry, layout, family or file of that name
    │   ├── ArchitectureError                a kernel that needs another GPU architecture
    │   ├── ArrayError                       an array that cannot be used here: device, memory
    │   └── LaunchError                      grid, block, shared memory or arguments past a limit
    ├── MissingDependencyError (ImportError) an optional package is not installed; names the extra
    ├── DeviceError (RuntimeError)           no GPU, no driver, or the driver refused
    ├── TierError (NotImplementedError)      a precision or emulator tier asked for cannot run
    ├── StateError (RuntimeError)            used before it was planned, or after it was freed
    ├── ImplausibleTimeError (RuntimeError)  a measured time that the hardware cannot reach
    ├── CompileError (RuntimeError)          a compiler said no; `log` holds its words
    │   └── PtxSyntaxError                   PTX text that does not parse; holds the line
    ├── InternalError (RuntimeError)         a fault of gemmlab's own
    └── EmulationError (RuntimeError)        the emulated kernel did something wrong
        ├── OutOfBoundsError
        ├── MisalignedAddressError
        ├── UnsupportedInstructionError (NotImplementedError)
        ├── DeadlockError
        ├── CheckError                   a check found something: a race, a missing wait
        └── BudgetError                  more instructions than were allowed

Each message states the values and the rule they break. `exit_code` is what the command line ends
with.
"""

from __future__ import annotations

from dataclasses import dataclass


class GemmlabError(Exception):
    """Base of the tree."""

    exit_code = 2


class InputError(GemmlabError, ValueError):
    """A value the caller gave breaks a rule."""


class ShapeError(InputError):
    """Sizes that do not fit together, or an empty matrix."""


class DTypeError(InputError, TypeError):
    """A value of the wrong type."""


class UnknownNameError(InputError, LookupError):
    """No rung, entry, layout, input family or file of that name."""


class LaunchError(InputError):
    """Grid, block, shared memory or arguments past a limit."""


class ArchitectureError(InputError):
    """A kernel that needs another architecture than the one it is to be compiled for."""


class ArrayError(InputError):
    """An array that cannot be used here: its device, its memory or its owner forbids it."""


class TierError(GemmlabError, NotImplementedError):
    """What was asked for by name cannot run here: a precision of a product, for these operands on
    this device, or a tier of the emulator."""


class StateError(GemmlabError, RuntimeError):
    """An object used before it was planned, or after it was freed."""


class MissingDependencyError(GemmlabError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""

    exit_code = 3


class InternalError(GemmlabError, RuntimeError):
    """A fault of gemmlab's own; the message says where it is, and how to go on without it."""

    exit_code = 1


class DeviceError(GemmlabError, RuntimeError):
    """No GPU, no driver, or the driver refused."""

    exit_code = 3


class ImplausibleTimeError(GemmlabError, RuntimeError):
    """A measured time below what the hardware needs for the operations or the bytes."""

    exit_code = 1


class CompileError(GemmlabError, RuntimeError):
    """A compiler refused the source; `log` is what it printed."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(f"{message}\n{log.rstrip()}" if log else message)
        self.log = log


class PtxSyntaxError(CompileError):
    """PTX text that does not parse; `line` counts from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(f"PTX line {line}: {message}")
        self.line = line


@dataclass(frozen=True)
class Site:
    """Where in a kernel something happened; `source` is `file:line` of the Python or CUDA text."""

    ptx_line: int
    ptx: str
    source: str | None = None

    def __str__(self) -> str:
        at = f"PTX line {self.ptx_line}: {self.ptx}"
        return f"{at} ({self.source})" if self.source else at


class EmulationError(GemmlabError, RuntimeError):
    """The emulated kernel did something wrong.

    `site` tells the instruction, `block` the CTA as (x, y, z), `lane` the linear thread index in
    the block, `address` the byte address in the instruction's state space; None where unknown.
    """

    exit_code = 4

    def __init__(
        self,
        message: str,
        site: Site | None = None,
        block: tuple[int, int, int] | None = None,
        thread: int | None = None,
        address: int | None = None,
    ) -> None:
        self.message = message
        where = [message]
        if block is not None:
            where.append(f"block {block}")
        if thread is not None:
            where.append(f"thread {thread} (warp {thread // 32}, lane {thread % 32})")
        text = ", ".join(where)
        super().__init__(f"{text}\n  at {site}" if site else text)
        self.site, self.block, self.thread, self.address = site, block, thread, address

    @property
    def lane(self) -> int | None:
        """Lane of the warp, 0 to 31."""
        return None if self.thread is None else self.thread % 32


class OutOfBoundsError(EmulationError):
    """An access outside every allocation of its state space."""


class MisalignedAddressError(EmulationError):
    """An address that is not a multiple of the access width."""


class UnsupportedInstructionError(EmulationError, NotImplementedError):
    """A PTX instruction the emulator does not know; nothing is skipped silently."""


class DeadlockError(EmulationError):
    """Every live thread waits and none can go on."""


class CheckError(EmulationError):
    """What a check of the emulator found; `kind` is its name: "shared race", "missing wait"."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class BudgetError(EmulationError):
    """A thread block executes more instructions than were allowed: it may never end."""
