"""Translates a program to IR: lays out its memory and emits two functions per basic block.

The fast function executes all live lanes of a converged warp. Registers equal in all lanes stay
scalars, and branches are jumps. The slow function executes a given set of lanes and keeps every
register as a vector. It is compiled when a warp first diverges.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from gemmlab.emulator.arithmetic import halves
from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.memory.atomics import HALVES
from gemmlab.emulator.native.builder import Module
from gemmlab.emulator.native.collectives import Collectives
from gemmlab.emulator.native.ends import FastEnd, SlowEnd
from gemmlab.emulator.native.fallback import Fallback, is_known_call, with_fallbacks
from gemmlab.emulator.native.floats import Doubles, Formats, Halves
from gemmlab.emulator.native.layout import (
    BITS,
    COPY_RECORD,
    CORE,
    RECORD,
    SITE,
    WARP_STATE,
    align,
    counts_offset,
)
from gemmlab.emulator.native.matrices import Fragments, Matrices
from gemmlab.emulator.native.numerics import Numerics
from gemmlab.emulator.native.products import Product
from gemmlab.emulator.native.tracer import Registers, Tracer
from gemmlab.emulator.native.values import BOOL, NotCovered, select
from gemmlab.emulator.program import Block, Program
from gemmlab.emulator.translation.translate import terminator_of
from gemmlab.errors import InternalError
from gemmlab.ptx import layout
from gemmlab.ptx.ir import Instruction, Symbol
from gemmlab.ptx.opcodes import ATOMICS, COUNTERS, FETCHES

SOURCE = "<traced>"  # file name of traced code in tracebacks
COUNTED = ("global", "shared", "local")
SPACES = (*COUNTED, "param", "generic")
TERMINATORS = ("fall", "branch", "switch", "exit", "barrier", "trap", "phase", "sleep")


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


class Kernel:
    """Translates one program to IR.

    rows: whether a warp never spans two rows of its thread block, so that %tid.y and %tid.z are
    equal in all its lanes. Raises NotCovered, and InternalError for a bug in the native tier.
    """

    def __init__(self, program: Program, rows: bool) -> None:
        self.program, self.rows = program, rows
        for block in program.blocks:
            if block.terminator not in TERMINATORS:
                raise self._not_covered("a terminator without native code", block.last - 1)
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
        code = [b.run.__globals__ for b in program.blocks if b.first < b.last]
        self.namespace: dict[str, Any] = dict(code[0]) if code else {}
        numerics, narrow = Numerics(), Formats()
        self.namespace |= {"n": numerics, "doubles": Doubles(numerics), "select": select}
        pairs = self.namespace["halves"] = Halves(narrow)
        self.namespace["formats"] = narrow
        for name, x in self.namespace.items():  # functions that atomic operations use
            if isinstance(x, partial) and x.func is halves.compute:
                self.namespace[name] = partial(pairs.compute, *x.args)
        self.collectives = self.namespace["collectives"] = Collectives()
        self.matrices = self.namespace["matrices"] = Matrices()
        self.fragments = self.namespace["fragments"] = Fragments()
        self.copy_records: dict[int, int] = {}
        self.fallbacks: dict[int, Fallback] = {}  # instructions that the NumPy tier executes
        exec(compile(program.source, SOURCE, "exec"), self.namespace)
        self.fast_text = self._fast()

    def _slots(self) -> list[Slot]:
        offset, slots = WARP_STATE.size, []
        for initial in self.program.initial:
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

    def _fast(self) -> str:
        """Return the IR of the fast functions.

        Initially every register is assumed uniform, with any NaN payload if it is float32. A block
        that writes a register otherwise invalidates the assumption, and all blocks that use it are
        traced again.
        """
        blocks = range(len(self.program.blocks))
        traced: dict[int, Tracer] = {}
        todo = set(blocks)
        while todo:
            index = min(todo)
            todo.discard(index)
            traced[index] = self.trace(index, masked=False)
            changed = self._weaken(traced[index].registers)
            todo |= {i for i, t in traced.items() if changed & t.registers.used}
        live = self._live_registers(traced)
        self.metadata.zeroed = bool(live[0])
        uniform = {i for i, slot in enumerate(self.slots) if slot.uniform}
        self.metadata.uniform = [
            [self._entry(i) for i in uniform & some] for some in (*live, uniform)
        ]
        return _module("fast", [traced[i].module for i in blocks])

    def _weaken(self, registers: Registers) -> set[int]:
        changed = set()
        for index, value in registers.written.items():
            slot = self.slots[index]
            if (slot.uniform and value.vector) or (
                slot.any_nan and not (value.any_nan or value.is_number)
            ):
                slot.uniform &= not value.vector
                slot.any_nan &= value.any_nan or value.is_number
                changed.add(index)
        return changed

    def _entry(self, index: int) -> list[int]:
        slot = self.slots[index]
        return [slot.vector, slot.scalar, BITS if slot.dtype == BOOL else slot.dtype.itemsize]

    def _live_registers(self, traced: dict[int, Tracer]) -> list[set[int]]:
        """Return the registers that are live at the start of each block."""
        blocks = self.program.blocks
        reads = [set(traced[i].registers.read) for i in range(len(blocks))]
        for i, block in enumerate(blocks):
            if block.members is not None:
                registers = Registers(Tracer(self, i, masked=True))
                block.members(registers)  # type: ignore[arg-type]
                reads[i] |= set(registers.read)
        live_in = [set(r) for r in reads]
        changed = True
        while changed:
            changed = False
            for i, block in reversed(list(enumerate(blocks))):
                after = set().union(*(live_in[t] for t in block.targets if t < len(blocks)))
                live = reads[i] | (after - set(traced[i].registers.written))
                if live != live_in[i]:
                    live_in[i], changed = live, True
        return live_in

    def trace(self, index: int, masked: bool) -> Tracer:
        """Trace a basic block. Instructions without native code are left to the NumPy tier."""
        while True:
            tracer = Tracer(self, index, masked)
            try:
                with np.errstate(all="ignore"):  # constant folding wraps around as on the GPU
                    end = SlowEnd(tracer) if masked else FastEnd(tracer)
                    end.finish(self.program.blocks[index], tracer.trace())
                return tracer
            except NotCovered as reason:
                self._fall_back(reason, self._traced(reason), self.program.blocks[index])
            except MemoryError:
                raise
            except Exception as error:
                at, last = self._traced(error), max(self.program.blocks[index].last - 1, 0)
                instruction = self.program.function.instructions[last if at is None else at]
                raise InternalError(
                    f"the emulator's native tier fails at {'.'.join(instruction.opcode)}, which is "
                    f"a bug in gemmlab ({type(error).__name__}: {error}); run with tier='numpy' "
                    f"instead\n  at {instruction.site}"
                ) from error

    def _traced(self, error: Exception) -> int | None:
        """Return the instruction whose code raised the error, or None if the block's terminator
        did."""
        frames = traceback.extract_tb(error.__traceback__)
        lines = [x.lineno for x in frames if x.filename == SOURCE and x.lineno is not None]
        return self.program.origins[lines[-1] - 1] if lines else None

    def _fall_back(self, reason: NotCovered, index: int | None, block: Block) -> None:
        """Leave an instruction, and those with the same opcode in its basic block, to the NumPy
        tier. Raises NotCovered if a single warp cannot execute it or if it ends the block."""
        code = self.program.function.instructions
        index = block.last - 1 if index is None else index
        if terminator_of(code[index]) or index in self.fallbacks:
            raise self._not_covered(str(reason), index) from reason
        for other in range(block.first, block.last):
            if code[other].opcode != code[index].opcode or other in self.fallbacks:
                continue
            fallback = Fallback(self.program, other)
            try:
                fallback.check()
            except NotCovered as why:
                raise self._not_covered(f"{reason}: {why}", other) from reason
            self.fallbacks[other] = fallback
            self.metadata.fallbacks[other] = align(self.metadata.core_bytes, 64)
            self.metadata.core_bytes = self.metadata.fallbacks[other] + fallback.nbytes
        source = with_fallbacks(self.program, self.fallbacks[index].block, self.fallbacks)
        exec(compile(source, SOURCE, "exec"), self.namespace)

    def _not_covered(self, why: str, index: int) -> NotCovered:
        opcode = ".".join(self.program.function.instructions[index].opcode)
        reason = NotCovered(f"{opcode}: {why}")
        reason.instruction = index
        return reason

    # Code for diverged warps

    def slow(self, blocks: list[int], with_helpers: bool) -> str:
        """Return the IR of the slow functions of some blocks."""
        modules = [self.trace(i, masked=True).module for i in blocks]
        if not with_helpers:
            return _module("slow", modules)
        helpers, every = Module(), range(len(self.program.blocks))
        for i in every:
            self._ready(helpers, i)
        names = {f.name for f in helpers.functions}
        ready = [f"@ready_{i}" if f"ready_{i}" in names else "null" for i in every]
        return _module("slow", [*modules, helpers]) + _table("ready", ready)

    def _helper(self, module: Module, name: str, result: str, lanes: bool) -> Tracer:
        tracer = Tracer(self, 0, masked=True)
        parameters = {"core": "ptr noalias", "warp": "ptr noalias"}
        tracer.use(module.function(name, result, parameters | ({"lanes": "i32"} if lanes else {})))
        return tracer

    def _ready(self, module: Module, index: int) -> None:
        """Emit a function that returns whether `lanes` contains all lanes that the block's
        collective names."""
        block = self.program.blocks[index]
        if block.members is None:
            return
        m = self._helper(module, f"ready_{index}", "i1", lanes=True)
        f = m.f
        members = m.value(block.members(Registers(m)))  # type: ignore[arg-type]
        missing = members & m.live & ~m.lanes
        f.ret((f.bits(missing != np.uint32(0)) & m.lanes) == np.uint32(0))


def _table(name: str, entries: Sequence[str]) -> str:
    pointers = ", ".join(f"ptr {entry}" for entry in entries)
    return f"@{name} = constant [{len(entries)} x ptr] [{pointers}]\n"


def _module(name: str, modules: list[Module]) -> str:
    """Concatenate modules and append a table of their functions."""
    declared = sorted(set().union(*(m.declared for m in modules)))
    functions = [f for m in modules for f in m.functions]
    table = _table(name, [f"@{f.name}" for f in functions if f.name.startswith(f"{name}_")])
    return "\n".join([*declared, *(f.text for f in functions), table])
