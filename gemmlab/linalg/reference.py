"""A NumPy reference of what `kernels.gemm.sm90.pack` writes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmlab.kernels.gemm.sm90.config import (
    DEEPEST,
    EMPTY_RISK,
    FAR,
    LEAST_PEAK,
    NEAR,
    NO_SHORTFALL,
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
    shortfall: np.ndarray  # (vectors,), float32: see `config`

    @property
    def status(self) -> tuple[int, int, int]:
        """What packing adds to the matrix's counts, and the largest count of a vector, or `FAR`."""
        many = self.risk > WIDE_LEAST + self.parts.shape[2] // WIDE_EVERY
        wide = many & (self.shortfall > WIDE_SHORTFALL)
        not_finite = int((self.risk == NOT_FINITE_RISK).sum())
        at_risk = int(self.risk.clip(0).sum()) + WIDE_COUNT * (int(wide.sum()) + not_finite)
        most = FAR if (abs(self.unscale) > NEAR).any() else int(self.risk.clip(0).max(initial=0))
        return at_risk, not_finite, most

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
    at_risk = (rest != 0) & (np.abs(rest) < np.float32(2.0**scheme.floor))
    parts, value = [], rest
    for part in range(scheme.parts):
        if scheme.has_ties and part == scheme.parts - 1:  # ties go away from zero
            rest = rest + np.copysign(np.float32(2.0**-20), rest * value) * rest
        head = one_way(rest, first) if part == 0 and first != "nearest" else rest
        parts.append(to_bits(head, scheme.dtype))
        rest = rest - as_float32(parts[-1], scheme.dtype)
    risk = np.where(magnitude > 0, at_risk.sum(axis=1), EMPTY_RISK)
    risk = np.where(finite, risk, NOT_FINITE_RISK)
    per_vector = ((-scale).astype(np.int32), risk.astype(np.int32), shortfalls(matrix))
    return PackedRows(np.stack(parts), *per_vector)


def shortfalls(matrix: np.ndarray) -> np.ndarray:
    """The shortfall of each row."""
    bits, depth = np.ascontiguousarray(matrix).view(np.int32) & 0x7FFFFFFF, matrix.shape[1]
    peak, exponents = bits.max(axis=1, initial=0), (bits >> 23).sum(axis=1)
    found = (peak >> 23).astype(np.float32) - exponents.astype(np.float32) / np.float32(depth)
    known = (peak >= (127 + LEAST_PEAK) << 23) & (depth <= DEEPEST)
    return np.where(known, found, np.float32(NO_SHORTFALL)).astype(np.float32)


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
