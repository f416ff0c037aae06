"""A third clock: when CUPTI saw work begin and end on the GPU, whatever stream it was on.

NVBench's GPU time is what lies between two events of one stream, which work on another stream
escapes. CUPTI's activity records hold the time stamps of every kernel, copy and memset.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from gemmlab.core.packages import CUPTI

WARM_UP_S = 0.1
LAUNCHES = 5
_BUFFER_BYTES = 8 * 2**20
_ALL_RECORDS = 0  # as many as a buffer holds
_FORCED = 1  # flush records of work that has not ended, too


class KernelClock:
    """CUPTI's activity records in this process. Raises MissingDependencyError without them."""

    def __init__(self) -> None:
        cupti: Any = CUPTI.load()
        self._cupti = cupti
        kinds = cupti.ActivityKind
        self._kinds = (kinds.CONCURRENT_KERNEL, kinds.MEMSET, kinds.MEMCPY)
        self._seconds = 0.0
        cupti.activity_register_callbacks(lambda: (_BUFFER_BYTES, _ALL_RECORDS), self._completed)

    def measure(self, launch: Callable[[], None], wait: Callable[[], None]) -> float | None:
        """Median seconds of work that one `launch` causes, of all streams added up, caches warm.

        `wait` returns when the whole GPU is idle. None where CUPTI refuses, or saw nothing.
        """
        until = time.perf_counter() + WARM_UP_S
        while time.perf_counter() < until:
            launch()
            wait()
        try:
            for kind in self._kinds:
                self._cupti.activity_enable(kind)
            found = [self._work(launch, wait) for _ in range(LAUNCHES)]
            for kind in self._kinds:
                self._cupti.activity_disable(kind)
        except self._cupti.cuptiError:
            return None
        return statistics.median(found) or None

    def _work(self, launch: Callable[[], None], wait: Callable[[], None]) -> float:
        self._seconds = 0.0
        launch()
        wait()
        self._cupti.activity_flush_all(_FORCED)
        return self._seconds

    def _completed(self, activities: list[Any]) -> None:
        self._seconds += sum(activity.end - activity.start for activity in activities) / 1e9
