"""One warp and one memory access: the kernels of accesses.cu and their address patterns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

FILE = Path(__file__).parent / "accesses.cu"
# Arrays start at multiples of 64 KiB, because the cost of a copy depends on bits of its address.
# The emulator aligns arrays of this size likewise, since it leaves a gap of 512 bytes after each.
SPACING = 2**16
NBYTES = SPACING - 512

_TYPES = ("b8", "b16", "b32", "b64", "b128")
_OF_TYPE = [f"{kind}_{name}" for kind in ("global_ld", "global_st") for name in _TYPES]
_SHARED = [f"{kind}_{name}" for kind in ("shared_ld", "shared_st") for name in _TYPES]
_COPIES = [f"copy_{way}_{name}" for way in ("ld", "st") for name in ("b32", "b64", "b128")]
_COPIES += ["copy_cg_ld_b128", "copy_cg_st_b128"]
_MATRICES = [f"{way}matrix_{number}" for way in ("ld", "st") for number in ("x1", "x2", "x4")]
_ATOMICS = [f"global_{kind}_{name}" for kind in ("red", "atom") for name in ("b32", "b64")]
_ATOMICS += ["global_red_f16x2", "global_red_v4_f32"]
# Kernels that use the same memory; their counters are read together.
GROUPS = {
    "global": _OF_TYPE,
    "shared": _SHARED,
    "local": [f"local_{name}" for name in ("b32", "b64", "b128")],
    "atomic": [*_ATOMICS, "shared_atom_b32"],
    "copy": _COPIES,
    "matrix": _MATRICES,
}

_LANES = np.arange(32)


def _patterns() -> Iterator[tuple[str, np.ndarray]]:
    lane = _LANES
    for stride in (0, 1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 33):
        yield f"stride {stride}", lane * stride
    for offset in (1, 3, 31):
        yield f"offset {offset}", lane + offset
    for together in (2, 4, 8):
        yield f"{together} lanes share", lane // together
    for different in (8, 16):
        yield f"every {different} lanes again", lane % different
    for mask in (1, 8, 16):
        yield f"xor {mask}", lane ^ mask
    yield "reversed", 31 - lane
    yield "halves apart", lane % 16 + lane // 16 * 64
    yield "halves apart, shared", lane % 16 // 2 + lane // 16 * 64
    yield "quarters apart", lane % 8 + lane // 8 * 40
    yield "low half", np.where(lane < 16, lane, -1)
    yield "high half", np.where(lane >= 16, lane, -1)
    yield "odd lanes", np.where(lane % 2, lane, -1)
    yield "one lane", np.where(lane == 5, lane, -1)
    yield "two lanes", np.where((lane == 3) | (lane == 20), lane * 33, -1)
    yield "no lane", np.full(32, -1)
    yield "every third lane", np.where(lane % 3 == 0, lane * 2, -1)
    rng = np.random.default_rng(5)
    for k in range(5):
        yield f"random {k}", rng.integers(0, 60 * (k + 1), 32)
    for k in range(3):
        yield (
            f"random, some lanes {k}",
            np.where(rng.random(32) < 0.6, rng.integers(0, 300, 32), -1),
        )


def indices(at: np.ndarray) -> np.ndarray:
    """Return a pattern as a kernel's first array."""
    return np.concatenate([at, np.zeros(NBYTES // 4 - len(at), np.int32)])


PATTERNS = {name: at.astype(np.int32) for name, at in _patterns()}


def arrays(kernel: str) -> int:
    """Return the number of arrays that a kernel takes, including the indices."""
    return 3 if kernel.startswith(("global_ld", "global_atom", "copy")) else 2
