"""A plug-in for pytest: a test of the fast tier that takes too much processor time fails.

Processor time, not time on the clock: other processes on the machine do not change it much. Tests
that compile for the cache are let off, because they do so once on a machine.
"""

import os
from collections.abc import Generator

import pytest

from gemmlab.core import disk_cache

# More than ten times what CONTRIBUTING.md asks for: machines differ, coverage slows Python down,
# and a test may be the first of its process to import a framework.
MOST_S = 5.0

_CACHE = disk_cache.folder()  # some tests choose another one
_BEGUN = pytest.StashKey[tuple[float, int]]()


def _spent() -> float:
    """Processor time in seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


def _last_change() -> int:
    """When a file was last added to the cache."""
    return _CACHE.stat().st_mtime_ns if _CACHE.exists() else 0


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_BEGUN] = _spent(), _last_change()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    result = yield
    begun, change = item.stash[_BEGUN]
    spent = _spent() - begun
    is_fast = not any(map(item.get_closest_marker, ("slow", "gpu")))
    if is_fast and spent > MOST_S and change == _last_change():
        pytest.fail(
            f"The test and its fixtures took {spent:.1f} s of processor time; a test of the fast "
            f"tier may take {MOST_S} s. Make it quicker, or mark it with pytest.mark.slow.",
            pytrace=False,
        )
    return result
