"""How often each of the 256 byte values occurs in n bytes.

The C ABI of every kernel of this problem, in order:

    data      uint8 pointer
    counts    uint32 pointer to 256 counts, an accumulator: they are 0 when the kernel starts
    n         int64

Counts are exact, so the bound is 0, and integer additions give the same bits in any order. The
families differ in contention, which is all that a histogram's speed depends on: `uniform` bytes
seldom meet in a bin, `single` sends every byte to one bin, `text` has a few favourites.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from gemmlab.problems.inputs import generator
from gemmlab.problems.problem import TINY, Case, Parameter, Shape, check_case

BINS = 256
MOST = 2**32 - 1  # what one count can hold

# The space and the letters, by their share of English text in hundredths of a percent.
_LETTERS = b" etaoinsrhldcumfgpwybvkxjqz"
_SHARES = (
    *(1829, 1027, 751, 653, 616, 571, 568, 531, 498, 497, 331, 328, 228, 223),
    *(203, 198, 170, 162, 150, 143, 126, 79, 56, 14, 10, 8, 5),
)


def uniform(rng: np.random.Generator, n: int) -> np.ndarray:
    """Every value equally likely."""
    return rng.integers(0, BINS, n, dtype=np.uint8)


def single(rng: np.random.Generator, n: int) -> np.ndarray:
    """One value, everywhere."""
    return np.full(n, rng.integers(0, BINS), np.uint8)


def text(rng: np.random.Generator, n: int) -> np.ndarray:
    """Lower-case letters and spaces as often as in English."""
    share = np.array(_SHARES) / sum(_SHARES)
    return rng.choice(np.frombuffer(_LETTERS, np.uint8), n, p=share)


FAMILIES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "uniform": uniform,
    "single": single,
    "text": text,
}


class HistogramCase:
    """The bytes `data` (n,)."""

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
        return np.bincount(self.data, minlength=BINS).astype(np.float64)

    def magnitude(self, least: float = TINY) -> np.ndarray:
        return np.ones(BINS)


class Histogram:
    """The problem of counting bytes; see the module for the ABI and the families."""

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

    def case(self, shape: Shape, layout: str, family: str, seed: int) -> Case:
        """Draw the bytes. Raises ShapeError, UnknownNameError, InputError for the seed."""
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
