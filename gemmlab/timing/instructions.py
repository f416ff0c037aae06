"""Machine instructions as the multiprocessor sees them: the unit that executes each, its control
bits, and the registers that it reads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from gemmlab.cubin.code import Code, Instruction
from gemmlab.cubin.control import decode
from gemmlab.cubin.lint import reads
from gemmlab.emulator.arithmetic.lanes import WARP

# Units of a partition of the multiprocessor.
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
    PRODUCT,
    AWAIT_PRODUCTS,
    SIGNAL,
    AWAIT_SIGNAL,
    BULK_LOAD,
    BULK_STORE,
) = range(22)

_ROOTS = {
    FMA: "FFMA FMUL FADD FFMA2 FADD2 FMUL2 FFMA32I FMUL32I FADD32I",
    FMA_HEAVY: "IMAD IMUL IDP IDP4A",
    FP16: "HFMA2 HADD2 HMUL2 HSET2 HSETP2 HFMA2_MMA HMNMX2",
    FP64: "DFMA DADD DMUL DSETP",
    XU: "MUFU F2F F2I I2F FRND POPC FLO BREV I2FP F2IP",
    TENSOR: "HMMA IMMA DMMA BMMA QMMA HGMMA IGMMA QGMMA BGMMA",
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
    SPECIAL: "S2R S2UR B2R R2UR VOTE MATCH REDUX USETMAXREG UTMACCTL SYNCS FENCE",
    BARRIER: "BAR UCGABAR_WAIT",
    COMMIT: "LDGDEPBAR ARRIVES UTMACMDFLUSH",
    AWAIT: "DEPBAR",
    BRANCH: "BRA JMP BRX JMX RET CALL BSYNC WARPSYNC",
    EXIT: "EXIT",
    PRODUCT: "HGMMA IGMMA QGMMA BGMMA",
    BULK_LOAD: "UTMALDG UBLKCP.S",
    BULK_STORE: "UTMASTG UTMAREDG UBLKCP.G UBLKRED",
    SIGNAL: "SYNCS.ARRIVE",
    AWAIT_SIGNAL: "SYNCS.PHASECHK",
    AWAIT_PRODUCTS: "WARPGROUP.DEPBAR",
}
_KIND = {name: kind for kind, names in _KINDS.items() for name in names.split()}
BULK = frozenset({BULK_LOAD, BULK_STORE})
UNKNOWN = frozenset({"UTMAPF", "UBLKPF", "TEX", "TLD", "TLD4", "SULD", "SUST", "SURED"})
MATRICES = frozenset({"LDSM", "STSM"})  # eight rows of 16 bytes take a wavefront
# Memory instructions: of shared memory and between lanes, and of other memory.
ON_CHIP = frozenset({SHARED_LOAD, SHARED_STORE, SHARED_ATOMIC, SHUFFLE})
FAR = frozenset({GLOBAL_LOAD, GLOBAL_STORE, COPY, ATOMIC})
QUEUED = ON_CHIP | FAR
_AWAITED = re.compile(r"(?:SB|gsb)\d, 0x([0-9a-f]+)")
_GROUP_SHAPE = re.compile(r"\.64x(\d+)x")
_BARRIER = re.compile(r"(\w+)(?:, 0x([0-9a-f]+))?$")
_WARP_SHAPE = re.compile(r"MMA\.(?:16|8)8(\d+)")
_BYTES = {"HMMA": 2, "IMMA": 1, "QMMA": 1, "DMMA": 8}  # of an operand, but of TF32: 4


@dataclass(slots=True)
class Op:
    """A machine instruction, prepared for the simulation.

    waits: scoreboards that must be free before issue. pending: of AWAIT and AWAIT_PRODUCTS, how
    many groups may still be in flight. work: of the tensor cores: cycles of a warpgroup's product,
    or multiples of 32 bytes of k of a warp's. commits: whether a PRODUCT ends a group. ahead:
    cycles by which a PRODUCT may issue before the tensor cores are free. barrier: of a BARRIER, its
    name; members: warps that it needs, 0 for those of the block.
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
    work: float = 0.0
    commits: bool = False
    ahead: float = 0.0
    barrier: str = ""
    members: int = 0


def prepare(code: Code) -> list[list[Op]]:
    """Prepare the basic blocks of a kernel, whose instructions have their bits."""
    return [_block(code, i) for i in range(len(code.blocks))]


def _block(code: Code, number: int) -> list[Op]:
    block = code.blocks[number]
    body = code.inside(block)
    cache: dict[tuple[int, int], int] = {}
    if any(edge.target == number for edge in block.edges):  # it follows itself
        list(reads(body, cache))
    ops = [_op(one, _banks(read)) for one, (read, _) in zip(body, reads(body, cache), strict=True)]
    for before, op in pairwise(ops):
        if before.code.root == "NANOSLEEP" and op.kind == AWAIT_SIGNAL:
            op.kind = SPECIAL  # looks again at what the warp has waited for
    return ops


def _banks(registers: set[int]) -> tuple[int, int]:
    odd = sum(r % 2 for r in registers)
    return len(registers) - odd, odd


def _op(one: Instruction, read: tuple[int, int]) -> Op:
    control, root = decode(one.word), one.root
    words = one.opcode.split(".")
    kind = _KIND.get(".".join(words[:2]), _KIND.get(root, PLAIN))
    awaits = kind in (AWAIT, AWAIT_PRODUCTS)
    awaited = _AWAITED.search(one.operands) if awaits else None
    work = _work(one, kind)
    named = _BARRIER.match(one.operands) if kind == BARRIER else None
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
        int(awaited[1], 16) if awaited else 0,
        work,
        kind == PRODUCT and "gsb" in one.operands,
        work if kind == PRODUCT else 0.0,
        named[1] if named else "",
        int(named[2], 16) // WARP if named and named[2] else 0,
    )


def _work(one: Instruction, kind: int) -> float:
    """Return `Op.work`.

    A warpgroup multiplies 64 rows by N columns, of 32 bytes of k, in N/2 cycles. It reads A, unless
    that is in registers, and B from shared memory, 128 bytes per cycle.
    """
    if kind == PRODUCT:
        shape = _GROUP_SHAPE.search(one.opcode)
        columns = int(shape[1]) if shape else 256
        rows = 64 if one.operands.split(",")[1].strip().startswith("gdesc") else 0
        return max(columns / 2, (rows + columns) / 4)
    if _PIPE.get(one.root) == TENSOR:
        shape, size = _WARP_SHAPE.search(one.opcode), _BYTES.get(one.root, 2)
        deep = int(shape[1]) if shape else 16
        return deep * (4 if "TF32" in one.opcode else size) / 32
    return 0.0
