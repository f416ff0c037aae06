import pytest
from fake_driver import gpu, slow_multiply_adds


@pytest.fixture(autouse=True)
def emulated_by_numpy(rarely_native: None) -> None:
    """These kernels are large: LLVM would take seconds for each."""
