"""In which precision a kernel computes: from how wrong it is, and from what its PTX contains.

    class   loses at most, of each product       for example
    ieee    nothing                              float32 FMAs in any order
    x3      2**-14                               products of two or three 16-bit or TF32 parts
    tf32    2**-9: two inputs cut to 11 bits     TF32 tensor cores
    fp16    2**-9, and the range of float16      float16 inputs
    bf16    2**-6: two inputs cut to 8 bits      bfloat16 inputs

An element keeps the bounds of a class if its error is at most the problem's float32 bound plus the
loss, in units of u·magnitude. Sharp for this are few terms, where losses do not average out, and
one-hot inputs, where the result is one input: 0 u for float32, up to 8192 u for TF32, 65536 u for
bfloat16. Zeros and small integers are exact in every class: a kernel that is wrong on those is
wrong. Float16 is not tried on numbers that it cannot hold.

The class is the best whose bounds all results keep; but one that multiplies in tensor cores is x3
at best, however right its results are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gemmlab.judge import Verdict
from gemmlab.problems.problem import U

CLASSES = ("ieee", "x3", "tf32", "fp16", "bf16")
FLOAT32 = ("ieee", "x3")  # the classes whose results are float32's
LOSS_U = {
    "ieee": 0.0,
    "x3": 2.0**-14 / U,
    "tf32": 2.0**-9 / U,
    "fp16": 2.0**-9 / U,
    "bf16": 2.0**-6 / U,
}
EXACT_FAMILIES = ("integers", "zeros")
# Families with numbers outside the 5 bits of exponent of float16.
WIDE_FAMILIES = ("wide", "special")

# Products of inputs narrower than float32: tensor cores, and packed or scalar half arithmetic.
_TENSOR = re.compile(r"\b(?:wmma\.mma|mma\.sync|wgmma\.mma_async|tcgen05\.mma)[\w.:]*")
_NARROW = re.compile(r"\b(?:fma|mul|add)\.[\w.]*\b(?:f16|bf16)(?:x2)?\b")


def kept(verdict: Verdict, family: str, bounded: bool) -> str | None:
    """The best class whose bounds a result keeps; None for no class.

    `bounded` says that the problem rounds at all: what it only moves or counts is exact.
    """
    if verdict.passed:
        return CLASSES[0]
    if verdict.status != "wrong answer" or verdict.max_error_u is None or not bounded:
        return None
    if family in EXACT_FAMILIES:
        return None
    if family in WIDE_FAMILIES and not verdict.max_error_u <= verdict.bound_u + LOSS_U["bf16"]:
        return "fp16"
    for name in CLASSES:
        if verdict.max_error_u <= verdict.bound_u + LOSS_U[name] and name != "fp16":
            return name
    return None


def classify(found: Iterable[str], ptx: str) -> str:
    """The class of a kernel, from the class that each of its results keeps."""
    seen = set(found)
    opcodes = instructions(ptx)
    worst = max(seen, key=CLASSES.index, default=CLASSES[0])
    if worst == "fp16" and "bf16" in seen:
        worst = "bf16"
    if worst == CLASSES[0] and opcodes:
        return "x3"
    return worst


def instructions(ptx: str) -> list[str]:
    """The different instructions that multiply numbers narrower than float32, in order."""
    found = [match[0] for pattern in (_TENSOR, _NARROW) for match in pattern.finditer(ptx)]
    return list(dict.fromkeys(found))
