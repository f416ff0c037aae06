"""Instructions without native code. Native code calls back into Python, where the NumPy tier's code
of that one instruction runs for one warp, and then continues with the register values it left.

A core has a buffer for each such instruction: one slot for each register it reads, then one for
each it writes. A slot holds 32 lanes.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gemmlab.emulator.native.layout import REGISTER_BYTES
from gemmlab.emulator.native.values import NotCovered
from gemmlab.emulator.program import Program
from gemmlab.emulator.translation.emit.calls import KNOWN
from gemmlab.ptx.ir import Instruction

# Machine attributes whose instructions involve several warps or complete later.
NOT_ALONE = {"clock", "clusters", "copies", "space_cluster"}


def is_known_call(i: Instruction) -> bool:
    """Return whether an instruction calls a CUDA function that the emulator provides, such as
    malloc. Those have effects that other blocks observe."""
    return i.callee in KNOWN


@dataclass(frozen=True)
class Fallback:
    """The NumPy tier's code of one instruction, as a function of the registers that it reads."""

    program: Program
    index: int  # the instruction's

    @cached_property
    def block(self) -> int:
        """Return the index of the instruction's basic block."""
        return next(n for n, b in enumerate(self.program.blocks) if b.first <= self.index < b.last)

    @cached_property
    def lines(self) -> list[int]:
        """Return the line numbers of the instruction's code in the program's source."""
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
        """Names of the register variables that the code reads."""
        return self._names(ast.Load)

    @cached_property
    def writes(self) -> list[str]:
        return self._names(ast.Store)

    @cached_property
    def nbytes(self) -> int:
        """Size of the instruction's buffer in a core."""
        return REGISTER_BYTES * (len(self.reads) + len(self.writes))

    def check(self) -> None:
        """Raise NotCovered if a single warp cannot execute the instruction."""
        nodes = (x for x in ast.walk(ast.parse(self.text)) if isinstance(x, ast.Attribute))
        used = {x.attr for x in nodes if isinstance(x.value, ast.Name) and x.value.id == "m"}
        if used & NOT_ALONE:
            raise NotCovered("an instruction that involves more than one warp")

    @cached_property
    def function(self) -> Any:
        """A function that takes the machine, the mask and the registers read, and returns the
        registers written."""
        name = f"part_{self.index}"
        head = f"def {name}({', '.join(['m', 'mask', *self.reads])}):"
        body = [*self.text.splitlines(), f"return [{', '.join(self.writes)}]"]
        block = self.program.blocks[self.block]
        namespace = dict(block.run.__globals__)
        exec("\n".join([head, *(f"    {line}" for line in body)]), namespace)
        return namespace[name]


def with_fallbacks(program: Program, block: int, fallbacks: dict[int, Fallback]) -> str:
    """Return the source of a basic block's function with calls in place of the instructions in
    `fallbacks`. Lines keep the numbers that they have in the program's source."""
    source, body = program.source.splitlines(), program.bodies[block]
    first = next(n for n in range(body.start, -1, -1) if source[n].startswith("def "))
    last = next(n for n in range(body.stop, len(source)) if source[n].startswith("    return "))
    lines = [""] * first + source[first : last + 1]
    for fallback in fallbacks.values():
        if fallback.block != block or not fallback.lines:
            continue
        for line in fallback.lines:
            lines[line] = ""
        written = "".join(f"{name}, " for name in fallback.writes)
        read = "".join(f"{name}, " for name in fallback.reads)
        call = f"m.fall_back({fallback.index}, mask, ({read}))"
        lines[fallback.lines[0]] = f"    {written}{'= ' if written else ''}{call}"
    return "\n".join(lines)
