"""A GPU that is none, for tests of all that happens before kernels run."""

import fake_driver
import pytest


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> fake_driver.Framework:
    return fake_driver.install(monkeypatch)
