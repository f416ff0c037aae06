"""How a kernel with packed operands computes C if their values are too wide for float16."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from gemmlab.kernels.gemm.sm90.direct_config import DirectConfig
from gemmlab.linalg.arch import Architecture


def again(arch: Architecture, k: Any, k_major: tuple[bool, bool]) -> DirectConfig:
    """Return the first configuration in `arch.again` that is accurate at that depth, or the last.

    With the last one, kernels compute in another way only where that is never asked of them.
    """
    deep = (i for i, config in enumerate(arch.again) if k >= config.least_k)
    index = next(deep, len(arch.again) - 1)
    return _config(arch, index, *k_major)


@cache
def _config(arch: Architecture, index: int, *k_major: bool) -> DirectConfig:
    a_major, b_major = ("k" if x else "mn" for x in k_major)
    return replace(arch.again[index], a_major=a_major, b_major=b_major)
