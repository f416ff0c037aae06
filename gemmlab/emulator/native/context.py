"""The state that tracing a basic block needs: the function under construction, its arguments, and
calls of the runtime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmlab.emulator.native.builder import Function
from gemmlab.emulator.native.layout import CORE, FAULT, WARP_STATE
from gemmlab.emulator.native.support import ROUTINES, table_index
from gemmlab.emulator.native.traced_kernel import TracedKernel
from gemmlab.emulator.native.values import U32, NotCovered, Pointer, Value
from gemmlab.emulator.program import Access


@dataclass
class Lanes:
    """A mask of lanes. It replaces the NumPy tier's mask in traced code."""

    bits: Value

    @property
    def array(self) -> Value:
        return self.bits.f.lanes(self.bits)


class TraceContext:
    """The state of tracing one basic block.

    masked: whether the function takes a set of lanes, as slow code does.
    """

    kernel: TracedKernel
    masked: bool

    def use(self, f: Function) -> None:
        """Emit into this function from now on."""
        self.f, self.core, self.warp = f, f.pointer("core"), f.pointer("warp")
        self.live = f.load(self.warp.at(WARP_STATE["live"]), U32)
        self.lanes = f.argument("lanes", U32) if self.masked else self.live

    def value(self, x: Any) -> Value:
        return x if isinstance(x, Value) else self.f.constant(x)

    def bits_of(self, mask: Lanes | None) -> Value:
        return self.lanes if mask is None else mask.bits

    def site(self, access: Access, space: str) -> Pointer:
        """Return the counts of an access. For a generic access, this is the first of three
        sites."""
        space = "global" if space in ("generic", "param") else space
        if (access.instruction, space) not in self.kernel.sites:
            raise NotCovered("an access without its own counts")
        return self.core.at(self.kernel.sites[access.instruction, space])

    def run(self, name: str, *operands: Pointer | Value) -> Value:
        """Call a runtime routine."""
        place = self.core.at(CORE["functions"] + 8 * table_index(name))
        function = self.f.load_pointer(place)
        return self.f.invoke(function, ROUTINES[name].result, self.core, *operands)

    def ret(self, code: int) -> None:
        self.f.ret(self.f.constant(np.int32(code)))

    def require(self, ok: Value) -> None:
        """Return a fault if `ok` is false. The fault is already recorded."""
        with self.f.when(~ok):
            self.ret(FAULT)
