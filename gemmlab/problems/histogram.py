"""The histogram of n bytes: the number of occurrences of each of the 256 byte values.

Every kernel of this problem takes these parameters, in this order (C ABI):

    data      uint8 pointer
    counts    uint32 pointer to 256 counts, an accumulator: zeroed before the kernel starts
    n         int64

Counts are exact and integer addition is associative, so the error bound is 0. The input families
differ in contention, the only property of the data that affects a histogram's speed: `uniform`
bytes rarely hit the same bin, `single` sends every byte to one bin, and `text` hits a few bins
often.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import numpy as np

from gemmlab.problems.inputs import generator
from gemmlab.problems.problem import TINY, VECTOR, Case, Parameter, Shape, Tensors, check_case

BINS = 256
MOST = 2**32 - 1  # the largest value of a uint32 count
_SLAB = 2**18  # numbers at a time, so that temporaries fit in the cache

# Frequencies of the space and the letters in English text, in hundredths of a percent.
_LETTERS = b" etaoinsrhldcumfgpwybvkxjqz"
_SHARES = (
    *(1829, 1027, 751, 653, 616, 571, 568, 531, 498, 497, 331, 328, 228, 223),
    *(203, 198, 170, 162, 150, 143, 126, 79, 56, 14, 10, 8, 5),
)


def uniform(rng: np.random.Generator, n: int) -> np.ndarray:
    """Every byte value with equal probability."""
    return rng.integers(0, BINS, n, dtype=np.uint8)


def single(rng: np.random.Generator, n: int) -> np.ndarray:
    """One random byte value, repeated."""
    return np.full(n, rng.integers(0, BINS), np.uint8)


def text(rng: np.random.Generator, n: int) -> np.ndarray:
    """Lower-case letters and spaces with the frequencies of English text.

    The same bytes as rng.choice(letters, n, p=shares), at least twice as fast.
    """
    letters, ends = np.frombuffer(_LETTERS, np.uint8), np.cumsum(np.array(_SHARES) / sum(_SHARES))
    drawn, data = rng.random(n), np.empty(n, np.uint8)

    def fill(start: int) -> None:
        part = slice(start, start + _SLAB)
        data[part] = letters[(ends / ends[-1]).searchsorted(drawn[part], side="right")]

    with ThreadPoolExecutor() as pool:
        list(pool.map(fill, range(0, n, _SLAB)))
    return data


FAMILIES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "uniform": uniform,
    "single": single,
    "text": text,
}


class HistogramCase:
    """One input `data` (n,), uint8."""

    def __init__(self, shape: Shape, layout: str, family: str, seed: int, data: np.ndarray) -> None:
        self.shape: Shape = dict(shape)
        self.layout, self.family, self.seed = layout, family, seed
        self.data = data
        self.buffers: Mapping[str, np.ndarray] = {"data": data}
        self.scalars: Mapping[str, int] = {"n": data.size}
        self.output, self.output_size, self.output_dtype = "counts", BINS, "uint32"

    def result(self, image: np.ndarray) -> np.ndarray:
        return image

    def reference(self) -> np.ndarray:
        return self._reference

    @cached_property
    def _reference(self) -> np.ndarray:
        return np.bincount(self.data, minlength=BINS).astype(np.float64)

    def magnitude(self, least: float = TINY) -> np.ndarray:
        return np.ones(BINS)


class Histogram:
    """The histogram of bytes; the module docstring gives the ABI and the input families."""

    name = "histogram"
    axes: tuple[str, ...] = ("n",)
    layouts: tuple[str, ...] = ("row",)
    families: tuple[str, ...] = tuple(FAMILIES)
    parameters: tuple[Parameter, ...] = (
        Parameter("data", "uint8", "input"),
        Parameter("counts", "uint32", "accumulator"),
        Parameter("n", "int64", "scalar"),
    )
    default_size = 2**17
    emulated_size = 2**21
    measured_size = 2**28
    judged = VECTOR
    tensors: Tensors | None = None

    def case(self, shape: Shape, layout: str, family: str, seed: int) -> Case:
        """Draw the bytes.

        Raises ShapeError, UnknownNameError (layout, family) and InputError (negative seed).
        """
        check_case(self, shape, layout, 0, MOST)
        rng = generator(family, FAMILIES, (shape["n"],), 0, seed)
        data = FAMILIES[family](rng, shape["n"])
        return HistogramCase(shape, layout, family, seed, data)

    def flops(self, shape: Shape) -> int:
        return 0

    def min_bytes(self, shape: Shape) -> int:
        return shape["n"] + 4 * BINS

    def bound_u(self, shape: Shape) -> float:
        return 0.0
