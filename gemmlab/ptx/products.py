"""Matrix products on tensor cores: what one instruction multiplies, and how wide its inputs are."""

from __future__ import annotations

import math
import re
from collections.abc import Collection

from gemmlab.ptx.opcodes import OPCODES

_IN_TEXT = re.compile(r"^[ \t]*(?:@!?%\w+[ \t]+)?((?:wg|w|tcgen05\.)?mma\.[\w.:]+)", re.MULTILINE)
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_MULTIPLIES = {"mma", "mma_async"}  # of wmma and wgmma, that also load, store and wait
_INTEGERS = {"s32", "s8", "u8", "s4", "u4", "b1"}
# Input type -> bits per input in a tensor core, which determine the rate of products; all other
# types have 16.
_BITS = {"f64": 64, "tf32": 32}
_BITS |= dict.fromkeys(("e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "f8f6f4"), 8)


def multiply_adds(opcode: Collection[str]) -> int:
    """Return the multiply-adds per lane of an instruction; 0 if it is no matrix product."""
    root, *words = opcode
    lanes = OPCODES[root].product_lanes if root in OPCODES else 0
    shapes = [found for word in words if (found := _SHAPE.fullmatch(word))]
    if not lanes or not shapes or not _MULTIPLIES.intersection(opcode):
        return 0
    return math.prod(map(int, shapes[0].groups())) // lanes


def flops(opcode: Collection[str]) -> int:
    """Return the floating-point operations per lane of an instruction if it is a matrix product."""
    return 0 if _INTEGERS.intersection(opcode) else 2 * multiply_adds(opcode)


def least_bits(ptx: str) -> int | None:
    """Return the width of the narrowest floating-point inputs of matrix products, or None.

    Narrower inputs are multiplied faster.
    """
    found = [match[1].replace("kind::", "").split(".") for match in _IN_TEXT.finditer(ptx)]
    products = [
        words
        for words in found
        if _MULTIPLIES.intersection(words) and not _INTEGERS.intersection(words)
    ]
    return min(
        (next((_BITS[word] for word in words if word in _BITS), 16) for words in products),
        default=None,
    )
