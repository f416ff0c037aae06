"""wgmma in IR, for one warp. The NumPy version is tensor_cores/wgmma.py.

A warp computes its 16 rows in groups of 8 columns, with the register layout of mma.sync. Operands
in shared memory are loaded as by ldmatrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmlab.core.tensor_map import CHUNK
from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.native.builder import Function
from gemmlab.emulator.native.context import Lanes, TraceContext
from gemmlab.emulator.native.layout import CORE, FAULT, REGISTER_BYTES, WARP_STATE, WGMMA_FAULT
from gemmlab.emulator.native.matrices import ROW, compute, put, transposed
from gemmlab.emulator.native.products import Product
from gemmlab.emulator.native.support import PTR, lane_numbers, number, record_fault, routine
from gemmlab.emulator.native.values import ALL, BOOL, I64, NONE, U32, U64, Pointer, Value, where
from gemmlab.emulator.tensor_cores import wgmma
from gemmlab.emulator.tensor_cores.matrices import BITS


class Wgmma:
    """Replaces the NumPy tier's `wgmma` in traced code."""

    def __init__(self, m: TraceContext) -> None:
        self.m = m

    def commit(self, mask: Lanes | None) -> None:
        """Do nothing: multiply() is synchronous."""

    def wait(self, most: int, mask: Lanes | None) -> None:
        """Do nothing, like `commit`."""

    def multiply(
        self,
        index: int,
        p: wgmma.Product,
        accumulators: Sequence[Any],
        a: Any,
        b: Any,
        scale_d: Any,
        mask: Lanes | None,
    ) -> list[Value]:
        m, f = self.m, self.m.f
        product = Product(
            wgmma.ROWS,
            ROW,
            8 * wgmma.ROW_BYTES // BITS[p.a],
            p.result,
            p.a,
            p.b,
            p.result,
            saturates=p.saturates,
            negates=p.scale_a * p.scale_b < 0,
        )
        of_b = product.registers("a")
        of_c = of_b + product.registers("b")
        from_registers = isinstance(a, tuple)
        descriptors = [self._uniform(x) for x in ((number(f, 0) if from_registers else a), b)]
        lanes, fault = m.bits_of(mask), f.label("fault")
        with f.when((lanes != NONE) & (lanes != ALL)):
            f.jump(fault)
        if from_registers:
            put(m, 0, a)
        else:
            warp = f.load(m.warp.at(WARP_STATE["number"]), U32).astype(I64)
            part = (warp & np.int64(wgmma.GROUP_WARPS - 1)) * np.int64(wgmma.ROWS // ROW)
            for half in range(wgmma.ROWS // ROW):
                group = part + np.int64(half)
                self._tile(descriptors[0], group, p.transposes_a, half, 2, lanes, fault)
        keeps = self._uniform(scale_d)
        found, per = [], product.registers("c")
        for column in range(p.n // ROW):
            self._tile(descriptors[1], number(f, column), p.transposes_b, of_b, 1, lanes, fault)
            before = [m.value(x) for x in accumulators[column * per : (column + 1) * per]]
            put(m, of_c, [where(keeps, x, x.dtype.type(0)) for x in before])
            found += compute(m, product)
        behind = f.label("behind")
        f.jump(behind)
        f.place(fault)
        for name, value in zip(("words", "pointers"), descriptors, strict=True):
            f.store(m.core.at(CORE[name]), value.astype(I64).broadcast(), align=64)
        record_fault(f, m.core, WGMMA_FAULT, number(f, index), lanes)
        m.ret(FAULT)
        f.place(behind)
        return found

    def _uniform(self, x: Any) -> Value:
        """Return a value that all lanes share, as a scalar."""
        return self.m.f.element(self.m.value(x), 0)

    def _tile(
        self,
        descriptor: Value,
        group: Value,
        is_transposed: bool,
        first: int,
        step: int,
        lanes: Value,
        fault: str,
    ) -> None:
        """Load 8 rows of a tile into two registers of the matrix buffer."""
        m, f = self.m, self.m.f
        target = m.core.at(CORE["matrices"] + REGISTER_BYTES * first)
        flag = f.constant(np.bool_(is_transposed))
        inside = m.run(
            "load_tile", target, number(f, REGISTER_BYTES * step), descriptor, group, flag
        )
        with f.when(~inside & (lanes != NONE)):
            f.jump(fault)


@routine(BOOL, target=PTR, step=I64, descriptor=U64, group=I64, transposes=BOOL)
def load_tile(
    f: Function,
    core: Pointer,
    target: Pointer,
    step: Value,
    descriptor: Value,
    group: Value,
    transposes: Value,
) -> None:
    """Load 8 rows of 32 bytes of a descriptor's tile as two matrices of 8×8 16-bit words, `step`
    bytes apart. Returns whether they are within shared memory."""
    fields = wgmma.Descriptor.of(descriptor)
    lane = lane_numbers(f)
    x, y = (lane & np.int32(7)).astype(I64), (lane >> np.int32(3) & np.int32(1)).astype(I64)
    offset = wgmma.chunk_offset(fields, transposes, group, x, y)
    chunks: Value = fields.swizzled((fields.start + offset) >> np.int64(4))
    nbytes = f.load(core.at(CORE["shared_bytes"]), I64)
    most = nbytes + np.int64(CHUNK - 1) >> np.int64(4)
    with f.when(f.bits(chunks < most) != ALL):
        f.ret(f.constant(np.bool_(False)))
    offsets = f.reserve(f"<{WARP} x i64>")
    f.store(offsets, chunks * np.int64(CHUNK), align=64)
    shared = f.load_pointer(core.at(CORE["shared"]))
    parts = [target, target.at(step)]
    for k in range(2 * ROW):
        place = shared.at(f.load(offsets.at(8 * k), I64))
        row = f.assign(f"load <4 x i32>, ptr {place.name}, align 16")
        to = parts[k // ROW].at(CHUNK * (k % ROW))
        f.do(f"store <4 x i32> {row}, ptr {to.name}, align 16")
    with f.when(transposes):
        for part in parts:
            register = f.load(part, U32, True, align=64)
            f.store(part, transposed(register), align=64)
    f.ret(f.constant(np.bool_(True)))
