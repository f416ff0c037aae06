"""Launch PTX on the emulator: arguments in, results in place, counters out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmlab.emulator import emit
from gemmlab.emulator.counters import SiteCounts
from gemmlab.emulator.ir import Variable
from gemmlab.emulator.machine import Dim3, Launch, Machine, Tally
from gemmlab.emulator.memory import Allocation, GlobalMemory
from gemmlab.emulator.translate import Program, translate
from gemmlab.errors import InputError, LaunchError

# Chunks of about this many lanes keep the working set of one instruction inside a core's L2.
CHUNK_LANES = 8192

Argument = Any  # np.ndarray, int, float, np.generic; for a struct bytes, or a tuple of its fields


@dataclass(frozen=True)
class Run:
    """What an emulated launch told. `counters` maps Nsight Compute's names to exact integers;
    what is counted on PTX instructions instead of machine instructions is named ptx_….
    """

    counters: dict[str, int]


def run(
    ptx: str,
    entry: str | None,
    grid: Dim3,
    block: Dim3,
    args: Sequence[Argument],
    dynamic_smem: int = 0,
) -> Run:
    """Run one entry of a PTX text. grid, block: counts in x, y, z. dynamic_smem: bytes.

    NumPy arrays are device buffers, updated in place when the whole launch has succeeded. Raises
    PtxSyntaxError, LaunchError, EmulationError.
    """
    program = translate(ptx, entry)
    memory = GlobalMemory()
    values, buffers = bind(program.function.parameters, args, memory)
    variables = allocate_variables(program, memory)
    memory.commit()
    for array, allocation in buffers:
        memory.bytes_of(allocation)[:] = _bytes_of(array)
    for variable, allocation in variables:
        data = np.frombuffer(variable.initial, np.uint8)
        memory.bytes_of(allocation)[: data.size] = data
    module, function = program.module, program.function
    shared = emit.static_shared_bytes(module, function)
    if dynamic_smem:
        shared = emit.dynamic_shared_offset(module, function) + dynamic_smem
    launch = Launch(
        program=program,
        grid=grid,
        block=block,
        parameters=values,
        memory=memory,
        variables={v.name: a.address for v, a in variables},
        shared_bytes=shared,
        local_bytes=emit.local_layout(function)[1],
        dynamic_bytes=dynamic_smem,
    )
    tally = execute(launch)
    for array, allocation in buffers:
        result = memory.bytes_of(allocation)
        target = _bytes_of(array)
        if array.flags.writeable:
            target[:] = result
        elif not np.array_equal(target, result):
            raise InputError(f"the kernel wrote to {allocation.name}, a read-only array")
    return Run(counters(program, tally))


def static_smem_bytes(ptx: str, entry: str | None) -> int:
    """Shared memory that a kernel declares with a size, per block."""
    program = translate(ptx, entry)
    return emit.static_shared_bytes(program.module, program.function)


def execute(launch: Launch) -> Tally:
    """All blocks of a launch, chunk by chunk, in the order of their linear index."""
    tally = Tally.of(launch.program)
    total = launch.grid[0] * launch.grid[1] * launch.grid[2]
    lanes = -(-launch.threads // 32) * 32
    step = max(1, CHUNK_LANES // lanes)
    # NumPy would warn of the overflows, NaNs and divisions that GPU arithmetic defines.
    with np.errstate(all="ignore"):
        for first in range(0, total, step):
            Machine(launch, first, min(step, total - first), tally).run()
    return tally


# Arguments


def bind(
    parameters: Sequence[Variable], args: Sequence[Argument], memory: GlobalMemory
) -> tuple[np.ndarray, list[tuple[np.ndarray, Allocation]]]:
    """The bytes of the parameter space, and the buffers that arrays became."""
    if len(args) != len(parameters):
        raise LaunchError(f"the kernel takes {len(parameters)} arguments, {len(args)} were given")
    buffers: dict[tuple[int, int], tuple[np.ndarray, Allocation]] = {}
    packed = bytearray()
    for number, (parameter, arg) in enumerate(zip(parameters, args, strict=True)):
        packed += b"\0" * (-len(packed) % parameter.alignment)
        if isinstance(arg, tuple):
            fields = [_address(f"argument {number}", x, memory, buffers) for x in arg]
            arg = _struct(number, fields)
        packed += _pack(number, parameter, _address(f"argument {number}", arg, memory, buffers))
    packed += b"\0" * (-len(packed) % 16)
    return np.frombuffer(bytes(packed), np.uint8), list(buffers.values())


def _address(
    name: str,
    arg: Argument,
    memory: GlobalMemory,
    buffers: dict[tuple[int, int], tuple[np.ndarray, Allocation]],
) -> Argument:
    """An array's device address, after giving it device memory; other values as they are."""
    if not isinstance(arg, np.ndarray) or arg.ndim == 0:
        return arg
    key = arg.__array_interface__["data"][0], arg.nbytes
    if key not in buffers:
        _bytes_of(arg)
        buffers[key] = arg, memory.allocate(name, arg.nbytes)
    return np.uint64(buffers[key][1].address)


def _struct(number: int, fields: Sequence[Argument]) -> bytes:
    """Fields laid out as C does: each at a multiple of its size, the whole of the largest."""
    packed, largest = bytearray(), 1
    for value in fields:
        if not isinstance(value, (np.generic, bytes)):
            raise LaunchError(
                f"argument {number}: a struct's fields are arrays, NumPy scalars or bytes, "
                f"because {value!r} has no size"
            )
        data = bytes(value) if isinstance(value, bytes) else value.tobytes()
        alignment = 1 if isinstance(value, bytes) else len(data)
        packed += b"\0" * (-len(packed) % alignment) + data
        largest = max(largest, alignment)
    return bytes(packed) + b"\0" * (-len(packed) % largest)


def _pack(number: int, parameter: Variable, arg: Argument) -> bytes:
    what = f"argument {number}: parameter .{parameter.type} of {parameter.size} bytes"
    if isinstance(arg, np.ndarray):
        arg = arg[()]
    if isinstance(arg, (bytes, np.generic)):
        data = arg if isinstance(arg, bytes) else bytes(arg.tobytes())
        if len(data) != parameter.size:
            raise LaunchError(f"{what}, but {type(arg).__name__} has {len(data)}")
        return data
    kind, bits = parameter.type[0], 8 * parameter.size
    if isinstance(arg, (bool, int)) and kind == "f" or isinstance(arg, float):
        if kind != "f":
            raise LaunchError(f"{what} takes an integer, not {arg!r}")
        with np.errstate(over="ignore"):
            return np.dtype(f"f{parameter.size}").type(arg).tobytes()
    if isinstance(arg, int):
        if parameter.size > 8:
            raise LaunchError(f"{what} is a struct and takes bytes, not {arg!r}")
        if not -(1 << (bits - 1)) <= arg < 1 << bits:
            raise LaunchError(f"{what} cannot hold {arg}")
        return (arg % (1 << bits)).to_bytes(parameter.size, "little")
    raise LaunchError(f"{what} takes no {type(arg).__name__}")


def _bytes_of(array: np.ndarray) -> np.ndarray:
    """A flat view of the array's bytes, in memory order."""
    if array.flags.c_contiguous:
        return array.reshape(-1).view(np.uint8)
    if array.flags.f_contiguous:
        return array.T.reshape(-1).view(np.uint8)
    raise InputError(
        f"a buffer must be contiguous; shape {array.shape} has strides {array.strides} bytes"
    )


def allocate_variables(program: Program, memory: GlobalMemory) -> list[tuple[Variable, Allocation]]:
    declared = (*program.module.variables, *program.function.variables)
    found = [v for v in declared if v.space in ("global", "const")]
    return [(v, memory.allocate(f"variable {v.name}", v.size)) for v in found]


# Counters


def counters(program: Program, tally: Tally) -> dict[str, int]:
    """Totals of a launch, by name."""
    code = program.function.instructions
    sizes = np.array([b.last - b.first for b in program.blocks], np.int64)
    thread_inst = int((tally.lanes * sizes).sum())
    by_kind: dict[tuple[str, str], SiteCounts] = {}
    for space in ("global", "local", "shared"):
        for op in ("ld", "st"):
            by_kind[space, op] = SiteCounts()
    for index, counts in tally.sites.items():
        by_kind[_space_of(code[index].modifiers), code[index].root].add(counts)
    result = {
        "ptx_inst_executed.sum": int((tally.warps * sizes).sum()),
        "ptx_thread_inst_executed.sum": thread_inst,
        "ptx_thread_inst_executed_pred_on.sum": thread_inst - tally.guarded_off,
        "ptx_branch_divergent.sum": tally.divergent,
        "smsp__thread_inst_executed.sum": thread_inst,
    }
    for (space, op), counts in by_kind.items():
        result[f"smsp__inst_executed_op_{space}_{op}.sum"] = counts.requests
        if space == "shared":
            waves = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op"
            result[f"{waves}_{op}.sum"] = counts.wavefronts
            conflicts = counts.wavefronts - counts.ideal_wavefronts
            result[f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum"] = conflicts
        else:
            result[f"l1tex__t_requests_pipe_lsu_mem_{space}_op_{op}.sum"] = counts.requests
            result[f"l1tex__t_sectors_pipe_lsu_mem_{space}_op_{op}.sum"] = counts.sectors
    loads, stores = by_kind["shared", "ld"], by_kind["shared", "st"]
    result["l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"] = loads.wavefronts + stores.wavefronts
    ideal = loads.ideal_wavefronts + stores.ideal_wavefronts
    result["memory_l1_wavefronts_shared_ideal"] = ideal
    result["derived__memory_l1_wavefronts_shared_excessive"] = (
        loads.wavefronts + stores.wavefronts - ideal
    )
    return result


def _space_of(modifiers: tuple[str, ...]) -> str:
    words = {m.split("::")[0] for m in modifiers}
    return next((s for s in ("shared", "local") if s in words), "global")
