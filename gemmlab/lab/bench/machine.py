"""The state of the machine during a measurement: constant facts, clocks, temperature and power.

Clocks are not locked, because users of a shared GPU lack the permission. Instead, kernels run until
the clock settles, and every record has the clock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from gemmlab.devices.cuda import CudaDevice

SETTLED = 0.01  # largest relative change of a settled clock
LEAST_S = 3.0  # warm-up before the first measurement
MOST_S = 10.0  # longest warm-up
PAUSE_S = 0.2  # between two readings of the clock


@dataclass(frozen=True)
class Reading:
    """One reading of the sensors; None for values that the driver does not report."""

    sm_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    others: int | None = None  # other processes with a context on the GPU


class Sensors:
    """The sensors of one GPU, read through NVML."""

    def __init__(self, device: CudaDevice) -> None:
        from cuda.core.system.typing import FieldId

        self._nvml = device.gpu.to_system_device()
        self._fields = FieldId

    def read(self) -> Reading:
        return Reading(
            sm_mhz=_told(lambda: self._nvml.get_clock("sm").get_current_mhz()),
            temperature_c=_told(lambda: self._nvml.temperature.get_sensor()),
            power_w=self._watts("DEV_POWER_INSTANT"),
            others=_others(_told(lambda: self._nvml.compute_running_processes) or ()),
        )

    def facts(self) -> dict[str, Any]:
        """Return the constants: driver version, maximum clocks, power limit."""
        from cuda.core import system

        return {
            "driver": _told(lambda: _dotted(system.get_kernel_mode_driver_version())),
            "sm_max_mhz": _told(lambda: self._nvml.get_clock("sm").get_max_mhz()),
            "memory_mhz": _told(lambda: self._nvml.get_clock("memory").get_current_mhz()),
            "power_limit_w": self._watts("DEV_POWER_CURRENT_LIMIT"),
            "clocks": "as found, not locked",
        }

    def _watts(self, field: str) -> float | None:
        fields = [getattr(self._fields, field)]
        milliwatts = _told(lambda: self._nvml.get_field_values(fields)[0].value)
        return None if milliwatts is None else milliwatts / 1e3


def facts(device: CudaDevice, sensors: Sensors) -> dict[str, Any]:
    """Return the description of the machine for its records."""
    properties = device.gpu.properties
    bus_gbs = 2 * 1e3 * properties.memory_clock_rate * properties.global_memory_bus_width / 8 / 1e9
    return {
        "gpu": device.gpu.name,
        "arch": device.arch,
        "sms": properties.multiprocessor_count,
        "l2_bytes": properties.l2_cache_size,
        "bus_gbs": bus_gbs,
        "ecc": bool(properties.ecc_enabled),
        **sensors.facts(),
    }


def settle(
    work: Callable[[], None],
    sm_mhz: Callable[[], float | None],
    least_s: float,
    now: Callable[[], float] = time.perf_counter,
) -> float:
    """Repeat `work` until the clock settles; return the seconds that it took.

    The clock has settled when two readings, PAUSE_S apart, differ by less than SETTLED. The work is
    repeated for at least `least_s` and about MOST_S at most. `now` returns seconds.
    """
    start, before = now(), sm_mhz()
    while True:
        until = now() + PAUSE_S
        while now() < until:
            work()
        after = sm_mhz()
        took = now() - start
        steady = not before or not after or abs(after - before) < SETTLED * before
        if took >= MOST_S or (took >= least_s and steady):
            return took
        before = after


def _others(processes: Iterable[Any]) -> int | None:
    """Count the processes other than this one and its parent.

    Returns None if neither is listed although others are: NVML then uses another namespace's ids.
    """
    own, found = {os.getpid(), os.getppid()}, {process.pid for process in processes}
    return len(found - own) if found & own else None


def _told(ask: Callable[[], Any]) -> Any:
    """Return the result of an NVML query; None if it fails. Any query can fail on some machine."""
    try:
        return ask()
    except Exception:  # NVML's errors and cuda.core's own have no common base
        return None


def _dotted(version: tuple[int, ...]) -> str:
    """Format a version as the driver does: 580.159.04."""
    return ".".join(f"{part:02d}" for part in version)
