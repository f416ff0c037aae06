"""In which precision a kernel computes: from how wrong it is, and from what its PTX contains.

    class   loses at most, of each product       for example
    ieee    nothing                              float32 FMAs in any order
    x3      2**-12                               products of two or three 16-bit or TF32 parts
    tf32    2**-9: two inputs cut to 11 bits     TF32 tensor cores
    fp16    2**-9, and the range of float16      float16 inputs
    bf16    2**-6: two inputs cut to 8 bits      bfloat16 inputs

An element keeps the bounds of a class if its error is at most the problem's float32 bound plus the
loss, in units of u·magnitude. Sharp for this are few terms, where losses do not average out, and
one-hot inputs, where the result is one input: 0 u for float32, up to 8192 u for TF32, 65536 u for
bfloat16. Zeros and small integers are exact in every class: a kernel that is wrong on those is
wrong. Infinities have to come out right of ieee only, as an infinity has no parts.

Below the smallest normal number of a format its numbers are a fixed distance apart, so an input
there loses as much as that number does, and counts as it in the magnitude. For float16 that is
2**-14, with 2**-24 from one number to the next; for all others 2**-126. Of numbers too large for
float16, from 65520, nothing is asked: its kernels may make infinities of them.

The accuracy of a kernel is the best class whose bounds all of its results keep, and must be that of
the class it wants to be judged in. Its class is its accuracy; but one that multiplies in tensor
cores, or in half precision, is x3 at best, however right its results are, and one that asks for
float16 is float16 at best. Speeds are compared within a class, with cuBLAS computing in that class
too.
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
# Families with numbers that the 5 bits of exponent of float16 do not hold.
WIDE_FAMILIES = ("wide", "special")

# Products of inputs narrower than float32: tensor cores, and packed or scalar half arithmetic.
_TENSOR = re.compile(r"\b(?:wmma\.mma|mma\.sync|wgmma\.mma_async|tcgen05\.mma)[\w.:]*")
_NARROW = re.compile(r"\b(?:fma|mul|add)\.[\w.]*\b(?:f16|bf16)(?:x2)?\b")


def kept(verdict: Verdict, case: Case, image: np.ndarray | None) -> str | None:
    """The best class whose bounds a result keeps; None for no class.

    `image` is the output as it lies in memory, None where nothing was compared.
    """
    if verdict.passed:
        return CLASSES[0]
    if verdict.status != "wrong answer" or verdict.max_error_u is None or image is None:
        return None
    if not verdict.bound_u or case.family in EXACT_FAMILIES:  # what is moved or counted is exact
        return None
    if not math.isfinite(verdict.max_error_u):
        return {"special": "x3", "wide": "fp16"}.get(case.family)
    for name in CLASSES:
        error_u = _float16_error_u(case, image) if name == "fp16" else verdict.max_error_u
        if error_u <= verdict.bound_u + LOSS_U[name]:
            return name
    return None


def _float16_error_u(case: Case, image: np.ndarray) -> float:
    """The largest error, in units of u and the magnitude that it has in the class of float16."""
    found = errors(case.result(image), case.reference(), case.magnitude(least=FLOAT16_NORMAL))
    return float(found.max(initial=0.0))


def suffices(kept: str | None, wanted: str) -> bool:
    """Whether a result that keeps the bounds of the one class is good enough in the other."""
    return kept is not None and CLASSES.index(kept) <= CLASSES.index(wanted)


def accuracy(found: Iterable[str]) -> str:
    """The best class whose bounds all results keep, from the class that each of them keeps."""
    return max(found, key=CLASSES.index, default=CLASSES[0])


def classify(found: Iterable[str], ptx: str, wanted: str = CLASSES[0]) -> str:
    """The class of a kernel, from the class that each of its results keeps.

    One that wants to be judged as float16 was asked for no wider range, and is no better for it.
    """
    best = "fp16" if wanted == "fp16" else "x3" if instructions(ptx) else CLASSES[0]
    return max(best, accuracy(found), key=CLASSES.index)


def instructions(ptx: str) -> list[str]:
    """The different instructions that multiply numbers narrower than float32, in order."""
    found = [match[0] for pattern in (_TENSOR, _NARROW) for match in pattern.finditer(ptx)]
    return list(dict.fromkeys(found))
