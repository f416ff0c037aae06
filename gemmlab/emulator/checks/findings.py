"""Findings of the checks: one per pair of source lines, with the first affected threads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gemmlab.emulator.checks import advice
from gemmlab.emulator.checks.guesses import guesses
from gemmlab.emulator.launch.launch import Dim3
from gemmlab.errors import (
    BudgetError,
    DeadlockError,
    EmulationError,
    LivelockError,
    MisalignedAddressError,
    OutOfBoundsError,
    Site,
)
from gemmlab.ptx.ir import Instruction

CHECKS: dict[str, tuple[str, ...]] = {
    "uninitialized": ("uninitialized read",),
    "races": ("shared race",),
    "global-races": ("global race",),
    "barriers": ("divergent barrier",),
    "warps": ("warp participation",),
    "copies": ("missing wait", "missing fence"),
    "clusters": ("cluster lifetime",),
    "bounds": ("beyond variable",),
    "outputs": ("unwritten output",),
    "order": ("order dependent",),
}
"""The checks, and the kinds of findings of each. Errors that end a launch are always reported."""
ERRORS: tuple[tuple[type[EmulationError], str], ...] = (
    (OutOfBoundsError, "out of bounds"),
    (MisalignedAddressError, "misaligned"),
    (LivelockError, "livelock"),
    (DeadlockError, "deadlock"),
    (BudgetError, "never ends"),
    (EmulationError, "error"),
)
MAX_FINDINGS = 100  # findings per launch
SHOWN = 4  # threads and addresses per finding


@dataclass(frozen=True)
class Finding:
    """A bug in a kernel, which a check found.

    Examples:
        >>> kernel = gemmlab.load(
        ...     "__global__ void swap(float *y) { __shared__ float s[64]; int i = threadIdx.x;"
        ...     "s[i] = i; y[i] = s[i ^ 32]; }"  # no __syncthreads() between the two
        ... )
        >>> y = np.zeros(64, np.float32)
        >>> run = gemmlab.emulate(kernel, grid=1, block=64, args=[y], check="races")
        >>> run.findings[0].kind
        'shared race'
    """

    kind: str  # as in `CHECKS`, or the error that ended the launch: "out of bounds", "deadlock"
    message: str
    site: Site  # the instruction that revealed the bug
    other: Site | None = None  # the earlier of two conflicting accesses
    block: Dim3 | None = None  # index in x, y, z
    threads: tuple[int, ...] = ()  # linear indices in the block, at most 4
    addresses: tuple[int, ...] = ()  # bytes in the state space, at most 4

    @property
    def stops(self) -> bool:
        """Whether the finding is an error that ended the launch."""
        return any(self.kind == kind for _, kind in ERRORS)

    def __str__(self) -> str:
        where = []
        if self.block is not None:
            where.append(f"block {self.block}")
        if self.threads:
            where.append(f"thread {', '.join(map(str, self.threads))}")
        if self.addresses:
            where.append(f"address {', '.join(map(hex, self.addresses))}")
        lines = ["; ".join([f"{self.kind}: {self.message}", *where]), f"  at {self.site}"]
        if self.other is not None:
            lines.append(f"  and {self.other}")
        return "\n".join(lines)


class Findings:
    """The findings of one launch, over all scheduling orders."""

    def __init__(self, code: Sequence[Instruction], kinds: frozenset[str]) -> None:
        self.code, self.kinds = code, kinds
        self.found: dict[tuple[str, object, object], Finding] = {}
        self.last: Finding | None = None  # the error that ended the launch
        self.may_meet = guesses(code)
        self.has_races = False  # whether any accesses raced, reported or not

    def wants(self, kind: str, index: int, other: int | None = None) -> bool:
        """Whether a finding would be new. Findings are compared by source line, because an unrolled
        loop has many instructions per line."""
        if other is not None and (index, other) in self.may_meet:
            return False
        is_new = self._key(kind, index, other) not in self.found
        return kind in self.kinds and is_new and len(self.found) < MAX_FINDINGS

    def _key(self, kind: str, index: int, other: int | None) -> tuple[str, object, object]:
        first, second = (None if k is None else self.code[k].source or k for k in (index, other))
        return kind, first, second

    def add(
        self,
        kind: str,
        message: str,
        index: int,
        other: int | None = None,
        block: Dim3 | None = None,
        threads: Iterable[int] = (),
        addresses: Iterable[int] = (),
    ) -> None:
        if self.wants(kind, index, other):
            earlier = None if other is None else self.code[other].site
            some, where = tuple(threads)[:SHOWN], tuple(dict.fromkeys(addresses))[:SHOWN]
            site = self.code[index].site
            found = Finding(kind, message, site, earlier, block, some, where)
            self.found[self._key(kind, index, other)] = found

    def stop(self, error: EmulationError) -> None:
        """Record the error that ended the launch."""
        if self.last is None and error.site is not None:
            kind = next(kind for cls, kind in ERRORS if isinstance(error, cls))
            threads = () if error.thread is None else (error.thread,)
            addresses = () if not error.address else (error.address,)
            site, message = error.site, error.message.removeprefix(f"{kind}: ")
            i = next((i for i in self.code if i.site == site), None)
            if i is not None and error.access is not None and error.thread is not None:
                is_aligned = not isinstance(error, MisalignedAddressError)
                message = advice.illegal(error.thread, i, error.access, is_aligned)
            self.last = Finding(kind, message, site, None, error.block, threads, addresses)

    def sorted(self) -> tuple[Finding, ...]:
        """Findings ordered by kind and line, followed by the error that ended the launch."""
        kinds = [kind for kinds in CHECKS.values() for kind in kinds]
        found = sorted(
            self.found.values(),
            key=lambda f: (
                kinds.index(f.kind),
                f.site.ptx_line,
                f.other.ptx_line if f.other else 0,
            ),
        )
        return (*found, self.last) if self.last else tuple(found)
