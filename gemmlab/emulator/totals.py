"""From tallies to counters with Nsight Compute's names: of a launch, or of each line of text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from gemmlab.emulator.counters import SiteCounts
from gemmlab.emulator.ir import Instruction
from gemmlab.emulator.translate import Program

if TYPE_CHECKING:
    from gemmlab.emulator.machine import Tally

Key = TypeVar("Key", bound=Hashable)

OPERATIONS = {"global": ("ld", "st", "ldgsts", "atom", "red"), "local": ("ld", "st")}
OPERATIONS["shared"] = ("ld", "st", "ldgsts", "atom")
# PTX opcodes that the hardware calls otherwise.
HARDWARE_NAMES = {"ldu": "ld", "cp": "ldgsts"}


def counters(program: Program, tally: Tally) -> dict[str, int]:
    """Totals of a launch, by name."""
    return _of(program, tally, range(len(program.function.instructions)), tally.sites)


def by(
    program: Program, tally: Tally, key: Callable[[Instruction], Key]
) -> dict[Key, dict[str, int]]:
    """Totals of the instructions that have the same key, in the order of the program."""
    code = program.function.instructions
    groups: dict[Key, list[int]] = {}
    for index, instruction in enumerate(code):
        groups.setdefault(key(instruction), []).append(index)
    sites: dict[Key, dict[tuple[int, str], SiteCounts]] = defaultdict(dict)
    for (index, space), counts in tally.sites.items():
        sites[key(code[index])][index, space] = counts
    return {k: _of(program, tally, group, sites[k]) for k, group in groups.items()}


def _of(
    program: Program,
    tally: Tally,
    indices: Iterable[int],
    sites: dict[tuple[int, str], SiteCounts],
) -> dict[str, int]:
    code = program.function.instructions
    among = np.fromiter(indices, np.int64)
    block = _blocks(program)[among]
    thread_inst = int(tally.lanes[block].sum())
    by_kind = {(space, op): SiteCounts() for space, ops in OPERATIONS.items() for op in ops}
    for (index, space), counts in sites.items():
        op = code[index].root
        op = HARDWARE_NAMES.get(op, op)
        if (space, op) == ("shared", "red"):  # an atom whose result nobody reads
            op = "atom"
        by_kind[space, op].add(counts)
    result = {
        "ptx_inst_executed.sum": int(tally.warps[block].sum()),
        "ptx_thread_inst_executed.sum": thread_inst,
        "ptx_thread_inst_executed_pred_on.sum": thread_inst - int(tally.guarded_off[among].sum()),
        "ptx_branch_divergent.sum": int(tally.divergent[among].sum()),
        "smsp__thread_inst_executed.sum": thread_inst,
    }
    for (space, op), counts in by_kind.items():
        result[f"smsp__inst_executed_op_{space}_{op}.sum"] = counts.requests
        if op in ("atom", "red"):
            continue
        if space == "shared":
            waves = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op"
            result[f"{waves}_{op}.sum"] = counts.wavefronts
            conflicts = counts.wavefronts - counts.ideal_wavefronts
            result[f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum"] = conflicts
        else:
            result[f"l1tex__t_requests_pipe_lsu_mem_{space}_op_{op}.sum"] = counts.requests
            result[f"l1tex__t_sectors_pipe_lsu_mem_{space}_op_{op}.sum"] = counts.sectors
    loads, stores = by_kind["shared", "ld"], by_kind["shared", "st"]
    result["l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"] = loads.wavefronts + stores.wavefronts
    ideal = loads.ideal_wavefronts + stores.ideal_wavefronts
    result["memory_l1_wavefronts_shared_ideal"] = ideal
    result["derived__memory_l1_wavefronts_shared_excessive"] = (
        loads.wavefronts + stores.wavefronts - ideal
    )
    return result


def _blocks(program: Program) -> np.ndarray:
    """The basic block of each instruction."""
    owner = np.zeros(len(program.function.instructions), np.int64)
    for number, block in enumerate(program.blocks):
        owner[block.first : block.last] = number
    return owner
