"""Statistics of samples. Times are in seconds, noise in percent of the mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemmlab.lab.bench.protocol import Protocol

FEWEST_FOR_NOISE = 5  # samples; NVBench reports no noise for fewer


@dataclass(frozen=True)
class Spread:
    """Statistics of samples. `noise_percent` is None for fewer than FEWEST_FOR_NOISE."""

    samples: int
    mean: float
    median: float
    p10: float
    p90: float
    noise_percent: float | None

    @classmethod
    def of(cls, samples: np.ndarray) -> Spread:
        """Compute them from at least one sample."""
        values = np.asarray(samples, np.float64)
        p10, median, p90 = (float(value) for value in np.percentile(values, (10, 50, 90)))
        mean = float(values.mean())
        noise = None
        if values.size >= FEWEST_FOR_NOISE:
            noise = 100 * float(values.std(ddof=1)) / mean
        return cls(values.size, mean, median, p10, p90, noise)


@dataclass(frozen=True)
class Moments:
    """Mean and noise of samples that were not kept."""

    samples: int
    mean: float
    noise_percent: float | None


def pooled(parts: Sequence[Moments]) -> Moments:
    """Return mean and noise over the samples of all parts; no noise if a part has none."""
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
    """Return NVBench's warnings: too few samples within the time limit, or too much noise."""
    found = []
    if spread.samples < protocol.min_samples:
        found.append(
            f"{spread.samples} samples in the time limit of {protocol.timeout_s:g} s, "
            f"not {protocol.min_samples}"
        )
    if spread.noise_percent is not None and spread.noise_percent > protocol.max_noise_percent:
        found.append(f"noise {spread.noise_percent:.2g} %, above {protocol.max_noise_percent:g} %")
    return found
