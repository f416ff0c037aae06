"""Traces a basic block: runs its NumPy-tier code on values of values.py, which emits IR."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from gemmlab.emulator.execution.machine import CYCLES
from gemmlab.emulator.launch.coordinates import CONSTANTS, LANE_MASKS
from gemmlab.emulator.native.builder import Function, Module
from gemmlab.emulator.native.context import Lanes, TraceContext
from gemmlab.emulator.native.copies import Copies
from gemmlab.emulator.native.layout import (
    CORE,
    COUNTS,
    FAULT,
    REGISTER_BYTES,
    UNSUPPORTED_FAULT,
    WARP_STATE,
    counts_offset,
    tally_offset,
)
from gemmlab.emulator.native.matrices import MatrixSpace
from gemmlab.emulator.native.mbarriers import Mbarriers
from gemmlab.emulator.native.memory import Parameters, Space
from gemmlab.emulator.native.support import (
    count_lanes,
    lane_numbers,
    number,
    record_fault,
)
from gemmlab.emulator.native.traced_kernel import TracedKernel
from gemmlab.emulator.native.values import BOOL, I64, U8, U32, U64, NotCovered, Pointer, Value
from gemmlab.emulator.native.wgmma import Wgmma
from gemmlab.ptx.layout import reserved_shared_bytes

# Attributes of the NumPy tier's machine that have no native counterpart.
NUMPY_ONLY = {"clusters"}
NUMPY_ONLY |= {"printf", "malloc", "free"}
NUMPY_ONLY |= {"space_cluster"}


# Cluster registers of launches without clusters, where each block is a cluster by itself.
CLUSTERS: dict[str, str | np.generic] = {"%clusterid": "%ctaid", "%nclusterid": "%nctaid"}
CLUSTERS |= dict.fromkeys(("%cluster_ctaid", "%cluster_ctarank"), np.uint32(0))
CLUSTERS |= dict.fromkeys(("%cluster_nctaid", "%cluster_nctarank"), np.uint32(1))
CLUSTERS |= {"%is_explicit_cluster": np.bool_(False)}


class Bulk:
    """Replaces the copy engine. Bulk copies run on the NumPy tier and complete within the
    instruction, so waits have nothing to do; fences only matter to checks."""

    def commit(self, *_: Any) -> None:
        pass

    wait = fence = fence_init = commit

    def __getattr__(self, name: str) -> NoReturn:
        raise NotCovered("bulk copies")


class Registers:
    """The registers that are live across basic blocks, as accessed by one of them."""

    def __init__(self, m: Tracer) -> None:
        self.m = m
        self.read: dict[int, Value] = {}
        self.written: dict[int, Value] = {}

    @property
    def used(self) -> set[int]:
        return {*self.read, *self.written}

    def __getitem__(self, index: int) -> Value:
        if index not in self.read:
            self.read[index] = self._load(index)
        return self.read[index]

    def __setitem__(self, index: int, value: Any) -> None:
        self.written[index] = self.m.value(value)

    def _load(self, index: int) -> Value:
        m, f, slot = self.m, self.m.f, self.m.kernel.slots[index]
        scalar, vector = m.warp.at(slot.scalar), m.warp.at(slot.vector)
        if slot.uniform and not m.masked:
            if slot.dtype == BOOL:
                return f.load(scalar, U8) != np.uint8(0)
            value = f.load(scalar, slot.dtype)
        elif slot.dtype == BOOL:
            return f.lanes(f.load(vector, U32))
        else:
            value = f.load(vector, slot.dtype, True, align=64)
        return value.with_any_nan() if slot.any_nan else value

    def write_back(self) -> None:
        """Store the registers that the block has written."""
        m, f = self.m, self.m.f
        for index, value in self.written.items():
            slot = m.kernel.slots[index]
            value = value if slot.any_nan else value.canonical()
            if slot.uniform and not m.masked:
                if value.vector:
                    return  # the block will be traced again and this text discarded
                f.store(m.warp.at(slot.scalar), value.astype(U8) if slot.dtype == BOOL else value)
            elif slot.dtype == BOOL:
                f.store(m.warp.at(slot.vector), f.bits(value))
            else:
                f.store(m.warp.at(slot.vector), value.broadcast(), align=64)


class Tracer(TraceContext):
    """Replaces the machine while the code of one basic block is traced.

    masked: whether to trace slow code, which executes a given set of lanes.
    """

    extent = None  # a single warp
    multiplies = True
    bulk = Bulk()

    def __init__(self, kernel: TracedKernel, index: int, masked: bool) -> None:
        self.kernel, self.index, self.masked = kernel, index, masked
        self.module = Module()
        name = f"{'slow' if masked else 'fast'}_{index}"
        parameters = {"core": "ptr noalias", "warp": "ptr noalias"}
        self.use(
            self.module.function(name, "i32", parameters | ({"lanes": "i32"} if masked else {}))
        )

    def use(self, f: Function) -> None:
        super().use(f)
        names = self.kernel.namespace
        names["collectives"].f, names["matrices"].m, names["fragments"].m = f, self, self
        self.registers = Registers(self)
        self.space_global, self.space_shared = Space(self, "global"), Space(self, "shared")
        self.space_const = Space(self, "global", counted=False)
        self.space_local = Space(self, "local")
        self.space_frame = Space(self, "local", counted=False)
        self.copies, self.space_matrices = Copies(self), MatrixSpace(self)
        self.wgmma, self.mbarriers = Wgmma(self), Mbarriers(self)
        self.space_generic, self.space_param = Space(self, "generic"), Parameters(self)

    def trace(self) -> Any:
        """Emit the block's code without its terminator. Returns the terminator's operands."""
        block = self.kernel.program.blocks[self.index]
        self._count()
        result = None
        if block.first < block.last:
            run = self.kernel.namespace[f"block_{self.index}"]
            mask = Lanes(self.lanes) if self.masked else None
            result = run(self, self.registers, mask)
        self.registers.write_back()
        return result

    def _count(self) -> None:
        """Count the execution of this basic block by the warp and its lanes."""
        f, tally = self.f, self.core.at(tally_offset(self.index))
        block = self.kernel.program.blocks[self.index]
        f.increment(self.warp.at(WARP_STATE["executed"]), number(f, block.last - block.first))
        if self.masked:
            f.increment(tally, number(f, 1))
            f.increment(tally.at(8), count_lanes(self.lanes))
            return
        counts = f.assign(f"load <2 x i64>, ptr {tally.name}, align 16")
        once = f.assign(f"load <2 x i64>, ptr {self.warp.at(WARP_STATE['once']).name}, align 16")
        more = f.assign(f"add <2 x i64> {counts}, {once}")
        f.do(f"store <2 x i64> {more}, ptr {tally.name}, align 16")

    # Called by generated code

    def special(self, name: str) -> Value:
        f = self.f
        register, _, axis = name.partition(".")
        if register == "%tid":
            place = self.warp.at(WARP_STATE[f"tid_{axis}"])
            if self.kernel.rows and axis != "x":
                return f.load(place, U32)
            return f.load(place, U32, True, align=64)
        if register in CLUSTERS:  # each block is a cluster of its own
            one = CLUSTERS[register]
            if isinstance(one, str):
                return self.special(f"{one}.{axis}")
            return f.constant(one)
        if register in ("%ctaid", "%nctaid", "%ntid"):
            return f.load(self.core.at(CORE[register[1:]] + 4 * "xyz".index(axis)), U32)
        if name in LANE_MASKS:
            return f.table(LANE_MASKS[name])
        if name in CONSTANTS:
            return f.constant(np.uint32(CONSTANTS[name]))
        match name:
            case "%laneid":
                return lane_numbers(f).view(U32)
            case "%warpid":
                return f.load(self.warp.at(WARP_STATE["number"]), U32)
            case "%nwarpid":
                return f.load(self.core.at(CORE["num_warps"]), I64).astype(U32)
            case "%dynamic_smem_size" | "%total_smem_size" | "%aggr_smem_size":
                field = "dynamic_bytes" if "dynamic" in name else "shared_bytes"
                size = f.load(self.core.at(CORE[field]), I64).astype(U32)
                reserved = reserved_shared_bytes(self.kernel.program.function)
                return size - np.uint32(reserved) if "total" in name else size
        raise NotCovered(f"special register {name}")

    def clock(self, name: str, instructions: int) -> Value:
        """Return %clock in cycles at the given instruction of the basic block, or %globaltimer,
        which counts its reads."""
        f, block = self.f, self.kernel.program.blocks[self.index]
        # shared by all threads of the host, so that later reads return larger values
        if "timer" in name:
            timer = f.load_pointer(self.core.at(CORE["timer"]))
            text = f"atomicrmw add ptr {timer.name}, i64 1 seq_cst"
            ticks = Value(f, f.assign(text), U64, False)
        else:  # `executed` already includes the whole block
            rest = np.uint64(block.last - block.first - instructions)
            ticks = (f.load(self.warp.at(WARP_STATE["executed"]), U64) - rest) * np.uint64(CYCLES)
        if name in ("%clock64", "%globaltimer"):
            return ticks
        return (ticks >> np.uint64(32) if name.endswith("_hi") else ticks).astype(U32)

    def variable(self, name: str, offset: int) -> Value:
        table = self.f.load_pointer(self.core.at(CORE["variables"]))
        return self.f.load(table.at(8 * self.kernel.variables[name]), U64) + np.uint64(offset)

    def active(self, mask: Lanes | None) -> Lanes:
        return Lanes(self.lanes)

    def together(self, mask: Lanes | None) -> Lanes:
        """Return the lanes that execute a collective together, which are all at one instruction."""
        return Lanes(self.lanes)

    def given(self, value: Any) -> Any:
        return value

    def enabled(self, guard: Any, mask: Lanes | None) -> tuple[bool, Lanes]:
        """Return the lanes that pass a guard. Whether there are any is unknown here, hence True."""
        return True, Lanes(self.lanes & self.f.bits(self.value(guard)))

    def count_guarded(self, index: int, guard: Any, mask: Lanes | None) -> None:
        off = self.lanes & ~self.f.bits(self.value(guard))
        self.f.increment(self.count_of(index, "guarded_off"), count_lanes(off))

    def count_of(self, index: int, name: str) -> Pointer:
        """Return a pointer to a count of an instruction."""
        offset = counts_offset(len(self.kernel.program.blocks), index)
        return self.core.at(offset + COUNTS[name])

    def __getattr__(self, name: str) -> NoReturn:
        if name in NUMPY_ONLY:
            raise NotCovered(name.removeprefix("space_"))
        raise AttributeError(f"the native tier's machine has no attribute {name!r}")

    def unsupported(self, index: int, reason: str, guard: Any, mask: Lanes | None) -> None:
        """Emit a fault for lanes that reach an instruction that no tier supports."""
        self.kernel.metadata.reasons[index] = reason
        lanes = self.lanes if guard is None else self.enabled(guard, mask)[1].bits
        with self.f.when(lanes != np.uint32(0)):
            record_fault(self.f, self.core, UNSUPPORTED_FAULT, number(self.f, index), lanes)
            self.ret(FAULT)

    def fall_back(
        self, index: int, mask: Lanes | None, registers: tuple[Any, ...]
    ) -> tuple[Value, ...]:
        """Emit a call that executes an instruction on the NumPy tier. Returns the registers it
        writes."""
        f, fallback = self.f, self.kernel.fallbacks[index]
        first = self.core.at(self.kernel.metadata.fallbacks[index])
        for k, register in enumerate(registers):
            value = self.value(register).canonical().broadcast()
            value = value.astype(U8) if value.dtype == BOOL else value
            f.store(first.at(REGISTER_BYTES * k), value, align=64)
        function = f.load_pointer(self.core.at(CORE["callback"]))
        done = f.invoke(function, U32, self.core, number(f, index), self.bits_of(mask))
        self.require(done != np.uint32(0))
        written = []
        for k, name in enumerate(fallback.writes, len(registers)):
            dtype, place = self.kernel.program.dtypes[name], first.at(REGISTER_BYTES * k)
            bits = f.load(place, U8 if dtype == BOOL else dtype, True, align=64)
            written.append(bits != np.uint8(0) if dtype == BOOL else bits)
        return tuple(written)
