"""Instructions that native code hands over: it calls Python, where the NumPy tier's code of that
one instruction runs for one warp, and goes on with what it finds in the registers.

A core keeps the registers of each such instruction in a place of its own, one slot for each that is
read, then one for each that is written; a slot has room for 32 lanes.
"""

from __future__ import annotations

import ast
import ctypes
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP, Mask, Value, three_axes
from gemmlab.emulator.execution.coordinates import special_registers
from gemmlab.emulator.execution.machine import Launch, Machine
from gemmlab.emulator.execution.tally import Tally
from gemmlab.emulator.native.layout import view
from gemmlab.emulator.native.values import NotCovered
from gemmlab.emulator.ptx.ir import Instruction
from gemmlab.emulator.translation.emit.calls import KNOWN, callee
from gemmlab.emulator.translation.translate import Program

if TYPE_CHECKING:
    from gemmlab.emulator.native.launch import Core

SLOT = 8 * WARP  # bytes
# What a warp cannot do alone, or what goes on when the instruction is over.
NOT_ALONE = {"clock", "clusters", "copies", "space_cluster"}
# What native code calls: of the core, the instruction and the lanes; gives 0 where it failed.
Callback = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint32)


def is_known_call(i: Instruction) -> bool:
    """Whether an instruction calls one of CUDA's own functions, which see what others have done."""
    return callee(i) in KNOWN


@dataclass(frozen=True)
class Part:
    """The NumPy tier's code of one instruction: a function of the registers that it reads."""

    program: Program
    index: int  # of the instruction

    @cached_property
    def block(self) -> int:
        """The instruction's basic block."""
        return next(n for n, b in enumerate(self.program.blocks) if b.first <= self.index < b.last)

    @cached_property
    def lines(self) -> list[int]:
        """Which lines of the program's source are its code."""
        body = self.program.bodies[self.block]
        return [line for line in body if self.program.origins[line] == self.index]

    @cached_property
    def text(self) -> str:
        source = self.program.source.splitlines()
        return "\n".join(source[line].removeprefix("    ") for line in self.lines)

    def _names(self, context: type[ast.expr_context]) -> list[str]:
        nodes = (x for x in ast.walk(ast.parse(self.text)) if isinstance(x, ast.Name))
        found = {x.id for x in nodes if isinstance(x.ctx, context)}
        return sorted(found & self.program.dtypes.keys())

    @cached_property
    def reads(self) -> list[str]:
        """Variables of registers."""
        return self._names(ast.Load)

    @cached_property
    def writes(self) -> list[str]:
        return self._names(ast.Store)

    @cached_property
    def nbytes(self) -> int:
        """Of the instruction's place in a core."""
        return SLOT * (len(self.reads) + len(self.writes))

    def check(self) -> None:
        """Raises NotCovered where one warp cannot execute the instruction by itself."""
        nodes = (x for x in ast.walk(ast.parse(self.text)) if isinstance(x, ast.Attribute))
        used = {x.attr for x in nodes if isinstance(x.value, ast.Name) and x.value.id == "m"}
        if used & NOT_ALONE:
            raise NotCovered("that is more than one warp can do alone")

    @cached_property
    def function(self) -> Any:
        """Takes the machine, the mask and the registers; gives the registers that it writes."""
        name = f"part_{self.index}"
        head = f"def {name}({', '.join(['m', 'mask', *self.reads])}):"
        body = self.text.splitlines() + [f"return [{', '.join(self.writes)}]"]
        block = self.program.blocks[self.block]
        namespace = dict(block.run.__globals__)
        exec("\n".join([head, *(f"    {line}" for line in body)]), namespace)
        return namespace[name]


def without(program: Program, block: int, parts: dict[int, Part]) -> str:
    """The source of a basic block's function, in which some instructions are handed over; its lines
    have the numbers that they have in the whole source."""
    source, body = program.source.splitlines(), program.bodies[block]
    first = next(n for n in range(body.start, -1, -1) if source[n].startswith("def "))
    last = next(n for n in range(body.stop, len(source)) if source[n].startswith("    return "))
    lines = [""] * first + source[first : last + 1]
    for part in parts.values():
        if part.block != block or not part.lines:
            continue
        for line in part.lines:
            lines[line] = ""
        written = "".join(f"{name}, " for name in part.writes)
        read = "".join(f"{name}, " for name in part.reads)
        call = f"m.hand_over({part.index}, mask, ({read}))"
        lines[part.lines[0]] = f"    {written}{'= ' if written else ''}{call}"
    return "\n".join(lines)


class WarpMachine(Machine):
    """The NumPy tier's machine for the one warp of a core whose turn it is."""

    def __init__(self, launch: Launch, core: Core) -> None:
        self.core, self.whole_launch = core, launch
        self.parts: dict[int, tuple[Any, list[np.ndarray], list[np.ndarray]]] = {}
        alone = replace(launch, block=(WARP, 1, 1))
        super().__init__(alone, np.zeros(1, np.int64), Tally.of(launch.program))

    def memories(self) -> tuple[np.ndarray, np.ndarray]:
        """The core's own."""
        nbytes = -(-self.launch.shared_bytes // 16) * 16
        return self.core.shared[:nbytes].reshape(1, nbytes), self._local(0)

    def _local(self, warp: int) -> np.ndarray:
        nbytes = self.core["local_bytes"]
        first = warp * WARP * nbytes
        return self.core.local[first : first + WARP * nbytes].reshape(1, 1, WARP, nbytes)

    def special(self, name: str) -> Value:
        launch, warps = self.whole_launch, self.core["num_warps"]
        extent = replace(self.extent, warps=warps)
        values = three_axes(dict(special_registers(launch, self.blocks, extent))[name])
        return values if values.shape[1] == 1 else values[:, self.first_warp : self.first_warp + 1]

    def execute(self, index: int, lanes: int) -> None:
        """One instruction, for some lanes of the warp. Raises EmulationError."""
        function, reads, writes = self._part(index)
        self.blocks[0], self.first_warp = self.core["block"], self.core["warp"]
        self.space_local.data = self.space_frame.data = self._local(self.first_warp)
        on = (lanes >> np.arange(WARP) & 1).astype(bool).reshape(1, 1, WARP)
        self.live[:] = on
        mask = None if on.all() else Mask(on, self.extent)
        with np.errstate(all="ignore"):
            results = function(self, mask, *reads)
            self.bulk.land_all()
        if self.mbarriers.has_changed:
            self.mbarriers.has_changed, self.core["in_vain"] = False, 0
        for slot, value in zip(writes, results, strict=True):
            slot[:] = three_axes(value)

    def _part(self, index: int) -> tuple[Any, list[np.ndarray], list[np.ndarray]]:
        """Its code and its registers."""
        if index not in self.parts:
            part, first = Part(self.launch.program, index), self.core.plan.handed[index]
            slots = []
            for k, name in enumerate([*part.reads, *part.writes]):
                dtype = self.launch.program.dtypes[name]
                lanes = view(self.core.memory, first + SLOT * k, dtype, WARP)
                slots.append(lanes.reshape(1, 1, WARP))
            count = len(part.reads)
            self.parts[index] = part.function, slots[:count], slots[count:]
        return self.parts[index]
