"""Bits of the element types of tensor cores to numbers."""

from __future__ import annotations

import numpy as np

from gemmlab.emulator.tensor_core import BF16, E4M3, E5M2, F16, TF32, Format

FORMATS = {"f16": F16, "bf16": BF16, "tf32": TF32, "e4m3": E4M3, "e5m2": E5M2}
WIDTHS = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}
TF32_MASK = np.uint32(0xFFFFE000)  # what the hardware reads of a float32


def values(data: np.ndarray, type_: str) -> np.ndarray:
    """The numbers in an array of bytes, along its last axis; float64."""
    data = np.ascontiguousarray(data)
    match type_:
        case "f16":
            numbers = data.view(np.float16)
        case "bf16":
            numbers = (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        case "tf32":
            numbers = (data.view(np.uint32) & TF32_MASK).view(np.float32)
        case "s8":
            numbers = data.view(np.int8)
        case "u8":
            numbers = data
        case _:
            numbers = EIGHT_BITS[type_][data]
    return numbers.astype(np.float64)


def _eight_bits(form: Format, exponent_bits: int) -> np.ndarray:
    """The numbers of all 256 bytes. Formats of 4 exponent bits have no infinity, and one NaN per
    sign; those of 5 are as IEEE has them (OCP 8-bit Floating Point Specification)."""
    code = np.arange(256)
    mantissa_bits = 7 - exponent_bits
    mantissa = code & (1 << mantissa_bits) - 1
    exponent = code >> mantissa_bits & (1 << exponent_bits) - 1
    implied = (exponent > 0) << mantissa_bits
    power = np.maximum(exponent, 1) - 1 + form.lowest - mantissa_bits
    number = np.ldexp((mantissa + implied).astype(np.float64), power)
    if exponent_bits == 4:
        number[code & 0x7F == 0x7F] = np.nan
    else:
        special = exponent == 31
        number[special] = np.where(mantissa[special] == 0, np.inf, np.nan)
    signed: np.ndarray = np.where(code & 0x80, -number, number)
    return signed


EIGHT_BITS = {"e4m3": _eight_bits(E4M3, 4), "e5m2": _eight_bits(E5M2, 5)}
