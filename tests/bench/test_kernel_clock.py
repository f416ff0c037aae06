"""CUPTI's clock on a CUPTI of its own."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gemmlab.errors import MissingDependencyError
from gemmlab.lab.bench import kernel_clock
from gemmlab.lab.bench.kernel_clock import KernelClock


class CuptiError(Exception):
    pass


class FakeCupti:
    """Delivers the records of what was launched since the last flush."""

    ActivityKind = SimpleNamespace(CONCURRENT_KERNEL=1, MEMSET=2, MEMCPY=3)
    cuptiError = CuptiError

    def __init__(self, broken=False):
        self.enabled, self.waiting, self.broken = set(), [], broken

    def activity_register_callbacks(self, requested, completed):
        self.completed = completed
        assert requested()[0] > 0

    def activity_enable(self, kind):
        if self.broken:
            raise CuptiError("insufficient privileges")
        self.enabled.add(kind)

    def activity_disable(self, kind):
        self.enabled.discard(kind)

    def activity_flush_all(self, flag):
        self.completed(self.waiting)
        self.waiting = []

    def launch(self, *spans):
        if self.enabled:
            self.waiting += [SimpleNamespace(start=start, end=end) for start, end in spans]


@pytest.fixture
def cupti(monkeypatch):
    fake = FakeCupti()
    package: Any = ModuleType("cupti")
    package.cupti = fake
    monkeypatch.setitem(sys.modules, "cupti", package)
    monkeypatch.setitem(sys.modules, "cupti.cupti", fake)
    monkeypatch.setattr(kernel_clock, "WARM_UP_S", 0.0)
    return fake


def test_work_of_all_streams_adds_up(cupti):
    spans = [(1_000, 3_000), (1_500, 5_500)]  # ns, side by side
    seconds = KernelClock().measure(lambda: cupti.launch(*spans), lambda: None)
    assert seconds == pytest.approx(6e-6)
    assert not cupti.enabled


def test_nothing_is_claimed_where_cupti_says_nothing(cupti):
    clock = KernelClock()
    assert clock.measure(lambda: None, lambda: None) is None
    cupti.broken = True
    assert clock.measure(lambda: cupti.launch((0, 9)), lambda: None) is None


def test_without_cupti_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupti.cupti", None)
    with pytest.raises(MissingDependencyError, match="CUPTI"):
        KernelClock()
