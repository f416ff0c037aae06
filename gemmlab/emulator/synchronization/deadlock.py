"""The deadlock report: which threads wait, where, and for what."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.errors import DeadlockError, Site

if TYPE_CHECKING:
    from gemmlab.emulator.execution.machine import Machine

MAX_ENTRIES = 4  # entries in a report


class Stuck(NamedTuple):
    """Threads of one block that wait together."""

    instruction: int
    lanes: np.ndarray  # (warps, 32) bool
    what: str


def place(site: Site) -> str:
    """The source line, if known, and the PTX line."""
    source = site.source.rsplit("/", 1)[-1] if site.source else ""
    return f"{source}, PTX line {site.ptx_line}".lstrip(", ")


def deadlock(machine: Machine) -> NoReturn:
    """Raise DeadlockError for the first block that has waiting threads."""
    blocks = np.flatnonzero(machine.live.any(axis=(1, 2)))
    number = int(blocks[0])
    for observer in machine.observers:
        observer.deadlocked(number)
    code = machine.launch.program.function.instructions
    waits = (machine.warps, machine.barriers, machine.mbarriers, machine.clusters)
    found = [w for part in waits for w in part.stuck(number)]
    lines = [f"{w.what}, {place(code[w.instruction].site)}" for w in found[:MAX_ENTRIES]]
    if len(found) > MAX_ENTRIES:
        lines.append(f"and {len(found) - MAX_ENTRIES} more")
    if len(blocks) > 1:
        lines.append(f"{len(blocks) - 1} more blocks also wait")
    index = machine.block_index(number)
    message = f"deadlock: no thread can run; in block {index} " + "; ".join(lines)
    warp, lane = (int(x) for x in np.argwhere(found[0].lanes)[0])
    raise DeadlockError(message, code[found[0].instruction].site, index, warp * WARP + lane)
