"""GPU times by CUPTI, which sees work on all streams.

NVBench measures the time between two events on one stream, so it misses work on other streams.
CUPTI's activity records have time stamps of every kernel, copy and memset.
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
_ALL_RECORDS = 0  # as many as fit into a buffer
_FORCED = 1  # also flush records of unfinished work


class KernelClock:
    """CUPTI's activity records in this process.

    Raises MissingDependencyError if CUPTI is not installed.
    """

    def __init__(self) -> None:
        cupti: Any = CUPTI.load()
        self._cupti = cupti
        kinds = cupti.ActivityKind
        self._kinds = (kinds.CONCURRENT_KERNEL, kinds.MEMSET, kinds.MEMCPY)
        self._seconds = 0.0
        cupti.activity_register_callbacks(lambda: (_BUFFER_BYTES, _ALL_RECORDS), self._completed)

    def measure(self, launch: Callable[[], None], wait: Callable[[], None]) -> float | None:
        """Return the median seconds of the work of one `launch`, summed over all streams.

        Caches are warm. `wait` returns when the whole GPU is idle. The result is None if CUPTI
        fails or records no work.
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
