"""Translates a program to IR: two functions per basic block.

The fast function executes all live lanes of a converged warp. Registers equal in all lanes stay
scalars, and branches are jumps. The slow function executes a given set of lanes and keeps every
register as a vector. It is compiled when a warp first diverges.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from functools import partial

import numpy as np

from gemmlab.emulator.arithmetic import halves
from gemmlab.emulator.native.builder import Module
from gemmlab.emulator.native.collectives import Collectives
from gemmlab.emulator.native.ends import FastEnd, SlowEnd
from gemmlab.emulator.native.fallback import Fallback, with_fallbacks
from gemmlab.emulator.native.floats import Doubles, Formats, Halves
from gemmlab.emulator.native.layout import BITS, align
from gemmlab.emulator.native.matrices import Fragments, Matrices
from gemmlab.emulator.native.numerics import Numerics
from gemmlab.emulator.native.traced_kernel import TracedKernel
from gemmlab.emulator.native.tracer import Registers, Tracer
from gemmlab.emulator.native.values import BOOL, NotCovered, select
from gemmlab.emulator.program import Block, Program
from gemmlab.emulator.translation.translate import terminator_of
from gemmlab.errors import InternalError

SOURCE = "<traced>"  # file name of traced code in tracebacks
TERMINATORS = ("fall", "branch", "switch", "exit", "barrier", "trap", "phase", "sleep")


class Kernel(TracedKernel):
    """Translates one program to IR.

    rows: whether a warp never spans two rows of its thread block, so that %tid.y and %tid.z are
    equal in all its lanes. Raises NotCovered, and InternalError for a bug in the native tier.
    """

    def __init__(self, program: Program, rows: bool) -> None:
        super().__init__(program, rows)
        for block in program.blocks:
            if block.terminator not in TERMINATORS:
                raise self._not_covered("a terminator without native code", block.last - 1)
        code = [b.run.__globals__ for b in program.blocks if b.first < b.last]
        self.namespace |= code[0] if code else {}
        numerics, narrow = Numerics(), Formats()
        self.namespace |= {"n": numerics, "doubles": Doubles(numerics), "select": select}
        pairs = self.namespace["halves"] = Halves(narrow)
        self.namespace["formats"] = narrow
        for name, x in self.namespace.items():  # functions that atomic operations use
            if isinstance(x, partial) and x.func is halves.compute:
                self.namespace[name] = partial(pairs.compute, *x.args)
        self.namespace |= {"collectives": Collectives(), "matrices": Matrices()}
        self.namespace["fragments"] = Fragments()
        exec(compile(program.source, SOURCE, "exec"), self.namespace)
        self.fast_text = self._fast()

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
