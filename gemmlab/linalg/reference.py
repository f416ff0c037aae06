"""A NumPy reference of what `kernels.gemm.sm90.pack` writes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmlab.kernels.gemm.sm90.config import (
    EMPTY_RISK,
    LOW,
    NOT_FINITE_RISK,
    WIDE_COUNT,
    WIDE_EVERY,
    WIDE_LEAST,
    WIDE_SHORTFALL,
    Scheme,
)


@dataclass(frozen=True)
class PackedRows:
    """A matrix of row vectors (vectors, depth) as 16-bit parts."""

    parts: np.ndarray  # (parts, vectors, depth), uint16: the bits
    unscale: np.ndarray  # (vectors,), int32: exponent that undoes the scale
    risk: np.ndarray  # (vectors,), int32: elements that lose bits, or why none is counted
    shortfall: np.ndarray  # (vectors,), int32: see `config`; 0 if none is counted

    @property
    def status(self) -> tuple[int, int]:
        """What packing adds to the matrix's two counts."""
        depth = self.parts.shape[2]
        wide = (self.risk > WIDE_LEAST + depth // WIDE_EVERY) & (
            self.shortfall > WIDE_SHORTFALL * depth
        )
        at_risk = int(self.risk.clip(0).sum()) + WIDE_COUNT * int(wide.sum())
        return at_risk, int((self.risk == NOT_FINITE_RISK).sum())

    @property
    def words(self) -> np.ndarray:
        """(vectors,), uint64: the array `risk` of the kernels."""
        marked = self.risk.astype(np.int64) + (self.shortfall.astype(np.int64) << 32)
        return marked.view(np.uint64)

    def sum(self, scheme: Scheme) -> np.ndarray:
        """The matrix that the parts represent, in float64."""
        exact = as_float32(self.parts, scheme.dtype).astype(np.float64).sum(axis=0)
        return np.asarray(np.ldexp(exact, self.unscale[:, None]))


def pack(matrix: np.ndarray, scheme: Scheme, first: str = "nearest") -> PackedRows:
    """Pack each row of a float32 matrix (vectors, depth).

    first: how the magnitude of the first part is rounded: "nearest", "down" or "up".
    """
    magnitude = np.abs(matrix).max(axis=1, initial=0.0)
    finite = np.isfinite(magnitude)
    _, exponent = np.frexp(np.where(finite, magnitude, 0.0))
    scale = np.where(finite & (magnitude > 0), scheme.peak - (exponent - 1), 0)
    kept = np.where(finite[:, None], matrix, np.float32(0)).astype(np.float64)
    rest = np.ldexp(kept, scale[:, None]).astype(np.float32)
    low = np.abs(rest) < np.float32(2.0**scheme.floor)
    at_risk = (rest != 0) & low
    below = scheme.peak - (np.frexp(rest)[1] - 1)
    shortfall = np.where(low, LOW, below).sum(axis=1) * (scheme.doubt > 0)
    shortfall = np.where(finite & (magnitude > 0), shortfall, 0)
    parts, value = [], rest
    for part in range(scheme.parts):
        if scheme.has_ties and part == scheme.parts - 1:  # ties go away from zero
            rest = rest + np.copysign(np.float32(2.0**-20), rest * value) * rest
        head = one_way(rest, first) if part == 0 and first != "nearest" else rest
        parts.append(to_bits(head, scheme.dtype))
        rest = rest - as_float32(parts[-1], scheme.dtype)
    risk = np.where(magnitude > 0, at_risk.sum(axis=1), EMPTY_RISK)
    risk = np.where(finite, risk, NOT_FINITE_RISK)
    counts = (risk.astype(np.int32), shortfall.astype(np.int32))
    return PackedRows(np.stack(parts), (-scale).astype(np.int32), *counts)


def one_way(values: np.ndarray, way: str) -> np.ndarray:
    """Round magnitudes of float32 values to 11 significant bits, "down" or "up"."""
    fraction, exponent = np.frexp(np.abs(values).astype(np.float64))
    whole = np.floor(2048 * fraction) if way == "down" else np.ceil(2048 * fraction)
    return np.asarray(np.copysign(np.ldexp(whole, exponent - 11), values), np.float32)


def to_bits(values: np.ndarray, dtype: str) -> np.ndarray:
    """Round finite float32 values to nearest even; return the 16-bit patterns."""
    if dtype == "float16":
        return values.astype(np.float16).view(np.uint16)
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def as_float32(bits: np.ndarray, dtype: str) -> np.ndarray:
    """Return the values of 16-bit patterns."""
    if dtype == "float16":
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)
