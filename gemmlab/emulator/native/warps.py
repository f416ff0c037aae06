"""Access to the state of warps for the scheduler's routines."""

from __future__ import annotations

import numpy as np

from gemmlab.emulator.native.builder import Function, Variable
from gemmlab.emulator.native.layout import CORE, WARP_STATE
from gemmlab.emulator.native.support import number
from gemmlab.emulator.native.values import I32, I64, U32, Pointer, Value

STATUS = I32


def status(f: Function, code: int) -> Value:
    return f.constant(np.int32(code))


def field(f: Function, warp: Pointer, name: str) -> Value:
    return f.load(warp.at(WARP_STATE[name]), U32)


def put(f: Function, warp: Pointer, name: str, value: Value | int) -> None:
    value = f.constant(np.uint32(value)) if isinstance(value, int) else value
    f.store(warp.at(WARP_STATE[name]), value)


def vector(f: Function, warp: Pointer, name: str) -> Value:
    return f.load(warp.at(WARP_STATE[name]), U32, vector=True, align=64)


def warps_of(f: Function, core: Pointer) -> tuple[Variable, Value]:
    """Return a loop variable that starts at 0, and the number of warps."""
    return Variable(f, number(f, 0)), f.load(core.at(CORE["num_warps"]), I64)


def warp_at(f: Function, core: Pointer, index: Value) -> Pointer:
    stride = f.load(core.at(CORE["warp_stride"]), I64)
    return f.load_pointer(core.at(CORE["warps"])).at(index * stride)
