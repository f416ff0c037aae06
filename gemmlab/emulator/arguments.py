"""Binds launch arguments: packs parameter bytes and maps arrays to buffers in device memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.lib.stride_tricks import as_strided

from gemmlab.core.tensor_map import CHUNK, TensorMap, pointed_to
from gemmlab.emulator.copies.tensor_maps import MAP_ALIGNMENT, encode
from gemmlab.emulator.memory.arena import GLOBAL_BASE, Allocation, GlobalMemory
from gemmlab.errors import InputError, LaunchError
from gemmlab.ptx.ir import WIDTHS, Variable

# np.ndarray, int, float, np.generic, TensorMap or list of TensorMap. A struct is bytes, or a tuple
# of its fields.
Argument = Any


@dataclass(eq=False)
class Buffer:
    """An array argument and its location in device memory."""

    name: str
    bytes: np.ndarray  # the host array as flat uint8
    is_read_only: bool
    allocation: Allocation | None = None
    offset: int = 0  # bytes from the start of the allocation

    @property
    def start(self) -> int:
        return int(self.bytes.__array_interface__["data"][0])

    @property
    def address(self) -> np.uint64:
        assert self.allocation is not None
        return np.uint64(self.allocation.address + self.offset)

    @property
    def span(self) -> tuple[int, int]:
        """Offset of the first byte in the arena, and size in bytes."""
        return int(self.address) - GLOBAL_BASE, self.bytes.size

    def on_device(self, memory: GlobalMemory) -> np.ndarray:
        assert self.allocation is not None
        return memory.bytes_of(self.allocation)[self.offset :][: self.bytes.size]


def bind(
    parameters: Sequence[Variable], args: Sequence[Argument], memory: GlobalMemory
) -> tuple[np.ndarray, list[Buffer], list[tuple[Variable, Allocation]]]:
    """Bind arguments to parameters.

    Returns the bytes of the parameter space, one buffer per array argument, and the tensor maps
    that are passed by pointer and therefore reside in global memory. Raises LaunchError and
    InputError.
    """
    if len(args) != len(parameters):
        declared = ", ".join(f".{p.type}" if p.size <= 8 else f"{p.size} bytes" for p in parameters)
        message = f"the kernel takes {len(parameters)} arguments, {len(args)} were given"
        raise LaunchError(f"{message}; it declares {declared or 'none'}")
    buffers: dict[int, Buffer] = {}  # id(array) -> buffer
    maps: list[tuple[Variable, Allocation]] = []
    for number, arg in enumerate(args):
        for value in arg if isinstance(arg, (tuple, list)) else (arg,):
            name, bytes_of = f"argument {number}", _bytes_of
            if isinstance(value, TensorMap):
                value, bytes_of = value.array, _bytes_around
            if isinstance(value, np.ndarray) and value.ndim:
                buffers[id(value)] = Buffer(name, bytes_of(value), not value.flags.writeable)
    allocate_buffers(list(buffers.values()), memory)
    packed = bytearray()
    for number, (parameter, arg) in enumerate(zip(parameters, args, strict=True)):
        packed += b"\0" * (-len(packed) % parameter.alignment)
        if id(arg) in buffers and parameter.type[0] == "f":
            raise LaunchError(f"argument {number}: parameter .{parameter.type} takes no array")
        behind = pointed_to(arg, parameter.size)
        if behind:
            data = b"".join(_tensor_map(number, x, buffers) for x in behind)
            name = f"tensor map of argument {number}"
            variable = Variable(name, "global", "b8", len(data), len(data), initial=data)
            maps.append((variable, memory.allocate(name, len(data))))
            arg = maps[-1][1].address
        elif isinstance(arg, TensorMap):
            arg = _tensor_map(number, arg, buffers)
        if isinstance(arg, tuple):
            arg = _struct(number, arg, buffers)
        packed += _pack(number, parameter, buffers[id(arg)].address if id(arg) in buffers else arg)
    packed += b"\0" * (-len(packed) % 16)
    return np.frombuffer(bytes(packed), np.uint8), list(buffers.values()), maps


def allocate_buffers(buffers: list[Buffer], memory: GlobalMemory) -> None:
    """Allocate device memory. Arrays that overlap on the host overlap on the device."""
    end, groups = 0, list[list[Buffer]]()
    for buffer in sorted(buffers, key=lambda b: b.start):
        if buffer.start >= end:
            groups.append([])
        groups[-1].append(buffer)
        end = max(end, buffer.start + buffer.bytes.size)
    # Allocate in argument order: device addresses must not depend on host addresses.
    for group in sorted(groups, key=lambda g: min(map(buffers.index, g))):
        start = group[0].start
        nbytes = max(b.start + b.bytes.size for b in group) - start
        allocation = memory.allocate(min(group, key=buffers.index).name, nbytes)
        for buffer in group:
            buffer.allocation, buffer.offset = allocation, buffer.start - start


def buffer_of(array: np.ndarray, buffers: Sequence[Buffer]) -> Buffer:
    """The buffer of an array argument. Raises InputError if `array` is not an argument."""
    for buffer in buffers:
        if np.shares_memory(buffer.bytes, array) and buffer.bytes.size == array.nbytes:
            return buffer
    raise InputError("`uninitialized` or `outputs` contains an array that is not an argument")


def _struct(number: int, fields: Sequence[Argument], buffers: dict[int, Buffer]) -> bytes:
    """Lay out fields as C does: align each field to its size (a tensor map to 64 bytes) and pad
    the struct to a multiple of the largest alignment."""
    packed, largest = bytearray(), 1
    for value in fields:
        if id(value) in buffers:
            value = buffers[id(value)].address
        if isinstance(value, TensorMap):
            data, alignment = _tensor_map(number, value, buffers), MAP_ALIGNMENT
        elif isinstance(value, (np.generic, bytes)):
            data = bytes(value) if isinstance(value, bytes) else value.tobytes()
            alignment = 1 if isinstance(value, bytes) else len(data)
        else:
            raise LaunchError(
                f"argument {number}: struct fields must be arrays, tensor maps, NumPy scalars or "
                f"bytes; the size of {value!r} is unknown"
            )
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
    if (isinstance(arg, (bool, int)) and kind == "f") or isinstance(arg, float):
        if kind != "f":
            raise LaunchError(f"{what} takes an integer, not {arg!r}")
        if parameter.size != WIDTHS[parameter.type]:
            raise LaunchError(f"{what} is an array and takes bytes, not {arg!r}")
        try:
            with np.errstate(over="ignore"):
                return bytes(np.array(arg, f"f{parameter.size}").tobytes())
        except OverflowError:
            raise LaunchError(f"{what} cannot hold a number this large") from None
    if isinstance(arg, int):
        if parameter.size > 8:
            raise LaunchError(f"{what} is a struct and takes bytes, not {arg!r}")
        if not -(1 << (bits - 1)) <= arg < 1 << bits:
            raise LaunchError(f"{what} cannot hold {arg}")
        return (arg % (1 << bits)).to_bytes(parameter.size, "little")
    raise LaunchError(f"{what} takes no {type(arg).__name__}")


def _tensor_map(number: int, arg: TensorMap, buffers: dict[int, Buffer]) -> bytes:
    if id(arg.array) not in buffers:
        raise LaunchError(
            f"argument {number}: a tensor map of {arg.array!r}, which is not an array"
        )
    buffer = buffers[id(arg.array)]
    start = int(arg.array.__array_interface__["data"][0])
    address = int(buffer.address) + start - buffer.start
    if address % CHUNK:
        raise LaunchError(
            f"argument {number}: the array of a tensor map is at {address:#x}, which is not "
            f"{CHUNK}-byte aligned"
        )
    return encode(arg, address)


def _bytes_around(array: np.ndarray) -> np.ndarray:
    """A flat view of the memory from an array's first element to its last, gaps included."""
    low, high = byte_bounds(array)
    return as_strided(array.view(np.uint8), (high - low,), (1,))


def _bytes_of(array: np.ndarray) -> np.ndarray:
    """A flat view of the array's bytes, in memory order."""
    if array.dtype.hasobject:
        raise InputError("a kernel cannot read an array of Python objects")
    if array.flags.c_contiguous:
        return array.reshape(-1).view(np.uint8)
    if array.flags.f_contiguous:
        return array.T.reshape(-1).view(np.uint8)
    raise InputError(
        f"a buffer must be contiguous; shape {array.shape} has strides {array.strides} bytes"
    )
