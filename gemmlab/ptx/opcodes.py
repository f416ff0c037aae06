"""The properties of PTX opcodes that parsing, translation, counting and checking depend on.

An opcode is the first word of an instruction. OPCODES has a row for each one that is not plain
arithmetic, or counts as floating-point work. An arithmetic instruction writes all of its first
operand, reads the others, and has no other effect. A PTX opcode without a row is arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gemmlab.ptx.modifiers import ABSENT

Access = Literal["load", "store", "atomic"]
Terminator = Literal["branch", "switch", "exit", "trap", "sleep"]


@dataclass(frozen=True)
class Opcode:
    """The properties of one opcode."""

    access: Access | None = None  # to memory, by the thread itself
    counter: str = ""  # name of its memory operation in Nsight Compute's counters, if it has any
    terminator: Terminator | None = None  # how it ends a basic block
    has_result: bool = True  # the first operand is a destination if it is a register
    is_arithmetic: bool = False
    is_boundary: bool = False  # may access any memory, or orders accesses to it
    is_fence: bool = False
    is_exchange: bool = False  # lanes of a warp read each other's operands
    needs_full_warp: bool = False  # all 32 lanes must execute it
    flops: int = 0  # floating-point operations per lane
    product_lanes: int = 0  # lanes that share one matrix product


OPCODES = {
    # Loads, stores, atomic operations and copies
    "ld": Opcode("load", "ld"),
    "ldu": Opcode("load", "ld"),
    "st": Opcode("store", "st", has_result=False),
    "atom": Opcode("atomic", "atom", flops=1),
    "red": Opcode("atomic", "red", flops=1, has_result=False),
    "ldmatrix": Opcode("load", "ldsm", needs_full_warp=True),
    "stmatrix": Opcode("store", "stsm", needs_full_warp=True, has_result=False),
    "cp": Opcode(counter="ldgsts", is_boundary=True, has_result=False),
    "tensormap": Opcode(is_boundary=True),
    "multimem": Opcode(is_boundary=True),
    "prefetch": Opcode(),
    "prefetchu": Opcode(),
    "discard": Opcode(),
    "applypriority": Opcode(),
    "createpolicy": Opcode(),
    # Matrix products
    "mma": Opcode(needs_full_warp=True, product_lanes=32),
    "movmatrix": Opcode(needs_full_warp=True),
    # Loads and stores element by element, which corresponds to no counter of hardware.
    "wmma": Opcode(counter="wmma", is_boundary=True, needs_full_warp=True, product_lanes=32),
    "wgmma": Opcode(is_boundary=True, needs_full_warp=True, product_lanes=128),
    # Synchronization
    "bar": Opcode(is_boundary=True, has_result=False),
    "barrier": Opcode(is_boundary=True, has_result=False),
    "mbarrier": Opcode(is_boundary=True),
    "fence": Opcode(is_boundary=True, is_fence=True),
    "membar": Opcode(is_boundary=True, is_fence=True),
    "griddepcontrol": Opcode(is_boundary=True),
    # Collectives of a warp
    "activemask": Opcode(),
    "elect": Opcode(),
    "match": Opcode(is_exchange=True),
    "redux": Opcode(is_exchange=True),
    "shfl": Opcode(is_exchange=True),
    "vote": Opcode(is_exchange=True),
    # Control
    "bra": Opcode(terminator="branch", has_result=False),
    "brx": Opcode(terminator="switch", has_result=False),
    "call": Opcode(is_boundary=True),
    "exit": Opcode(terminator="exit"),
    "ret": Opcode(terminator="exit"),
    "trap": Opcode(terminator="trap"),
    "nanosleep": Opcode(terminator="sleep", has_result=False),
    "pmevent": Opcode(),
    "setmaxnreg": Opcode(needs_full_warp=True),
    # Arithmetic that counts as floating-point work
    "add": Opcode(is_arithmetic=True, flops=1),
    "sub": Opcode(is_arithmetic=True, flops=1),
    "mul": Opcode(is_arithmetic=True, flops=1),
    "fma": Opcode(is_arithmetic=True, flops=2),
}


def is_arithmetic(opcode: str) -> bool:
    """Whether an instruction only writes a result that depends on its operands."""
    if opcode in OPCODES:
        return OPCODES[opcode].is_arithmetic
    return opcode not in ABSENT


def opcodes(holds: Callable[[Opcode], object]) -> frozenset[str]:
    """The opcodes for whose properties `holds` returns a true value."""
    return frozenset(name for name, opcode in OPCODES.items() if holds(opcode))


ACCESSES: dict[str, Access] = {name: o.access for name, o in OPCODES.items() if o.access}
LOADS = opcodes(lambda o: o.access == "load")
STORES = opcodes(lambda o: o.access == "store")
ATOMICS = opcodes(lambda o: o.access == "atomic")
# Accesses in which each lane has its own address and data.
SCALAR_ACCESSES = opcodes(lambda o: o.access and not o.needs_full_warp)
SCALAR_LOADS = LOADS & SCALAR_ACCESSES
COUNTERS = {name: o.counter for name, o in OPCODES.items() if o.counter}
BOUNDARIES = opcodes(lambda o: o.is_boundary)
FENCES = opcodes(lambda o: o.is_fence)
EXCHANGES = opcodes(lambda o: o.is_exchange)
FULL_WARP = opcodes(lambda o: o.needs_full_warp)
WITHOUT_RESULT = opcodes(lambda o: not o.has_result)
FETCHES = ATOMICS - WITHOUT_RESULT  # return the old value
TERMINATORS: dict[str, Terminator] = {n: o.terminator for n, o in OPCODES.items() if o.terminator}
JUMPS = opcodes(lambda o: o.terminator in ("branch", "switch"))  # have labels as operands
# Control does not continue after one of them, unless it has a guard.
ENDS = JUMPS | opcodes(lambda o: o.terminator in ("exit", "trap"))
FLOPS = {name: o.flops for name, o in OPCODES.items() if o.flops}
