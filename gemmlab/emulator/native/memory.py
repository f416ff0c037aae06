"""State spaces in traced code. Loads and stores become calls of the runtime routines in
accesses.py.

A basic block records each address register once. Accesses that add different constants to the
register share the record of its address pattern.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmlab.emulator.arithmetic.lanes import WARP
from gemmlab.emulator.counters import rules
from gemmlab.emulator.memory.addresses import excess_bits, within
from gemmlab.emulator.memory.atomics import Operation
from gemmlab.emulator.native.builder import Function, Variable
from gemmlab.emulator.native.context import Lanes, TraceContext
from gemmlab.emulator.native.layout import (
    ATOMIC,
    CORE,
    COUNT,
    FLAVOUR,
    INSTRUCTION,
    LOADS,
    RECORD,
    SITE,
    SIZE,
    WIDTH,
)
from gemmlab.emulator.native.support import first_lane, lane_offset, number
from gemmlab.emulator.native.values import ALL, I64, NONE, Pointer, Value, ir_type
from gemmlab.emulator.program import Access


def shape_of(access: Access, flags: int) -> int:
    """Pack the facts of an access instruction that the runtime needs into one integer; see
    layout.py."""
    flavour = int(rules.words_per_lane(access.width)).bit_length() - 1 << 3 | flags
    shape = access.width << WIDTH | access.dtype.itemsize << SIZE | access.num_elements << COUNT
    return shape | flavour << FLAVOUR | access.instruction << INSTRUCTION


class Space:
    """Global, constant or shared memory."""

    def __init__(self, m: TraceContext, name: str, counted: bool = True) -> None:
        self.m, self.name, self.counted = m, name, counted
        self.recorded: dict[str, Pointer] = {}  # address register -> record

    @property
    def f(self) -> Function:
        return self.m.f

    # Called by generated code

    def load(self, access: Access, address: Any, mask: Any) -> tuple[Value, ...]:
        address = self.m.value(address)
        lanes = self.m.bits_of(mask)
        if not address.vector and not self.m.masked and self.name in ("global", "shared"):
            return self._load_uniform(access, address, lanes)
        self._access(access, address, lanes, is_load=True)
        return tuple(self._data(access))

    def store(self, access: Access, address: Any, values: Sequence[Any], mask: Any) -> None:
        address = self.m.value(address)
        for i, x in enumerate(values):
            item = self.m.value(x).canonical().broadcast()
            self.f.store(self._item(access, i), item, align=WARP * access.dtype.itemsize)
        self._access(access, address, self.m.bits_of(mask), is_load=False)

    def update(
        self,
        access: Access,
        address: Any,
        operation: Operation,
        operands: Sequence[Any],
        mask: Lanes | None,
    ) -> tuple[Value, ...]:
        """Update memory lane by lane, for each element of a vector. Returns the values that each
        lane found."""
        m, f, dtype, count = self.m, self.f, access.dtype, access.num_elements
        lanes = m.bits_of(mask)
        self._run("touch", access, m.value(address), lanes, ATOMIC | LOADS)
        spilled = []
        for x in operands:
            place = f.reserve(ir_type(dtype, True))
            f.store(place, m.value(x).canonical().broadcast(), align=64)
            spilled.append(place)
        left = Variable(f, lanes)
        with f.loop(lambda: left.value != NONE):
            lane = first_lane(left.value)
            left.value = left.value & (left.value - np.uint32(1))
            at = lane_offset(lane, dtype)
            start = f.load_pointer(m.core.at(CORE["pointers"]).at(lane_offset(lane, I64)))
            for i in range(count):
                cell = start.at(i * dtype.itemsize)
                old = f.load(cell, dtype)
                f.store(self._item(access, i).at(at), old)
                own = (f.load(x.at(at), dtype) for x in spilled[i::count])
                new = m.value(operation(old, *own))
                f.store(cell, new.canonical().astype(dtype))
        return tuple(self._data(access))

    def _item(self, access: Access, i: int) -> Pointer:
        return self.m.core.at(CORE["data"] + i * WARP * access.dtype.itemsize)

    def _data(self, access: Access) -> list[Value]:
        """Return the loaded elements, one vector per element."""
        dtype = access.dtype
        step = WARP * dtype.itemsize
        count = access.num_elements
        return [self.f.load(self._item(access, i), dtype, True, align=step) for i in range(count)]

    def _access(self, access: Access, address: Value, lanes: Value, is_load: bool) -> None:
        self._run("load" if is_load else "store", access, address, lanes, LOADS if is_load else 0)

    def _run(self, kind: str, access: Access, address: Value, lanes: Value, flags: int) -> None:
        """Perform an access. For kind `touch`, only check and count it."""
        self.call(f"{kind}_{self.name}", access, address, lanes, flags)

    def call(self, name: str, access: Access, address: Value, lanes: Value, flags: int) -> None:
        """Call a runtime routine for accesses."""
        record, offset = self._record(address)
        if not self.counted:
            self.m.kernel.metadata.uncounted.add(access.instruction)
        offset = self.m.value(offset + np.int64(access.offset))
        shape = number(self.f, shape_of(access, flags))
        site = self.m.site(access, self.name)
        self.m.require(self.m.run(name, site, record, offset, lanes, shape))

    def _record(self, address: Value) -> tuple[Pointer, Value]:
        """Record an address register unless this register, or one at a uniform offset from it, is
        already recorded. Returns the record and the offset."""
        m, f = self.m, self.f
        nbytes = address.dtype.itemsize
        if m.masked:
            record = m.core.at(m.kernel.scratch[self.name])
            wide = address.broadcast().view(f"u{nbytes}").astype(I64)
            m.run("record_64", record, m.lanes, wide)
            f.store(record.at(RECORD["wrap"]), number(f, -1 if nbytes == 8 else 0xFFFFFFFF))
            return record, number(f, 0)
        root, moved = address.affine or (address, None)
        if root.name not in self.recorded:
            record = m.core.at(m.kernel.new_record(nbytes))
            m.run(f"record_{8 * nbytes}", record, m.live, root.broadcast().view(f"i{nbytes}"))
            self.recorded[root.name] = record
        moved = number(f, 0) if moved is None else moved.view(f"i{nbytes}").astype(I64)
        return self.recorded[root.name], moved

    def _load_uniform(self, access: Access, address: Value, lanes: Value) -> tuple[Value, ...]:
        """Load from the same address in all lanes. The fast path is inlined and loads scalars."""
        f, dtype, count = self.f, access.dtype, access.num_elements
        site = self.m.site(access, self.name)
        full, short, long, behind = (f.label(x) for x in ("full", "short", "long", "loaded"))
        f.branch(lanes == ALL, full, long)
        f.place(full)
        base = access.at(address)
        if self.name == "shared":
            least, most = number(f, 0), f.load(self.m.core.at(CORE["shared_bytes"]), I64)
        else:
            least, most = (f.load(site.at(SITE[x]), I64) for x in ("low", "high"))
        fits = within(base, access.width, least, most) & (excess_bits(base, access.width) == 0)
        f.branch(fits, short, long)
        f.place(short)
        f.increment(site.at(SITE["full"]), number(f, 1))
        if self.name == "shared":
            waves, ideal = rules.wavefronts(np.zeros((1, WARP), int), None, access.width, True)
            f.increment(site.at(SITE["cost"]), number(f, waves[0]))
            f.increment(site.at(SITE["ideal"]), number(f, ideal[0]))
        else:
            cost = rules.sectors(np.zeros((1, WARP), int))
            f.increment(site.at(SITE["cost"]), number(f, cost))
        memory = "shared" if self.name == "shared" else "arena"
        place = f.load_pointer(self.m.core.at(CORE[memory])).at(base)
        quick = [f.load(place.at(i * dtype.itemsize), dtype) for i in range(count)]
        f.jump(behind)
        f.place(long)
        recorded, self.recorded = self.recorded, {}
        self._access(access, address, lanes, is_load=True)
        self.recorded = recorded
        first = lane_offset(first_lane(lanes), dtype)
        slow = [f.load(self._item(access, i).at(first), dtype) for i in range(count)]
        end = f.here
        f.jump(behind)
        f.place(behind)
        return tuple(f.phi([(a, short), (b, end)]) for a, b in zip(quick, slow, strict=True))


class Parameters(Space):
    """Kernel parameters, which reside in the constant bank and are not counted."""

    def __init__(self, m: TraceContext) -> None:
        super().__init__(m, "param", counted=False)

    def load(self, access: Access, address: Any, mask: Any) -> tuple[Value, ...]:
        """Load a parameter, inline if its address is a compile-time constant."""
        if isinstance(address, Value):
            return super().load(access, address, mask)
        where, size = int(address) + access.offset, access.dtype.itemsize
        nbytes = self.m.kernel.parameter_bytes
        if not within(where, access.width, 0, nbytes) or excess_bits(where, access.width):
            return super().load(access, address, mask)
        base = self.f.load_pointer(self.m.core.at(CORE["parameters"])).at(where)
        return tuple(
            self.f.load(base.at(i * size), access.dtype) for i in range(access.num_elements)
        )
