"""Counters of the tensor cores and of the copy engine, under Nsight Compute's names.

Instructions count once per warp. The byte counters of the copy engine count the 32-byte sectors
that the rows of a box touch, including those outside the tensor for loads. Multicast bytes count
once per receiving block.
"""

from __future__ import annotations

from collections import Counter

from gemmlab.emulator.counters.tally import Tally
from gemmlab.emulator.program import Program
from gemmlab.ptx.ir import Instruction

TENSOR = "smsp__inst_executed_pipe_tensor"
INSTRUCTIONS = {
    "gmma": (f"{TENSOR}.sum", f"{TENSOR}_op_gmma.sum"),
    "hmma": (f"{TENSOR}_op_hmma.sum",),
    "imma": (f"{TENSOR}_op_imma.sum",),
    "tma_ld": ("smsp__inst_executed_op_tma_ld.sum",),
    "tma_st": ("smsp__inst_executed_op_tma_st.sum",),
    "tma_red": ("smsp__sass_inst_executed_op_tma_red.sum",),
}
BYTES = {
    "tma_ld": "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum",
    "tma_st": "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum",
    "tma_red": "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_red.sum",
}


def pipes_of(i: Instruction) -> tuple[str, ...]:
    """The keys of INSTRUCTIONS under which an instruction counts."""
    if i.opcode[:2] == ("wgmma", "mma_async"):
        return "gmma", "imma" if "s32" in i.opcode else "hmma"
    is_bulk = i.opcode[:3] == ("cp", "async", "bulk") and i.opcode[3] != "prefetch"
    if is_bulk and "global" in i.opcode:
        return ("tma_st",) if "bulk_group" in i.opcode else ("tma_ld",)
    if i.opcode[:4] == ("cp", "reduce", "async", "bulk") and "global" in i.opcode:
        return "tma_st", "tma_red"
    return ()


def counters(program: Program, tally: Tally) -> dict[str, int]:
    """Counter name -> value for one launch."""
    executed: Counter[str] = Counter()
    code = program.function.instructions
    for block, warps in zip(program.blocks, tally.warps.tolist(), strict=True):
        for i in code[block.first : block.last]:
            for pipe in pipes_of(i):
                executed[pipe] += warps
    result = {name: executed[pipe] for pipe, names in INSTRUCTIONS.items() for name in names}
    return result | {name: tally.copied[kind] for kind, name in BYTES.items()}
