"""Precision classes: kernels that round their inputs as a class does, in NumPy, on every family.

The sums are float64, so that all error is that of the inputs.
"""

import numpy as np
import pytest

from gemmlab import problems
from gemmlab.lab.judge import precision
from gemmlab.lab.judge.judge import compare

GEMM = problems.find("gemm")
# Ragged, products that are a single term, and a right factor with numbers near 0 among many.
SHAPES = [(33, 31, 17), (300, 400, 1), (64, 1024, 1024)]
IN_RANGE = [name for name in GEMM.families if name not in precision.WIDE_FAMILIES]


def masked(bits, nearest):
    """Drop the lowest `bits` bits of float32 mantissas: round to nearest even, or truncate."""

    def rounding(x):
        word = np.ascontiguousarray(x).view(np.uint32)
        if nearest:
            word = word + np.uint32(2 ** (bits - 1) - 1) + ((word >> bits) & 1)
        word = word & np.uint32(2**32 - 2**bits)
        return np.where(np.isfinite(x), word.view(np.float32), x)

    return rounding


def float16(x):
    return x.astype(np.float16).astype(np.float32)


def float16_cut(x):
    """Round toward zero within float16's range; beyond it to infinity, as to nearest does."""
    half = x.astype(np.float16)
    away = np.isfinite(half) & (np.abs(half.astype(np.float32)) > np.abs(x))
    return np.where(away, np.nextafter(half, np.float16(0)), half).astype(np.float32)


def flushed(x):
    return np.where(np.abs(x) < precision.FLOAT16_NORMAL, 0, float16(x))


def one_part(rounding):
    return lambda a, b: rounding(a).astype(np.float64) @ rounding(b).astype(np.float64)


def two_parts(rounding):
    def multiply(a, b):
        a_high, b_high = rounding(a), rounding(b)
        a_low, b_low = rounding(a - a_high), rounding(b - b_high)
        product = np.matmul(a_high, b_high, dtype=np.float64)
        product += np.matmul(a_high, b_low, dtype=np.float64)
        return product + np.matmul(a_low, b_high, dtype=np.float64)

    return multiply


KERNELS = {
    "float32": ("ieee", lambda a, b: np.matmul(a, b, dtype=np.float64)),
    "two parts of TF32": ("x3", two_parts(masked(13, True))),
    "two parts of bfloat16": ("x3", two_parts(masked(16, True))),
    "TF32": ("tf32", one_part(masked(13, True))),
    "TF32, cut off": ("tf32", one_part(masked(13, False))),
    "float16": ("fp16", one_part(float16)),
    "float16, cut off": ("fp16", one_part(float16_cut)),
    "bfloat16": ("bf16", one_part(masked(16, True))),
    "bfloat16, cut off": ("bf16", one_part(masked(16, False))),
}


def kept(multiply, case):
    with np.errstate(invalid="ignore", over="ignore"):
        c = np.asarray(multiply(case.a, case.b), np.float32)
    verdict = compare(c, case.reference(), case.magnitude(), GEMM.bound_u(case.shape))
    return precision.class_of(verdict, case, c.ravel())


def drawn(shape, family, seed=0):
    return GEMM.case(dict(zip(GEMM.axes, shape, strict=True)), "row", family, seed)


@pytest.fixture(scope="module")
def cases():
    """Per family, a case of each shape, with the exact product that the first comparison makes."""
    return {
        family: [drawn(shape, family, seed) for seed, shape in enumerate(SHAPES)]
        for family in GEMM.families
    }


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.slow
def test_an_honest_kernel_keeps_the_bounds_of_its_class_and_of_no_better_one(cases, kernel):
    """Without numbers beyond float16's range, only bfloat16 fails to pass as float16."""
    name, multiply = KERNELS[kernel]
    found = {family: [kept(multiply, case) for case in cases[family]] for family in cases}
    for family, classes in found.items():
        for shape, one in zip(SHAPES, classes, strict=True):
            assert precision.suffices(one, name), (family, shape)
    assert precision.accuracy(one for family in found for one in found[family]) == name
    in_range = precision.accuracy(one for family in IN_RANGE for one in found[family])
    assert precision.suffices(in_range, "fp16") == (name != "bf16")


@pytest.mark.parametrize(
    ("scale", "rounding", "name"),
    [
        (2.0**-15, float16, "fp16"),
        (2.0**-15, float16_cut, "fp16"),
        (2.0**-15, flushed, None),
        (1.0, masked(16, True), "bf16"),
    ],
)
def test_among_small_numbers_float16_may_lose_what_float16_loses(scale, rounding, name):
    """float16's subnormals are in the class; flushing these to zero is not."""
    case = drawn((300, 400, 1), "normal")
    case.a *= np.float32(scale)
    assert kept(one_part(rounding), case) == name
