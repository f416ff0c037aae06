"""What all results of a run share: the machine, the protocol, versions, and the date."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from gemmlab.lab.bench import roofs
from gemmlab.lab.bench.nvbench import Samples
from gemmlab.lab.bench.protocol import Protocol
from gemmlab.lab.bench.roofs import Roofs


@dataclass(frozen=True)
class Circumstances:
    """The circumstances of a run, known once its first case has been measured."""

    machine: dict[str, Any]
    datasheet: Roofs
    protocol: Protocol
    versions: dict[str, str]
    date: str

    @classmethod
    def of(
        cls,
        facts: dict[str, Any],
        probes: Samples,
        protocol: Protocol,
        versions: dict[str, str],
    ) -> Circumstances:
        """Collect them. `probes` are the samples of the copy and of the FMA kernel."""
        datasheet = roofs.datasheet(
            *(facts["gpu"], facts["arch"], facts["sms"]),
            *(facts["sm_max_mhz"] or 0.0, facts["bus_gbs"]),
        )
        copy_s, fma_s = (float(np.median(probe.gpu_s)) if probe else None for probe in probes)
        measured = roofs.measured(copy_s, fma_s, facts["sms"])
        both = {"measured": asdict(measured), "datasheet": asdict(datasheet)}
        date = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(facts | {"roofs": both}, datasheet, protocol, versions, date)
