"""A fake GPU, for tests of everything that happens before kernels run."""

import fake_driver
import pytest


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> fake_driver.Framework:
    return fake_driver.install(monkeypatch)
