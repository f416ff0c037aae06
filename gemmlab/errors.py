"""Every exception that gemmlab raises on purpose.

    GemmlabError
    ├── InputError (ValueError)              an argument breaks a rule
    │   ├── ShapeError                       incompatible shapes, or an empty matrix
    │   ├── DTypeError (TypeError)           a value of the wrong type
    │   ├── UnknownNameError (LookupError)   no rung, entry, layout, family or file of that name
    │   ├── ArchitectureError                a kernel that requires another GPU architecture
    │   ├── ArrayError                       an array on the wrong device or in unusable memory
    │   ├── PlacementError                   a placement on a mesh that a product cannot have
    │   └── LaunchError                      grid, block, shared memory or arguments past a limit
    ├── MissingDependencyError (ImportError) an optional package is missing or broken
    ├── DeviceError (RuntimeError)           no GPU, no driver, or an error from the driver
    ├── PeerError (RuntimeError)             another process of a mesh ended or does not answer
    ├── SandboxError (RuntimeError)          processes cannot be confined on this machine
    ├── TierError (NotImplementedError)      the requested precision or emulator tier cannot run
    ├── StateError (RuntimeError)            an object used before planning or after being freed
    ├── PredictionError (NotImplementedError) a kernel that the model of a GPU does not follow
    ├── ImplausibleTimeError (RuntimeError)  a measured time that the hardware cannot reach
    ├── CompileError (RuntimeError)          a compiler rejected the source; `log` has its output
    │   └── PtxSyntaxError                   PTX text that does not parse; `line` is the line
    ├── InternalError (RuntimeError)         a bug in gemmlab
    └── EmulationError (RuntimeError)        an error in the emulated kernel
        ├── OutOfBoundsError
        ├── MisalignedAddressError
        ├── UnsupportedInstructionError (NotImplementedError)
        ├── DeadlockError
        │   └── LivelockError                warps spin on memory that no warp will change
        ├── CheckError                       a check reported a race, a missing wait or the like
        └── BudgetError                      the instruction budget is exhausted

Each message states the values and the rule they break. `exit_code` is the exit status of the
command line.
"""

from __future__ import annotations

from dataclasses import dataclass


class GemmlabError(Exception):
    """Base of all of gemmlab's exceptions."""

    exit_code = 2


class InputError(GemmlabError, ValueError):
    """An argument breaks a rule."""


class ShapeError(InputError):
    """Incompatible shapes, or an empty matrix."""


class DTypeError(InputError, TypeError):
    """A value of the wrong type."""


class UnknownNameError(InputError, LookupError):
    """No rung, entry, layout, input family or file has that name."""


class LaunchError(InputError):
    """Grid, block, shared memory or arguments exceed a limit."""


class ArchitectureError(InputError):
    """A kernel requires a GPU architecture other than the one it is compiled for."""


class ArrayError(InputError):
    """An array cannot be used: it is on the wrong device, read-only or without memory."""


class PlacementError(InputError):
    """A product on a mesh cannot have this placement; the message says which it can have."""


class TierError(GemmlabError, NotImplementedError):
    """A precision or an emulator tier, requested by name, cannot run.

    A precision may be unavailable for these operands or on this device.
    """


class StateError(GemmlabError, RuntimeError):
    """An object is used before it was planned, or after it was freed."""


class PredictionError(GemmlabError, NotImplementedError):
    """The model of a GPU does not follow a kernel; the message has the reason."""


class MissingDependencyError(GemmlabError, ImportError):
    """An optional package is missing or broken; the message has the command that installs it."""

    exit_code = 3


class InternalError(GemmlabError, RuntimeError):
    """A bug in gemmlab; the message says where it is and how to work around it."""

    exit_code = 1


class DeviceError(GemmlabError, RuntimeError):
    """No GPU, no driver, or an error from the driver."""

    exit_code = 3


class PeerError(GemmlabError, RuntimeError):
    """Communication with the other processes of a mesh failed: one ended, or does not answer."""

    exit_code = 3


class SandboxError(GemmlabError, RuntimeError):
    """Processes that touch foreign code cannot be confined on this machine."""

    exit_code = 3


class ImplausibleTimeError(GemmlabError, RuntimeError):
    """A measured time below the hardware's minimum for the operations or bytes."""

    exit_code = 1


class CompileError(GemmlabError, RuntimeError):
    """A compiler rejected the source; `log` is its output."""

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
    """A location in a kernel; `source` is `file:line` of the Python or CUDA source."""

    ptx_line: int
    ptx: str
    source: str | None = None

    def __str__(self) -> str:
        at = f"PTX line {self.ptx_line}: {self.ptx}"
        return f"{at} ({self.source})" if self.source else at


@dataclass(frozen=True)
class IllegalAccess:
    """An access that a kernel must not make: the element, and what is wrong with it."""

    place: str  # "y[100]"; "" if unknown
    why: str  # "4 bytes past the end of argument 0 (400 bytes)"
    was_freed: bool = False  # whether it is to memory that the kernel has freed


class EmulationError(GemmlabError, RuntimeError):
    """An error in the emulated kernel.

    `site` is the instruction, `block` the block's index (x, y, z), `thread` the linear thread index
    in the block, `address` the byte address in the instruction's state space, `access` the illegal
    access. Each is None if unknown.
    """

    exit_code = 4

    def __init__(
        self,
        message: str,
        site: Site | None = None,
        block: tuple[int, int, int] | None = None,
        thread: int | None = None,
        address: int | None = None,
        access: IllegalAccess | None = None,
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
        self.access = access

    @property
    def lane(self) -> int | None:
        """The thread's lane in its warp, 0 to 31."""
        return None if self.thread is None else self.thread % 32


class OutOfBoundsError(EmulationError):
    """An access outside every allocation of its state space."""


class MisalignedAddressError(EmulationError):
    """An address that is not a multiple of the access width."""


class UnsupportedInstructionError(EmulationError, NotImplementedError):
    """A PTX instruction that the emulator does not support; none is skipped silently."""


class DeadlockError(EmulationError):
    """Every live thread is waiting and none can proceed."""


class LivelockError(DeadlockError):
    """Warps spin on memory that no warp will change."""


class CheckError(EmulationError):
    """An emulator check failed; `kind` names the finding: "shared race", "missing wait"."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class BudgetError(EmulationError):
    """A thread block exceeded its instruction budget; it may never terminate."""
