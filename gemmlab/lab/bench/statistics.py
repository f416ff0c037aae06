"""Samples to numbers. Times in seconds, noise in percent of the mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemmlab.lab.bench.protocol import Protocol

FEWEST_FOR_NOISE = 5  # samples; NVBench states no noise of fewer


@dataclass(frozen=True)
class Spread:
    """What many samples say together; `noise_percent` is None for too few."""

    samples: int
    mean: float
    median: float
    p10: float
    p90: float
    noise_percent: float | None

    @classmethod
    def of(cls, samples: np.ndarray) -> Spread:
        """Of at least one sample."""
        values = np.asarray(samples, np.float64)
        p10, median, p90 = (float(value) for value in np.percentile(values, (10, 50, 90)))
        mean = float(values.mean())
        noise = None
        if values.size >= FEWEST_FOR_NOISE:
            noise = 100 * float(values.std(ddof=1)) / mean
        return cls(values.size, mean, median, p10, p90, noise)


@dataclass(frozen=True)
class Moments:
    """Mean and noise of samples that are no longer there themselves."""

    samples: int
    mean: float
    noise_percent: float | None


def pooled(parts: Sequence[Moments]) -> Moments:
    """Mean and noise of all samples of the parts; no noise where one part has none."""
    count = sum(part.samples for part in parts)
    mean = sum(part.samples * part.mean for part in parts) / count
    noises = [part.noise_percent for part in parts]
    if count < 2 or None in noises:
        return Moments(count, mean, None)
    squares = 0.0
    for part in parts:
        deviation = part.mean * (part.noise_percent or 0.0) / 100
        squares += (part.samples - 1) * deviation**2 + part.samples * (part.mean - mean) ** 2
    return Moments(count, mean, 100 * math.sqrt(squares / (count - 1)) / mean)


def warnings(spread: Spread, protocol: Protocol) -> list[str]:
    """What NVBench warns of: too few samples in the time limit, and noise that stayed high."""
    told = []
    if spread.samples < protocol.min_samples:
        told.append(
            f"{spread.samples} samples in the time limit of {protocol.timeout_s:g} s, "
            f"not {protocol.min_samples}"
        )
    if spread.noise_percent is not None and spread.noise_percent > protocol.max_noise_percent:
        told.append(f"noise {spread.noise_percent:.2g} %, above {protocol.max_noise_percent:g} %")
    return told
