"""Roundings that go wrong if computed through float64."""

import numpy as np
import pytest

from gemmlab.emulator.arithmetic import numerics


def float32(*bits):
    return [np.array([b], np.uint32).view(np.float32) for b in bits]


@pytest.mark.parametrize(
    ("operands", "wanted"),
    [
        # The exact result is just below the smallest normal number and rounds to a subnormal.
        ((2575304697, 444592143, 0x00800000), 0x007FFFFF),
        # (1 + 2^-12)^2 - 2^-60 is just below a tie, to which float64 rounds it.
        ((0x3F800800, 0x3F800800, 0xA1800000), 0x3F801000),
        # +1·0 - 0 and exact cancellation are +0; a NaN is canonical.
        ((0x3F800000, 0x00000000, 0x80000000), 0x00000000),
        ((0x7F800000, 0x00000000, 0x3F800000), 0x7FFFFFFF),
    ],
)
def test_fma_rounds_once(operands, wanted):
    with np.errstate(all="ignore"):
        result = numerics.fma32(*float32(*operands))
    assert result.view(np.uint32).tolist() == [wanted]
