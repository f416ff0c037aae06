"""What the split of a matrix must write, in NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmlab.kernels.gemm.sm90.config import WIDE_COUNT, WIDE_EVERY, WIDE_LEAST, Scheme


@dataclass(frozen=True)
class Split:
    """A matrix of row vectors (vectors, depth) as 16-bit parts."""

    parts: np.ndarray  # (parts, vectors, depth), uint16: the bits
    unscale: np.ndarray  # (vectors,), int32: exponent that undoes the scale
    risk: np.ndarray  # (vectors,), int32: elements that lose bits; -1 where one is not finite

    @property
    def status(self) -> tuple[int, int]:
        """What is added to the matrix's counts."""
        wide = self.risk > WIDE_LEAST + self.parts.shape[2] // WIDE_EVERY
        at_risk = int(self.risk.clip(0).sum()) + WIDE_COUNT * int(wide.sum())
        return at_risk, int((self.risk < 0).sum())

    def sum(self, scheme: Scheme) -> np.ndarray:
        """The matrix that the parts stand for, in float64."""
        exact = as_float32(self.parts, scheme.dtype).astype(np.float64).sum(axis=0)
        return np.asarray(np.ldexp(exact, self.unscale[:, None]))


def split(matrix: np.ndarray, scheme: Scheme, first: str = "nearest") -> Split:
    """Split each row of a float32 matrix (vectors, depth) as `kernels.gemm.sm90.pack` does.

    The first part's magnitude is the value's, rounded to "nearest", "down" or "up".
    """
    magnitude = np.abs(matrix).max(axis=1, initial=0.0)
    finite = np.isfinite(magnitude)
    _, exponent = np.frexp(np.where(finite, magnitude, 0.0))
    scale = np.where(finite & (magnitude > 0), scheme.peak - (exponent - 1), 0)
    kept = np.where(finite[:, None], matrix, np.float32(0)).astype(np.float64)
    rest = np.ldexp(kept, scale[:, None]).astype(np.float32)
    at_risk = (rest != 0) & (np.abs(rest) < np.float32(2.0**scheme.floor))
    parts, value = [], rest
    for part in range(scheme.parts):
        if scheme.has_ties and part == scheme.parts - 1:  # they go away from zero
            rest = rest + np.copysign(np.float32(2.0**-20), rest * value) * rest
        head = one_way(rest, first) if part == 0 and first != "nearest" else rest
        parts.append(to_bits(head, scheme.dtype))
        rest = rest - as_float32(parts[-1], scheme.dtype)
    risk = np.where(finite, at_risk.sum(axis=1), -1)
    return Split(np.stack(parts), (-scale).astype(np.int32), risk.astype(np.int32))


def one_way(values: np.ndarray, way: str) -> np.ndarray:
    """float32 values with 11 significant bits, their magnitudes rounded "down" or "up"."""
    fraction, exponent = np.frexp(np.abs(values).astype(np.float64))
    whole = np.floor(2048 * fraction) if way == "down" else np.ceil(2048 * fraction)
    return np.asarray(np.copysign(np.ldexp(whole, exponent - 11), values), np.float32)


def to_bits(values: np.ndarray, dtype: str) -> np.ndarray:
    """Finite float32 values rounded to nearest even, as 16-bit patterns."""
    if dtype == "float16":
        return values.astype(np.float16).view(np.uint16)
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def as_float32(bits: np.ndarray, dtype: str) -> np.ndarray:
    """What 16-bit patterns stand for."""
    if dtype == "float16":
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)
