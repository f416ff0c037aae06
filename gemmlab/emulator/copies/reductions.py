"""The operations of bulk reductions, on byte arrays (PTX ISA, "cp.reduce.async.bulk")."""

from __future__ import annotations

import numpy as np

from gemmlab.emulator.memory import atomics
from gemmlab.emulator.observer import Combine

INTEGERS = {"u32", "s32", "u64", "s64"}
# Element format of a tensor map -> PTX type.
PTX_TYPES = {"uint32": "u32", "int32": "s32", "uint64": "u64", "int64": "s64"}
PTX_TYPES |= {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}
OPERATIONS = {
    "add": INTEGERS | {"f16", "bf16", "f32", "f64"},
    "min": INTEGERS | {"f16", "bf16"},
    "max": INTEGERS | {"f16", "bf16"},
    "inc": {"u32"},
    "dec": {"u32"},
    "and": {"b32", "b64"},
    "or": {"b32", "b64"},
    "xor": {"b32", "b64"},
}


def find(operation: str, type_: str) -> Combine | None:
    """The function for an operation and a PTX type; None if PTX does not define it."""
    if operation in ("and", "or", "xor"):
        type_ = "b" + type_[1:]
    if type_ not in OPERATIONS.get(operation, ()):
        return None
    if type_ in ("f16", "bf16"):
        return _halves(operation, type_)
    function = atomics.find_operation(operation, type_, "shared")
    assert function is not None
    dtype = np.dtype({"u": "u", "s": "i", "b": "u", "f": "f"}[type_[0]] + str(int(type_[1:]) // 8))

    def combine(old: np.ndarray, new: np.ndarray) -> np.ndarray:
        result: np.ndarray = function(old.view(dtype), new.view(dtype))
        return result.view(np.uint8)

    return combine


def _halves(operation: str, type_: str) -> Combine:
    """16-bit floats are computed in float32 and rounded once, which is exact for two operands."""
    function = {"add": np.add, "min": np.fmin, "max": np.fmax}[operation]

    def combine(old: np.ndarray, new: np.ndarray) -> np.ndarray:
        if type_ == "f16":
            a, b = (x.view(np.float16).astype(np.float32) for x in (old, new))
            result = function(a, b)
            bits = result.astype(np.float16).view(np.uint16)
        else:
            a, b = (
                (x.view(np.uint16).astype(np.uint32) << 16).view(np.float32) for x in (old, new)
            )
            result = function(a, b)
            words = result.view(np.uint32)
            bits = (words + 0x7FFF + (words >> 16 & 1) >> 16).astype(np.uint16)
        return np.where(np.isnan(result), np.uint16(0x7FFF), bits).view(np.uint8)

    return combine
