"""Where running native code keeps what: the structs that it shares with Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP

# What a warp's code and the scheduler return.
DONE, PAUSED, DIVERGED, BARRIER, FAULT, NEEDS_SLOW = range(6)
# What went wrong: an access, the end of a basic block, an unsupported instruction, a deadlock, a
# warp that has executed too much, lanes at a collective that wait for lanes elsewhere, a matrix at
# an odd address or with an odd stride, wgmma by a part of a warp or outside of shared memory,
# what an mbarrier cannot do.
ACCESS_FAULT, END_FAULT, UNSUPPORTED_FAULT, DEADLOCK, OVER_BUDGET, UNMET = range(1, 7)
MATRIX_FAULT, WGMMA_FAULT, MBARRIER_FAULT = range(7, 10)
# A warp's registers: uniform ones as scalars, all lanes at one place; the same, lanes parted; or
# every register as a vector.
TOGETHER, PARTED, SPREAD = range(3)
FUEL = 1 << 18  # steps after which native code returns, to see whether someone wants to stop
SPIN_FUEL = FUEL >> 6  # what a turn of a loop that waits costs
POPC, AND, OR = range(1, 4)  # operations of bar.red
UNEVEN = -1  # as the span of a pattern
# A shape says of an access instruction, byte by byte: its width, its elements' size and number, and
# its flavour, the place of its cost in a record; and in the upper half its index.
WIDTH, SIZE, COUNT, FLAVOUR, INSTRUCTION = 0, 8, 16, 24, 32
LOADS, ATOMIC = 4, 32  # bits of a flavour
NUM_FUNCTIONS = 64  # room for pointers to the runtime's functions
NUM_REGISTERS = 32  # most that a product of matrices has
# Functions for which native code calls NumPy's loops.
LOOPS = ("exp2", "log2", "sin", "cos", "tanh")


def align(offset: int, step: int) -> int:
    return -(-offset // step) * step


def view(memory: np.ndarray, offset: int, dtype: Any = np.int64, count: int = 1) -> np.ndarray:
    """Some bytes of a struct as numbers."""
    return memory[offset : offset + count * np.dtype(dtype).itemsize].view(dtype)


class Layout:
    """Byte offsets of named fields, each at a multiple of the largest power of two in its size."""

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


# One for each thread of the host. What is a pointer says so.
CORE = Layout(
    fuel=8,  # steps until the native code returns to Python
    quantum=8,  # steps until the next warp has its turn
    budget=8,  # instructions that a warp may execute
    next_block=8,  # pointer: linear index of the block that is taken up next
    num_blocks=8,
    block=8,  # linear index, −1 between blocks
    num_warps=8,
    threads=8,  # per block
    ctaid=16,
    nctaid=16,
    ntid=16,
    parameters=8,  # pointer
    parameter_bytes=8,
    arena=8,  # pointer: where global address 0 would be
    starts=8,  # pointer: first address of each allocation
    ends=8,  # pointer: first address behind it
    num_allocations=8,
    shared=8,  # pointer
    shared_bytes=8,
    dynamic_bytes=8,  # of those
    local=8,  # pointer: of the running warp
    local_memory=8,  # pointer: of all warps of the block
    local_bytes=8,  # per thread
    warps=8,  # pointer
    warp_stride=8,
    fast=8,  # pointers: tables of functions, one per basic block
    slow=8,
    ready=8,
    uniform=8,  # pointer: lists of uniform registers
    uniform_starts=8,  # pointer: where each block's list begins; the last is that of all
    num_code_blocks=8,
    wanted=8,  # the basic block whose slow function is missing
    variables=8,  # pointer: addresses
    functions=8 * NUM_FUNCTIONS,  # pointers: the runtime's own functions
    loops=16 * len(LOOPS),  # pointers: a loop, and the data it wants
    hand_over=8,  # pointer: a function that executes one instruction in Python
    fault=8,
    fault_instruction=8,
    fault_lanes=8,
    warp=8,  # that runs
    turn=8,  # the next warp that may run
    patience=8,  # turns of the lowest lanes of a parted warp, before others have some
    in_step=8,  # whether only those may that are furthest behind,
    lowest=4,  # at this basic block,
    ordered=8,  # this round, since in the last one none of those
    spun=8,  # only waited for others to change memory
    words=8 * WARP,  # addresses or other operands of the lanes
    pointers=8 * WARP,  # where in the host's memory those addresses are
    data=16 * WARP,  # elements that are loaded or stored, lane by lane
    ids=4 * WARP,  # of the barriers that lanes come to
    counts=4 * WARP,  # of threads that those wait for
    barrier_lanes=4,
    barrier_has_counts=4,
    barrier_goes_on=4,  # bar.arrive
    barrier_votes=4,
    barrier_operation=4,
    barrier_result=8,
    instruction=8,  # of the barrier
    zeroed=8,  # bytes of registers that a block finds zero
    shared_zeroed=8,
    local_zeroed=8,  # per warp
    timer=8,  # pointer: reads of %globaltimer so far
    expected=64,  # threads, per barrier; 0 for all
    arrived=64,  # threads that went on
    num_standing=8,  # warps of which lanes stand at a barrier
    counted=8 * WARP,  # arrivals of the lanes, or the parities that they wait for
    tx=8 * WARP,  # bytes that they expect
    idle=8,  # turns in a row in which a warp that waits for an mbarrier has not got on
    time_out=8,  # waits that are to return false
    in_vain=8,  # times that nothing but this let warps get on
    products=8,  # pointer: functions that multiply matrices
    matrices=NUM_REGISTERS * 8 * WARP,  # of A, B, C and D, one register after another
)

WARP_STATE = Layout(
    once=16,  # 1 and the number of live lanes: what one executed basic block adds to the tally
    executed=8,  # instructions
    live=4,  # lanes that have not exited, as bits
    pc=4,  # of all live lanes while they are together
    form=4,  # TOGETHER, PARTED or SPREAD
    standing=4,  # lanes that wait at a barrier
    number=4,
    turns=4,  # steps since all lanes that can run were together
    votes=4,  # of bar.red
    operation=4,
    result=8,  # offset of the register that takes what bar.red finds
    pcs=4 * WARP,
    barrier=4 * WARP,  # of the standing lanes
    tid_x=4 * WARP,
    tid_y=4 * WARP,
    tid_z=4 * WARP,
    ring=8,  # pointer: copies under way; a block begins with those below at 0
    room=8,  # in the ring, a power of two
    committed=4 * WARP,  # groups of copies, of each lane
    first_copy=8,  # in the ring
    copies=8,  # under way
    awaited=8 * WARP,  # mbarriers
    parity=8 * WARP,  # of the phases that the lanes wait for
)

# One cp.async of a warp that is under way.
COPY = Layout(
    lanes=4,  # whose bytes have not arrived, as bits
    width=8,  # bytes of each lane
    groups=4 * WARP,  # that each lane's copy belongs to
    targets=8 * WARP,  # where in the host's memory its bytes go
    data=16 * WARP,  # what it has read
)
# One for each cp.async past L1: the pattern that its addresses had when it last changed.
COPY_RECORD = Layout(
    sources=8 * WARP,  # less lane 0's
    targets=8 * WARP,
    lanes=4,
    low=4,  # bits of lane 0's addresses
    sectors=8,  # that it costs; 0 where no pattern is known
)
MAKE_ROOM = -1  # handed over in place of an instruction: the ring of the running warp is full


def tally_offset(block: int) -> int:
    """Where the core counts the warps, and behind them the lanes, that execute a basic block."""
    return CORE.size + 16 * block


# What the core counts for one instruction besides.
COUNTS = {"guarded_off": 0, "divergent": 8}


def counts_offset(blocks: int, instruction: int) -> int:
    """Where COUNTS of an instruction are, in a program of so many basic blocks."""
    return tally_offset(blocks) + 16 * instruction


# A register that is a scalar in fast code.
UNIFORM = ("vector", "scalar", "nbytes")  # 64-bit numbers
BITS = 0  # as its size: a predicate

# One for each memory instruction and each state space that it may reach.
SITE = Layout(
    low=8,  # the allocation that was touched last
    high=8,
    full=8,  # times that all 32 lanes took part, the short way
    requests=8,  # and times that it went the long way
    threads=8,
    cost=8,  # sectors, or wavefronts
    ideal=8,
)

# One for each register that serves as an address in a basic block.
RECORD = Layout(
    addresses=8 * WARP,  # that the register holds now
    base=8,  # lane 0's
    wrap=8,  # all bits that an address has
    # The pattern that it had when it last changed, and what follows from it:
    pattern=8 * WARP,  # addresses less that of lane 0, as wide as the register
    index=4 * WARP,  # the same in 32 bits
    lowest=8,
    highest=8,
    low_bits=8,
    span=8,  # what two neighbouring lanes lie apart, UNEVEN if they do not all
    half_span=8,  # the same inside of each half of the warp, as rows of 16 threads have it
    cost=2 * 32,  # by low bits of lane 0's address, and by flavour
)
