"""A kernel is recompiled if and only if its file or a file that it imports changes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gemmlab.compile import closure, cute
from gemmlab.kernels import ladder


def names(text: str) -> set[str]:
    """The names of the files in a closure."""
    return set(text.split("\0")[::2])


def test_a_kernel_depends_on_what_it_imports_alone() -> None:
    found = names(cute.sources(ladder.find("naive").kernel))
    assert {"kernels/gemm/naive.py", "kernels/gemm/simt.py", "compile/cute_launch.py"} <= found
    assert not {name for name in found if name.startswith(("kernels/sum", "emulator", "linalg"))}
    assert not {"kernels/gemm/shared.py", "kernels/gemm/sm90/config.py"} & found
    assert found < names(cute.sources())


def test_imports_are_followed_from_file_to_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "gemmlab"
    (package / "kernels").mkdir(parents=True)
    (package / "kernels" / "one.py").write_text("from gemmlab.kernels import two\nimport numpy\n")
    (package / "kernels" / "two.py").write_text("def f():\n    import gemmlab.three\n")
    (package / "three.py").write_text("from gemmlab.kernels.one import x\n")
    (package / "four.py").write_text("")
    monkeypatch.setattr(closure, "ROOT", package.resolve())
    text = closure.closure(package / "kernels" / "one.py")
    assert names(text) == {"kernels/one.py", "kernels/two.py", "three.py"}
    (package / "four.py").write_text("y = 1\n")
    assert closure.closure(package / "kernels" / "one.py") == text
    (package / "three.py").write_text("x = 2\n")
    changed = closure.closure(package / "kernels" / "one.py")
    assert changed != text

    elsewhere = tmp_path / "elsewhere" / "gemmlab"
    shutil.copytree(package, elsewhere)
    monkeypatch.setattr(closure, "ROOT", elsewhere.resolve())
    assert closure.closure(elsewhere / "kernels" / "one.py") == changed


def test_a_file_outside_the_package_keeps_its_whole_path(tmp_path: Path) -> None:
    kernel = tmp_path / "kernel.py"
    kernel.write_text("from gemmlab.errors import GemmlabError\n")
    assert names(closure.closure(kernel)) == {str(kernel.resolve()), "errors.py"}
