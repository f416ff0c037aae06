"""A least-recently-used cache."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class Recent(Generic[Key, Result]):
    """A thread-safe cache that evicts the least recently used results above a total weight.

    most: the maximum total weight. weigh: the weight of a key; 1 by default. The most recently used
    result is never evicted.
    """

    def __init__(self, most: int, weigh: Callable[[Key], int] = lambda key: 1) -> None:
        self.most, self.weigh = most, weigh
        self.weight = 0
        self._results: OrderedDict[Key, Result] = OrderedDict()
        self._lock = threading.RLock()

    def get(self, key: Key, make: Callable[[], Result]) -> Result:
        """The result for a key, computed by `make` if missing. Exceptions are not cached."""
        with self._lock:
            if key not in self._results:
                self._results[key] = make()
                self.weight += self.weigh(key)
            self._results.move_to_end(key)
            while self.weight > self.most and len(self._results) > 1:
                oldest, _ = self._results.popitem(last=False)
                self.weight -= self.weigh(oldest)
            return self._results[key]

    def clear(self) -> None:
        with self._lock:
            self._results.clear()
            self.weight = 0
