"""Turns tallies into counters under Nsight Compute's names, per launch or per source line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

import numpy as np

from gemmlab.emulator.counters.rules import SiteCounts, words_per_lane
from gemmlab.emulator.counters.tally import Tally
from gemmlab.emulator.program import Program
from gemmlab.ptx.ir import Instruction, registers
from gemmlab.ptx.opcodes import COUNTERS

Key = TypeVar("Key", bound=Hashable)

INSTRUCTIONS = (
    *(("global", op) for op in ("ld", "st", "atom", "red")),
    *((space, op) for space in ("shared", "local") for op in ("ld", "st")),
    ("shared", "atom"),
)
LDGSTS = ("ldgsts_cache_access", "ldgsts_cache_bypass")
# Operations that L1 counts together: cp.async counts as global loads, ldmatrix as shared loads.
REQUESTS = {
    ("global", "ld"): ("ld", *LDGSTS),
    ("global", "st"): ("st",),
    ("global", "atom"): ("atom",),
    ("global", "red"): ("red",),
    ("global", "ldgsts_cache_access"): LDGSTS[:1],
    ("local", "ld"): ("ld",),
    ("local", "st"): ("st",),
}
WAVEFRONTS = {"ld": ("ld", "ldsm"), "st": ("st", "stsm"), "atom": ("atom",), "ldgsts": LDGSTS}


# Atomic operations that have a variant without a result (red).
REDUCTIONS = {"add", "min", "max", "and", "or", "xor", "inc", "dec"}


def operation(instruction: Instruction, space: str, read: frozenset[str]) -> str:
    """The hardware operation of a memory instruction. read: all registers that the kernel reads."""
    name = COUNTERS[instruction.root]
    match name:
        case "ldgsts":
            return LDGSTS[instruction.modifiers[1] == "cg"]
        case "red" if space == "shared":  # executed as an atom with an unused result
            return "atom"
        case "atom" if space == "global" and REDUCTIONS.intersection(instruction.modifiers):
            return "atom" if read.intersection(registers(instruction.operands[:1])) else "red"
    return name


def counters(program: Program, tally: Tally) -> dict[str, int]:
    """Counter name -> value for one launch."""
    return _of(program, tally, range(len(program.function.instructions)), tally.sites)


def by(
    program: Program, tally: Tally, key: Callable[[Instruction], Key]
) -> dict[Key, dict[str, int]]:
    """Counters of each group of instructions with the same key, in program order."""
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
    block = program.block_of[among]
    thread_inst = int(tally.lanes[block].sum())
    by_kind = defaultdict[tuple[str, str], SiteCounts](SiteCounts)
    local = defaultdict[str, int](int)  # operation -> requests; one per word, see LocalSpace
    read = program.registers_read
    for (index, space), counts in sites.items():
        kind = operation(code[index], space, read)
        by_kind[space, kind].add(counts)
        if space == "local":
            local[kind] += counts.requests * int(words_per_lane(program.accesses[index].width))
    result = {
        "ptx_inst_executed.sum": int(tally.warps[block].sum()),
        "ptx_thread_inst_executed.sum": thread_inst,
        "ptx_thread_inst_executed_pred_on.sum": thread_inst - int(tally.guarded_off[among].sum()),
        "ptx_branch_divergent.sum": int(tally.divergent[among].sum()),
    }
    for space, op in INSTRUCTIONS:
        result[f"smsp__inst_executed_op_{space}_{op}.sum"] = by_kind[space, op].requests
    ldgsts = sum(by_kind["shared", op].requests for op in LDGSTS)
    result["smsp__inst_executed_op_ldgsts.sum"] = ldgsts
    result["smsp__inst_executed_op_ldsm.sum"] = by_kind["shared", "ldsm"].requests
    result["smsp__inst_executed_op_shared_stsm.sum"] = by_kind["shared", "stsm"].requests
    for (space, name), ops in REQUESTS.items():
        for what in ("requests", "sectors"):
            total = sum(getattr(by_kind[space, op], what) for op in ops)
            result[f"l1tex__t_{what}_pipe_lsu_mem_{space}_op_{name}.sum"] = total
    for name, requests in local.items():
        result[f"l1tex__t_requests_pipe_lsu_mem_local_op_{name}.sum"] = requests
    waves = ideal = 0
    for name, ops in WAVEFRONTS.items():
        own = sum(by_kind["shared", op].wavefronts for op in ops)
        own_ideal = sum(by_kind["shared", op].ideal_wavefronts for op in ops)
        if name != "ldgsts":  # hardware lacks this counter
            result[f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{name}.sum"] = own
        conflicts = f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{name}.sum"
        result[conflicts] = own - own_ideal
        waves, ideal = waves + own, ideal + own_ideal
    result["l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"] = waves
    result["memory_l1_wavefronts_shared_ideal"] = ideal
    result["derived__memory_l1_wavefronts_shared_excessive"] = waves - ideal
    return result
