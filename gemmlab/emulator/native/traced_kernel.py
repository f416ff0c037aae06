"""What the traces of a kernel's basic blocks share: where registers, counts and records are in the
memory of a core, and the facts that Python needs to run the code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.memory.atomics import HALVES
from gemmlab.emulator.native.fallback import Fallback, is_known_call
from gemmlab.emulator.native.layout import (
    COPY_RECORD,
    CORE,
    RECORD,
    SITE,
    WARP_STATE,
    align,
    counts_offset,
)
from gemmlab.emulator.native.products import Product
from gemmlab.emulator.native.values import BOOL
from gemmlab.emulator.program import Program
from gemmlab.ptx import layout
from gemmlab.ptx.ir import Instruction, Symbol
from gemmlab.ptx.opcodes import ATOMICS, COUNTERS, FETCHES

COUNTED = ("global", "shared", "local")
SPACES = (*COUNTED, "param", "generic")


@dataclass
class Slot:
    """A register that is live across basic blocks, and its offsets in a warp's memory."""

    dtype: np.dtype
    vector: int
    scalar: int
    uniform: bool = True  # a scalar in fast code
    any_nan: bool = False  # its NaNs may have any payload


@dataclass
class Metadata:
    """Facts about the compiled code that Python needs to run it."""

    warp_bytes: int = 0
    core_bytes: int = 0
    lockstep: bool = False  # warps run basic blocks in the NumPy tier's order
    zeroed: bool = False  # some registers are read before they are written, so all must start at 0
    # offset of a record -> bytes of an address
    records: dict[int, int] = field(default_factory=dict)
    # instructions that access constants and parameters
    uncounted: set[int] = field(default_factory=set)
    reasons: dict[int, str] = field(default_factory=dict)  # why an instruction is unsupported
    # instruction -> offset of its register buffer
    fallbacks: dict[int, int] = field(default_factory=dict)
    products: list[Product] = field(default_factory=list)
    # Registers that are scalars in fast code, in the format of layout.UNIFORM: for each basic block
    # those that are live at its start, then all of them.
    uniform: list[list[list[int]]] = field(default_factory=list)

    @classmethod
    def from_json(cls, read: dict[str, Any]) -> Metadata:
        """Restore metadata from JSON, which turns integer keys into strings."""
        numbered = {
            name: {int(k): v for k, v in read[name].items()}
            for name in ("records", "reasons", "fallbacks")
        }
        products = [Product(**product) for product in read["products"]]
        return cls(**{**read, **numbered, "uncounted": {*read["uncounted"]}, "products": products})


def tally_end(program: Program) -> int:
    """Return the offset in a core where the counts of basic blocks and instructions end."""
    return counts_offset(len(program.blocks), len(program.function.instructions))


def site_offsets(program: Program) -> dict[tuple[int, str], int]:
    """Return the offset of each memory instruction's counts by instruction index and state
    space."""
    offset = align(tally_end(program), 64)
    offsets = {}
    for index, i in enumerate(program.function.instructions):
        if i.root in COUNTERS:
            for space in COUNTED:
                offsets[index, space] = offset
                offset += SITE.size
    return offsets


def order_matters(i: Instruction) -> bool:
    """Return whether the order of the lanes affects the instruction's result or what it stores."""
    if i.root not in ATOMICS:
        return is_known_call(i)
    target = i.operands[0]
    told = i.root in FETCHES and not (isinstance(target, Symbol) and target.name == "_")
    return told or bool({*i.modifiers} & {"f32", "f64", *HALVES, "inc", "dec", "exch", "cas"})


def variable_names(program: Program) -> list[str]:
    """Return the names of variables with an address in global memory, in the order of their
    table."""
    declared = (*program.module.variables, *program.function.variables)
    return [v.name for v in declared if v.space in ("global", "const")]


class TracedKernel:
    """The memory of one program's code.

    rows: whether a warp never spans two rows of its thread block, so that %tid.y and %tid.z are
    equal in all its lanes.
    """

    def __init__(self, program: Program, rows: bool) -> None:
        self.program, self.rows = program, rows
        self.metadata = Metadata(lockstep=any(map(order_matters, program.function.instructions)))
        self.sites = site_offsets(program)
        self.metadata.core_bytes = align(
            max([*self.sites.values()], default=CORE.size) + SITE.size, 64
        )
        if not self.sites:
            self.metadata.core_bytes = align(tally_end(program), 64)
        # Slow code records its addresses anew for each access.
        self.scratch = {space: self.new_record(8) for space in SPACES}
        ends = [
            layout.parameter_offsets(program.function)[v.name] + v.size
            for v in program.function.parameters
        ]
        self.parameter_bytes = max(ends, default=0)
        self.variables = {name: k for k, name in enumerate(variable_names(program))}
        self.slots = self._slots()
        self.copy_records: dict[int, int] = {}
        self.fallbacks: dict[int, Fallback] = {}  # instructions that the NumPy tier executes
        self.namespace: dict[str, Any] = {}  # of the traced code

    def _slots(self) -> list[Slot]:
        offset, slots = WARP_STATE.size, []
        for initial in self.program.initial.values():
            dtype = initial.dtype
            size = 4 if dtype == BOOL else WARP * dtype.itemsize
            offset = align(offset, min(size, 64))
            slots.append(Slot(dtype, offset, 0, any_nan=dtype == np.float32))
            offset += size
        for slot in slots:
            slot.scalar = offset = align(offset, 8)
            offset += 8
        self.metadata.warp_bytes = align(offset, 64)
        for block in self.program.blocks:
            if block.result is not None:  # written by the runtime, as a vector
                slots[block.result].uniform = slots[block.result].any_nan = False
        return slots

    def new_record(self, nbytes: int) -> int:
        """Allocate a record for an address register of `nbytes` bytes."""
        offset = self.metadata.core_bytes
        self.metadata.records[offset] = nbytes
        self.metadata.core_bytes += RECORD.size
        return offset

    def copy_record(self, index: int) -> int:
        """Allocate the record of a cp.async instruction."""
        if index not in self.copy_records:
            self.copy_records[index] = align(self.metadata.core_bytes, 64)
            self.metadata.core_bytes = self.copy_records[index] + COPY_RECORD.size
        return self.copy_records[index]

    def product_number(self, product: Product) -> int:
        """Return the product's index in the table of product functions."""
        if product not in self.metadata.products:
            self.metadata.products.append(product)
        return self.metadata.products.index(product)
