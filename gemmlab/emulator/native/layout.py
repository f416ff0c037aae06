"""Memory layouts that native code shares with Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP

REGISTER_BYTES = 8 * WARP  # of a register in memory
# Return codes of warp code and the scheduler.
DONE, PAUSED, RUNNABLE, BARRIER, FAULT, NEEDS_SLOW = range(6)
# Faults: an access; the end of a basic block; an unsupported instruction; a deadlock; an exceeded
# instruction budget; lanes at a collective that wait for lanes elsewhere; a misaligned matrix
# address or stride; wgmma by part of a warp or outside shared memory; an invalid mbarrier
# operation.
ACCESS_FAULT, END_FAULT, UNSUPPORTED_FAULT, DEADLOCK, OVER_BUDGET, UNMET = range(1, 7)
MATRIX_FAULT, WGMMA_FAULT, MBARRIER_FAULT = range(7, 10)
# States of a warp: converged, with uniform registers as scalars; diverged, with uniform registers
# still scalars; diverged, with every register a vector.
CONVERGED, DIVERGED, BROADCAST = range(3)
FUEL = 1 << 18  # steps after which native code returns to Python to check for interrupts
SPIN_FUEL = FUEL >> 6  # fuel that one iteration of a spin loop costs
FALLBACK_FUEL = FUEL >> 10  # fuel of an instruction that the NumPy tier executes: it takes as long
REDUCTIONS = {"popc": 1, "and": 2, "or": 3}  # numbers of the operations of bar.red
UNEVEN = -1  # span of a pattern without a constant stride
# A shape packs the facts of an access instruction into one integer. From the lowest byte: its
# width, the size and number of its elements, and its flavour, which selects a cost in a record. The
# upper half is the instruction's index.
WIDTH, SIZE, COUNT, FLAVOUR, INSTRUCTION = 0, 8, 16, 24, 32
LOADS, ATOMIC = 4, 32  # bits of a flavour
NUM_FUNCTIONS = 64  # capacity of the table of runtime functions
NUM_REGISTERS = 32  # maximum in a matrix product
# Functions that native code computes with NumPy's inner loops.
LOOPS = ("exp2", "log2", "sin", "cos", "tanh")


def align(offset: int, step: int) -> int:
    return -(-offset // step) * step


def view(memory: np.ndarray, offset: int, dtype: Any = np.int64, count: int = 1) -> np.ndarray:
    """View bytes of a struct as an array."""
    return memory[offset : offset + count * np.dtype(dtype).itemsize].view(dtype)


class Layout:
    """Byte offsets of named fields. A field is aligned to the largest power of two that divides its
    size, up to 64."""

    def __init__(self, **sizes: int) -> None:
        self.offsets: dict[str, int] = {}
        end = 0
        for name, size in sizes.items():
            alignment = min(size & -size, 64)
            end = align(end, alignment)
            self.offsets[name] = end
            end += size
        self.size = align(end, 64)

    def __getitem__(self, name: str) -> int:
        return self.offsets[name]


# One per host thread. Pointers are marked as such.
CORE = Layout(
    fuel=8,  # steps until native code returns to Python
    quantum=8,  # steps until the next warp runs
    budget=8,  # instructions that a warp may execute
    next_block=8,  # pointer: linear index of the next unstarted block
    num_blocks=8,
    block=8,  # linear index, −1 between blocks
    num_warps=8,
    threads=8,  # per block
    ctaid=16,
    nctaid=16,
    ntid=16,
    parameters=8,  # pointer
    parameter_bytes=8,
    arena=8,  # pointer: host address of global address 0
    starts=8,  # pointer: start of each allocation
    ends=8,  # pointer: end of each allocation
    num_allocations=8,
    shared=8,  # pointer
    shared_bytes=8,
    dynamic_bytes=8,  # part of shared_bytes
    local=8,  # pointer: the running warp's
    local_memory=8,  # pointer: of all warps in the block
    local_bytes=8,  # per thread
    warps=8,  # pointer
    warp_stride=8,
    fast=8,  # pointers: tables of functions, one per basic block
    slow=8,
    ready=8,
    uniform=8,  # pointer: lists of uniform registers
    uniform_starts=8,  # pointer: start of each block's list; the last list has all of them
    num_code_blocks=8,
    missing_slow=8,  # the basic block whose slow function is missing
    variables=8,  # pointer: addresses
    functions=8 * NUM_FUNCTIONS,  # pointers: the runtime's functions
    loops=16 * len(LOOPS),  # pointers: a loop and its data argument
    callback=8,  # pointer: function that executes one instruction in Python
    fault=8,
    fault_instruction=8,
    fault_lanes=8,
    warp=8,  # index of the running warp
    turn=8,  # index of the next warp to run
    patience=8,  # turns for the lowest lanes of a diverged warp before others get any
    lockstep=8,  # whether only the warps furthest behind may run
    lowest=4,  # their basic block
    ordered=8,  # lockstep for this round; off if the last round only spun
    spun=8,  # whether a warp spun on memory
    words=8 * WARP,  # addresses or other operands of the lanes
    pointers=8 * WARP,  # host addresses of `words`
    data=16 * WARP,  # elements that are loaded or stored, lane by lane
    ids=4 * WARP,  # of the barriers at which lanes arrive
    counts=4 * WARP,  # expected threads of those barriers
    barrier_lanes=4,
    barrier_has_counts=4,
    barrier_is_arrive=4,  # bar.arrive, which does not wait
    barrier_votes=4,
    barrier_operation=4,
    barrier_result=8,
    instruction=8,  # the barrier's index
    zeroed=8,  # bytes of registers that each block starts with at 0
    shared_zeroed=8,
    local_zeroed=8,  # per warp
    timer=8,  # pointer: number of reads of %globaltimer
    expected=64,  # threads per barrier; 0 for all
    arrived=64,  # threads that arrived without waiting
    num_at_barrier=8,  # warps with lanes waiting at a barrier
    counted=8 * WARP,  # arrival count of each lane, or the parity it waits for
    tx=8 * WARP,  # bytes that each lane expects
    idle=8,  # consecutive turns in which a warp waiting for an mbarrier made no progress
    time_out=8,  # waits that are to return false
    timeouts=8,  # consecutive timeouts without other progress
    products=8,  # pointer: functions that multiply matrices
    matrices=NUM_REGISTERS * 8 * WARP,  # registers of A, B, C and D in order
)

WARP_STATE = Layout(
    once=16,  # 1 and the number of live lanes, added to the tally for each basic block
    executed=8,  # instructions
    live=4,  # mask of lanes that have not exited
    pc=4,  # of all live lanes of a converged warp
    form=4,  # CONVERGED, DIVERGED or BROADCAST
    at_barrier=4,  # mask of lanes that wait at a barrier
    number=4,
    turns=4,  # steps since all runnable lanes were converged
    votes=4,  # predicates for bar.red
    operation=4,
    result=8,  # offset of bar.red's destination register
    pcs=4 * WARP,
    barrier=4 * WARP,  # of each waiting lane
    tid_x=4 * WARP,
    tid_y=4 * WARP,
    tid_z=4 * WARP,
    ring=8,  # pointer: pending copies; blocks start with the fields below at 0
    capacity=8,  # capacity of the ring, a power of two
    committed=4 * WARP,  # groups of copies committed by each lane
    first_copy=8,  # position in the ring
    copies=8,  # number of pending copies
    awaited=8 * WARP,  # mbarrier addresses
    parity=8 * WARP,  # parity of the phase that each lane waits for
)

# A pending cp.async of a warp.
COPY = Layout(
    lanes=4,  # mask of lanes whose bytes have not arrived
    width=8,  # bytes per lane
    groups=4 * WARP,  # the group of each lane's copy
    targets=8 * WARP,  # host addresses of the destinations
    data=16 * WARP,  # bytes read from the sources
)
# One per cp.async that bypasses L1: its most recent address pattern.
COPY_RECORD = Layout(
    sources=8 * WARP,  # relative to lane 0's
    targets=8 * WARP,
    lanes=4,
    low=4,  # low bits of lane 0's addresses
    sectors=8,  # cost; 0 if no pattern is recorded
)
GROW_RING = -1  # pseudo-instruction for the callback: the running warp's ring is full


def tally_offset(block: int) -> int:
    """Return the offset of a basic block's counts: executions by warps, then by lanes."""
    return CORE.size + 16 * block


# Further counts per instruction.
COUNTS = {"guarded_off": 0, "divergent": 8}


def counts_offset(blocks: int, instruction: int) -> int:
    """Return the offset of an instruction's COUNTS in a program of `blocks` basic blocks."""
    return tally_offset(blocks) + 16 * instruction


# A register that is a scalar in fast code.
UNIFORM = ("vector", "scalar", "nbytes")  # 64-bit integers
BITS = 0  # size that denotes a predicate

# One per memory instruction and state space that it may access.
SITE = Layout(
    low=8,  # bounds of the allocation accessed last
    high=8,
    full=8,  # accesses by all 32 lanes through the fast path
    requests=8,  # accesses through the general path
    threads=8,
    cost=8,  # sectors or wavefronts
    ideal=8,
)

# One per register that serves as an address in a basic block.
RECORD = Layout(
    addresses=8 * WARP,  # current contents of the register
    base=8,  # lane 0's
    wrap=8,  # mask of the address bits
    # The most recent pattern and the facts derived from it:
    pattern=8 * WARP,  # addresses relative to lane 0's, with the width of the register
    index=4 * WARP,  # the same in 32 bits
    lowest=8,
    highest=8,
    low_bits=8,
    span=8,  # stride between neighbouring lanes, or UNEVEN
    half_span=8,  # stride within each half warp, as for rows of 16 threads, or UNEVEN
    cost=2 * 32,  # by low bits of lane 0's address and by flavour
)
