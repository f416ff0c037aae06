"""The deadlock report: which threads wait, where, and for what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, NoReturn, Protocol

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.launch.threads import Threads
from gemmlab.errors import DeadlockError, Site

MAX_ENTRIES = 4  # entries in a report


class Blocked(NamedTuple):
    """Threads of one block that wait together."""

    instruction: int
    lanes: np.ndarray  # (warps, 32) bool
    what: str


def place(site: Site) -> str:
    """The source line, if known, and the PTX line."""
    source = site.source.rsplit("/", 1)[-1] if site.source else ""
    return f"{source}, PTX line {site.ptx_line}".lstrip(", ")


class Waits(Protocol):
    """A part of the machine at which threads wait."""

    def blocked(self, number: int) -> Iterator[Blocked]:
        """The waiting threads of one block of the chunk."""


def deadlock(threads: Threads, waits: Sequence[Waits]) -> NoReturn:
    """Raise DeadlockError for the first block that has waiting threads."""
    blocks = np.flatnonzero(threads.live.any(axis=(1, 2)))
    number = int(blocks[0])
    for observer in threads.observers:
        observer.deadlocked(number)
    code = threads.launch.program.function.instructions
    found = [w for part in waits for w in part.blocked(number)]
    lines = [f"{w.what}, {place(code[w.instruction].site)}" for w in found[:MAX_ENTRIES]]
    if len(found) > MAX_ENTRIES:
        lines.append(f"and {len(found) - MAX_ENTRIES} more")
    if len(blocks) > 1:
        lines.append(f"{len(blocks) - 1} more blocks also wait")
    index = threads.block_index(number)
    message = f"deadlock: no thread can run; in block {index} " + "; ".join(lines)
    warp, lane = (int(x) for x in np.argwhere(found[0].lanes)[0])
    raise DeadlockError(message, code[found[0].instruction].site, index, warp * WARP + lane)
