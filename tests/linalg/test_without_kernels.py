"""Products if the tensor core kernels cannot be compiled because the CuTe DSL is broken."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import fake_driver
import numpy as np
import pytest
from fake_driver import Array

import gemmlab
from gemmlab.core import built
from gemmlab.errors import CompileError, MissingDependencyError
from gemmlab.linalg.planning import tiers
from gemmlab.linalg.planning.launch import WorkspaceAddresses
from gemmlab.linalg.planning.program import Job
from gemmlab.linalg.runtime import compilation, kernels, products

SIZE = 1024  # large enough for tensor cores
RNG = np.random.default_rng(7)
A, B = RNG.standard_normal((2, SIZE, SIZE), dtype=np.float32)


class Compiling(fake_driver.TensorCoreRun):
    """Compiles first, like the real class."""

    def __init__(self, job: Job, *place: Any) -> None:
        kernels.prepare(x.code for x in job.launches(WorkspaceAddresses(0, 0, 0), 132))
        super().__init__(job, *place)


@pytest.fixture
def broken(gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    """Make `import cutlass` fail, as if one of its libraries were missing; cache nothing."""
    (tmp_path / "cutlass").mkdir()
    text = "raise ImportError('libcute.so: cannot open shared object file')"
    (tmp_path / "cutlass" / "__init__.py").write_text(text)
    for name in [name for name in sys.modules if name.partition(".")[0] == "cutlass"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("GEMMLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(products, "TensorCoreRun", Compiling)
    monkeypatch.setattr(built, "FOLDER", tmp_path / "built")
    monkeypatch.setattr(kernels, "_loadable", {})
    # Child processes would import the real package.
    monkeypatch.setattr(compilation, "compile_all", lambda codes: None)
    kernels.artifact.cache_clear()
    tiers._warn_once.cache_clear()


@pytest.mark.slow
@pytest.mark.usefixtures("broken")
def test_the_default_goes_on_with_ieee_and_says_so_once() -> None:
    with pytest.warns(RuntimeWarning, match="ieee.*libcute.so: cannot open.*force-reinstall"):
        c = gemmlab.matmul(Array(A), Array(B))
    assert np.allclose(c.values, A @ B, atol=1e-3)
    plan = gemmlab.last_plan()
    assert plan.tier == "ieee" and plan.fallback is None
    assert plan.reason.startswith("the kernels for tensor cores cannot be compiled: nvidia-cutlass")
    with warnings.catch_warnings(action="error"):
        assert gemmlab.matmul(Array(A), Array(B)).shape == (SIZE, SIZE)
        gemmlab.matmul(Array(A), Array(B), alpha=2.0)  # planned anew
    with gemmlab.Matmul(Array(A), Array(B)) as product:
        assert product.plan().tier == "ieee"


@pytest.mark.parametrize("precision", ["fp16x3", "bf16x6"])
@pytest.mark.usefixtures("broken")
def test_a_precision_asked_for_by_name_is_not_replaced(precision: str) -> None:
    out = Array(np.zeros((SIZE, SIZE), np.float32))
    with pytest.raises(MissingDependencyError, match=r"libcute.so.*run: pip install --force"):
        gemmlab.matmul(Array(A), Array(B), out=out, precision=precision)
    assert not out.values.any()


@pytest.mark.usefixtures("broken")
def test_what_needs_no_kernels_warns_of_nothing() -> None:
    with warnings.catch_warnings(action="error"):
        gemmlab.matmul(Array(A), Array(B), precision="ieee")
        gemmlab.matmul(Array(A[:0]), Array(B))
        gemmlab.matmul(A, B)


@pytest.mark.usefixtures("gpu")
def test_a_compiler_that_fails_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise CompileError(
            "CuTe DSL cannot compile matmul_pack_k_major for sm_90a", "no ptxas\nno luck"
        )

    monkeypatch.setattr(products, "TensorCoreRun", refuse)
    tiers._warn_once.cache_clear()
    with pytest.warns(RuntimeWarning, match="cannot compile matmul_pack_k_major for sm_90a$"):
        gemmlab.matmul(Array(A), Array(B))
    assert gemmlab.last_plan().tier == "ieee"
    with pytest.raises(CompileError, match="no luck"):
        gemmlab.matmul(Array(A), Array(B), precision="fp16x3")
