"""The precision class of a kernel, from its errors and its PTX.

    class   largest loss per product            example
    ieee    none                                float32 FMAs in any order
    x3      2**-12                              inputs split into two or three 16-bit or TF32 parts
    tf32    2**-9: inputs truncated to 11 bits  TF32 tensor cores
    fp16    2**-9, and the range of float16     float16 inputs
    bf16    2**-6: inputs truncated to 8 bits   bfloat16 inputs

An element is within the bounds of a class if its error is at most the problem's float32 bound plus
the loss, in units of u·magnitude. Sums of many random products hide the class because losses
average out. Sums of few terms reveal it, and so do one-hot inputs, where the result is one of the
inputs: its error is 0 u for float32, up to 8192 u for TF32 and up to 65536 u for bfloat16. Zeros
and small integers are exact in every class, so an error there is a wrong answer. Infinities must be
correct in ieee only, because an infinity cannot be split into parts.

Numbers below a format's smallest normal number have a fixed spacing, so their rounding error is
absolute. In the magnitude, smaller inputs count as that number: 2**-14 for float16, whose
subnormals are 2**-24 apart; 2**-126 for all others. fp16 makes no demand on inputs of 65520 and
more, which round to infinity in float16.

A kernel's accuracy is the best class whose bounds hold for all its results. It must reach the class
that the kernel requests. The class equals the accuracy, except that a kernel that multiplies in
tensor cores or in half precision is x3 at best, and a kernel that requests fp16 is fp16 at best.
Speeds are compared within a class; cuBLAS then computes in the same class.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import numpy as np

from gemmlab.lab.judge.judge import errors
from gemmlab.lab.judge.verdict import Verdict
from gemmlab.problems.problem import Case, U

CLASSES = ("ieee", "x3", "tf32", "fp16", "bf16")
LOSS_U = {
    "ieee": 0.0,
    "x3": 2.0**-12 / U,
    "tf32": 2.0**-9 / U,
    "fp16": 2.0**-9 / U,
    "bf16": 2.0**-6 / U,
}
FLOAT16_NORMAL = 2.0**-14
EXACT_FAMILIES = ("integers", "zeros")
# Input families with numbers outside the range of float16, which has 5 exponent bits.
WIDE_FAMILIES = ("wide", "special")

# Instructions that multiply inputs narrower than float32: tensor cores, scalar and packed halves.
_TENSOR = re.compile(r"\b(?:wmma\.mma|mma\.sync|wgmma\.mma_async|tcgen05\.mma)[\w.:]*")
_NARROW = re.compile(r"\b(?:fma|mul|add)\.[\w.]{0,40}\b(?:f16|bf16)(?:x2)?\b")


def class_of(verdict: Verdict, case: Case, image: np.ndarray | None) -> str | None:
    """Return the best class whose bounds a result satisfies, or None.

    `image` is the 1-D memory image of the output; None if no result was compared.
    """
    if verdict.passed:
        return CLASSES[0]
    if verdict.status != "wrong answer" or verdict.max_error_u is None or image is None:
        return None
    if not verdict.bound_u or case.family in EXACT_FAMILIES:  # must be exact in every class
        return None
    if not math.isfinite(verdict.max_error_u):
        return {"special": "x3", "wide": "fp16"}.get(case.family)
    for name in CLASSES:
        error_u = _float16_error_u(case, image) if name == "fp16" else verdict.max_error_u
        if error_u <= verdict.bound_u + LOSS_U[name]:
            return name
    return None


def _float16_error_u(case: Case, image: np.ndarray) -> float:
    """Return the largest error in units of u·magnitude, with the magnitude as defined for fp16."""
    found = errors(case.result(image), case.reference(), case.magnitude(least=FLOAT16_NORMAL))
    return float(found.max(initial=0.0))


def suffices(found: str | None, wanted: str) -> bool:
    """Return whether a result of class `found`, None for no class, meets the class `wanted`."""
    return found is not None and CLASSES.index(found) <= CLASSES.index(wanted)


def accuracy(found: Iterable[str]) -> str:
    """Return the least accurate of the classes of a kernel's results."""
    return max(found, key=CLASSES.index, default=CLASSES[0])


def classify(found: Iterable[str], ptx: str, wanted: str = CLASSES[0]) -> str:
    """Return the class of a kernel from the classes of its results, its PTX and its request.

    A kernel that requests fp16 is fp16 at best, because inputs outside that range were not tried.
    """
    best = "fp16" if wanted == "fp16" else "x3" if instructions(ptx) else CLASSES[0]
    return max(best, accuracy(found), key=CLASSES.index)


def instructions(ptx: str) -> list[str]:
    """Return the distinct instructions that multiply inputs narrower than float32.

    Tensor-core instructions come first, each group in the order of the text.
    """
    found = [match[0] for pattern in (_TENSOR, _NARROW) for match in pattern.finditer(ptx)]
    return list(dict.fromkeys(found))
