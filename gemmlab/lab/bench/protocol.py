"""How long and how often to measure: NVBench's parameters, divided among interleaved rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gemmlab.errors import InputError


@dataclass(frozen=True)
class Protocol:
    """The limits for one contender in one case, in total over all rounds.

    A round measures every contender once, so that drift of clocks or temperature affects all of
    them. Within a round, NVBench takes at least its share of `min_samples` and of `min_time_s` of
    GPU time, and stops when the noise (standard deviation over mean) is below `max_noise_percent`
    or no longer falls, or after its share of `timeout_s` of wall time. Raises InputError for a
    value below its minimum.
    """

    rounds: int = 5
    min_samples: int = 10
    min_time_s: float = 0.5  # for cold samples, and the same for batches
    max_noise_percent: float = 0.5
    timeout_s: float = 15.0

    def __post_init__(self) -> None:
        for name in ("rounds", "min_samples"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} = {getattr(self, name)} must be at least 1")
        for name in ("min_time_s", "max_noise_percent", "timeout_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} = {getattr(self, name)} must be positive and finite")

    def nvbench_options(self) -> list[str]:
        """Return NVBench's command-line options for one round of one contender.

        Throttled samples are kept: clocks are not locked, but recorded.
        """
        options = {
            "--min-samples": math.ceil(self.min_samples / self.rounds),
            "--min-time": self.min_time_s / self.rounds,
            "--max-noise": self.max_noise_percent,
            "--timeout": self.timeout_s / self.rounds,
            "--batch-target-time": self.min_time_s / self.rounds,
            "--throttle-threshold": 0,
        }
        return [text for name, value in options.items() for text in (name, f"{value:g}")]

    def command_options(self) -> list[str]:
        """Return the protocol as options of `gemmlab bench`."""
        return [
            f"--rounds {self.rounds}",
            f"--min-samples {self.min_samples}",
            f"--min-time {self.min_time_s:g}",
            f"--max-noise {self.max_noise_percent:g}",
            f"--timeout {self.timeout_s:g}",
        ]
