"""Machine instructions as the multiprocessor sees them: the unit that executes each, its control
bits, and the registers that it reads."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gemmlab.cubin.code import Code, Instruction
from gemmlab.cubin.control import decode
from gemmlab.cubin.lint import reads

# Units. The first four have one instance per partition of the multiprocessor.
FMA, FMA_HEAVY, ALU, FP16, FP64, UNIFORM, XU, TENSOR = range(8)
PIPES = ("fma", "fma heavy", "alu", "fp16", "fp64", "uniform", "xu", "tensor")

# Kinds of instructions that are more than arithmetic.
(
    PLAIN,
    SHARED_LOAD,
    SHARED_STORE,
    GLOBAL_LOAD,
    GLOBAL_STORE,
    COPY,
    ATOMIC,
    SHARED_ATOMIC,
    SHUFFLE,
    CONSTANT,
    SPECIAL,
    BARRIER,
    COMMIT,
    AWAIT,
    BRANCH,
    EXIT,
    ASYNC,
) = range(17)

_ROOTS = {
    FMA: "FFMA FMUL FADD FFMA2 FADD2 FMUL2 FFMA32I FMUL32I FADD32I",
    FMA_HEAVY: "IMAD IMUL IDP IDP4A",
    FP16: "HFMA2 HADD2 HMUL2 HSET2 HSETP2 HFMA2_MMA HMNMX2",
    FP64: "DFMA DADD DMUL DSETP",
    XU: "MUFU F2F F2I I2F FRND POPC FLO BREV I2FP F2IP",
    TENSOR: "HMMA IMMA DMMA BMMA QMMA",
}
_PIPE = {root: pipe for pipe, roots in _ROOTS.items() for root in roots.split()}
_KINDS = {
    SHARED_LOAD: "LDS LDSM",
    SHARED_STORE: "STS STSM",
    GLOBAL_LOAD: "LDG LD LDL TEX SULD",
    GLOBAL_STORE: "STG ST STL SUST",
    COPY: "LDGSTS",
    ATOMIC: "ATOM ATOMG RED REDG",
    SHARED_ATOMIC: "ATOMS",
    SHUFFLE: "SHFL",
    CONSTANT: "LDC ULDC",
    SPECIAL: "S2R S2UR B2R R2UR VOTE MATCH REDUX",
    BARRIER: "BAR",
    COMMIT: "LDGDEPBAR ARRIVES",
    AWAIT: "DEPBAR",
    BRANCH: "BRA JMP BRX JMX RET CALL BSYNC WARPSYNC",
    EXIT: "EXIT",
    ASYNC: "HGMMA IGMMA QGMMA BGMMA WARPGROUP UTMALDG UTMASTG UBLKCP SYNCS UTMACMDFLUSH",
}
_KIND = {root: kind for kind, roots in _KINDS.items() for root in roots.split()}
# Memory instructions: of shared memory and between lanes, and of other memory.
ON_CHIP = frozenset({SHARED_LOAD, SHARED_STORE, SHARED_ATOMIC, SHUFFLE})
FAR = frozenset({GLOBAL_LOAD, GLOBAL_STORE, COPY, ATOMIC})
QUEUED = ON_CHIP | FAR
_AWAITED = re.compile(r"SB(\d), 0x([0-9a-f]+)")


@dataclass(slots=True)
class Op:
    """A machine instruction, prepared for the simulation.

    waits: scoreboards that must be free before issue. pending: of AWAIT, how many groups of
    asynchronous copies may still be in flight.
    """

    code: Instruction
    kind: int
    pipe: int
    stall: int
    yields: bool
    write_barrier: int  # -1: none
    read_barrier: int
    waits: tuple[int, ...]
    reads: tuple[int, int]  # registers read from each bank, not found in the reuse cache
    pending: int = 0


def prepare(code: Code) -> list[list[Op]]:
    """Prepare the basic blocks of a kernel, whose instructions have their bits."""
    return [_block(code, i) for i in range(len(code.blocks))]


def _block(code: Code, number: int) -> list[Op]:
    block = code.blocks[number]
    body = code.inside(block)
    cache: dict[tuple[int, int], int] = {}
    if any(edge.target == number for edge in block.edges):  # it follows itself
        list(reads(body, cache))
    return [_op(one, _banks(read)) for one, (read, _) in zip(body, reads(body, cache), strict=True)]


def _banks(registers: set[int]) -> tuple[int, int]:
    odd = sum(r % 2 for r in registers)
    return len(registers) - odd, odd


def _op(one: Instruction, read: tuple[int, int]) -> Op:
    control, root = decode(one.word), one.root
    kind = _KIND.get(root, PLAIN)
    awaited = _AWAITED.search(one.operands) if kind == AWAIT else None
    pipe = UNIFORM if root.startswith("U") else _PIPE.get(root, ALU)
    return Op(
        one,
        kind,
        pipe,
        control.stall,
        control.yields,
        -1 if control.write_barrier is None else control.write_barrier,
        -1 if control.read_barrier is None else control.read_barrier,
        control.waits,
        read,
        int(awaited[2], 16) if awaited else 0,
    )
