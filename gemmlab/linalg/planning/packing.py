"""The predicted time of packing an operand."""

from typing import Any

from gemmlab.linalg.arch import Architecture
from gemmlab.linalg.planning.formulas import least, most


def packing_seconds(
    vectors: Any, k: Any, batch: Any, k_major: bool, unaligned: Any, arch: Architecture
) -> Any:
    """Seconds to pack vectors of length k. unaligned: 1 if their lines are not aligned, else 0."""
    size, longer = 8 * vectors * k * batch, 1 + arch.pack_unaligned * unaligned
    if not k_major:
        return most(size / arch.pack_mn_major_rate, k * arch.pack_strip) * longer
    vector_time = arch.vector_time + arch.long_vector_time * least(k // (arch.long + 1), 1)
    return most(size / arch.pack_k_major_rate, vectors * batch * vector_time) * longer
