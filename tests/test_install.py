"""An installed wheel without the extra "lab": products need NumPy and cuda-bindings alone."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import cuda.bindings
import cuda.pathfinder
import numpy as np
import pytest

from gemmlab.core import built
from gemmlab.errors import MissingDependencyError
from gemmlab.linalg.arch.sm90 import SM90
from gemmlab.linalg.planning import variants
from gemmlab.linalg.runtime import building
from gemmlab.linalg.runtime.built import name_of

ROOT = Path(__file__).parent.parent
OF_THE_LAB = {"cutlass", "llvmlite", "typer", "rich", "platformdirs", "cuda.core"}
OF_THE_LAB |= {"cuda.bindings.nvrtc", "cuda.bindings.nvjitlink"}
LAB = "run: pip install 'gemmlab[lab]'"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the source tree, with built kernels whose code is not real."""
    copy = tmp_path_factory.mktemp("tree")
    for name in (".gitignore", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    without = shutil.ignore_patterns("__pycache__", "built")
    shutil.copytree(ROOT / "docs", copy / "docs")
    shutil.copytree(ROOT / "gemmlab", copy / "gemmlab", ignore=without)
    kernels = {
        name_of(code): ({"entry": code[0], "parameters": []}, name_of(code).encode())
        for code in variants.kernels(SM90)
    }
    folder = copy / "gemmlab" / "built" / SM90.target
    built.write(folder, {"nvidia-cutlass-dsl": "4.8.1"}, building.sources(SM90), kernels, {})
    return copy


def build(tree, *targets):
    """Build releases of the tree, as pip does."""
    command = [sys.executable, "-m", "hatchling", "build", *targets]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tree, tmp_path_factory):
    """A folder with the wheel, NumPy and cuda-bindings."""
    done = build(tree, "-t", "wheel", "-d", "wheels")
    assert done.returncode == 0, done.stderr
    folder = tmp_path_factory.mktemp("site")
    [wheel] = (tree / "wheels").glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder)
    numpy = Path(np.__file__).parent
    for found in (numpy, numpy.with_name("numpy.libs")):
        (folder / found.name).symlink_to(found)
    (folder / "cuda").mkdir()
    for module in (cuda.bindings, cuda.pathfinder):
        found = Path(module.__file__).parent
        (folder / "cuda" / found.name).symlink_to(found)
    return folder


def python(site, *args):
    command = [sys.executable, "-S", "-P", *args]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(site), "HOME": str(site)}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def answer(site, text):
    """Run text with the site's packages; return what it assigns to `answer`, and modules."""
    after = "import json, sys; print(json.dumps([answer, sorted(sys.modules)]))"
    done = python(site, "-c", f"{text}\n{after}")
    assert done.returncode == 0, done.stderr
    value, loaded = json.loads(done.stdout)
    return value, {*loaded}


def test_arrays_on_the_host_are_multiplied(site):
    text = (
        "import numpy as np, gemmlab\n"
        "a = np.arange(6, dtype=np.float32).reshape(2, 3)\n"
        "answer = gemmlab.matmul(a, a.T).tolist(), gemmlab.__file__"
    )
    (product, file), loaded = answer(site, text)
    assert product == [[5, 14], [14, 50]] and Path(file).is_relative_to(site)
    assert not loaded & {*OF_THE_LAB, "cuda"}


PREPARE = """
from gemmlab.linalg import calls  # what products on a GPU import
from gemmlab.linalg.arch.sm90 import SM90
from gemmlab.linalg.planning import variants
from gemmlab.linalg.runtime import kernels
codes = variants.kernels(SM90)
"""


def test_kernels_come_with_the_wheel(site):
    text = "kernels.prepare(codes)\nanswer = [kernels.loadable(code).entry for code in codes]"
    entries, loaded = answer(site, PREPARE + text)
    assert entries == [name for name, *_ in variants.kernels(SM90)]
    assert "cuda.bindings.driver" in loaded and not loaded & OF_THE_LAB


def test_a_wheel_without_kernels_says_what_compiles_them(site):
    text = (
        "from gemmlab.core import built\n"
        "from gemmlab.errors import MissingDependencyError\n"
        "built.FOLDER = built.FOLDER / 'none'\n"
        "try:\n    kernels.prepare(codes)\n"
        "except MissingDependencyError as error:\n    answer = str(error)"
    )
    said, _ = answer(site, PREPARE + text)
    assert said == f"nvidia-cutlass-dsl (compiles the rungs) is not installed; {LAB}"


@pytest.mark.parametrize("args", [("list",), ("--version",), ("env", "--json")])
def test_the_command_line_says_what_brings_it(site, args):
    done = python(site, "-m", "gemmlab", *args)
    assert (done.returncode, done.stdout) == (MissingDependencyError.exit_code, "")
    assert done.stderr == f"gemmlab: typer (the command line) is not installed; {LAB}\n"


def test_what_the_lab_does_in_python_says_the_same(site):
    text = (
        "import gemmlab\n"
        "try:\n    gemmlab.load('__global__ void f(float *x) {}')\n"
        "except gemmlab.GemmlabError as error:\n    answer = type(error).__name__, str(error)"
    )
    (kind, said), _ = answer(site, text)
    assert kind == "MissingDependencyError" and said.endswith(LAB)


@pytest.mark.parametrize("target", ["wheel", "sdist"])
def test_kernels_of_other_sources_are_not_released(tree, target):
    source = tree / "gemmlab" / "kernels" / "gemm" / "sm90" / "pack.py"
    before = source.read_text()
    source.write_text(before + "\n# changed\n")
    try:
        done = build(tree, "-t", target, "-d", "refused")
    finally:
        source.write_text(before)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "built from other sources (kernels/gemm/sm90/pack.py)" in done.stderr
    assert "run scripts/build-kernels" in done.stderr
    assert not [*(tree / "refused").glob("*")]


def test_a_release_without_built_kernels_is_made_with_a_warning(tree, tmp_path):
    folder, elsewhere = tree / "gemmlab" / "built", tmp_path / "built"
    folder.rename(elsewhere)
    try:
        done = build(tree, "-t", "wheel", "-d", "none")
    finally:
        elsewhere.rename(folder)
    assert done.returncode == 0 and "no kernels are built" in done.stderr
    [wheel] = (tree / "none").glob("*.whl")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if "built/" in name]


def test_an_sdist_has_the_kernels_and_the_hook(tree):
    done = build(tree, "-t", "sdist", "-d", "sdists")
    assert done.returncode == 0, done.stderr
    [sdist] = (tree / "sdists").glob("*.tar.gz")
    unpacked = tree / "unpacked"
    shutil.unpack_archive(sdist, unpacked)
    [inside] = unpacked.iterdir()
    done = build(inside, "-t", "wheel", "-d", "wheels")  # from the sdist alone
    assert done.returncode == 0 and "no kernels" not in done.stderr
    [wheel] = (inside / "wheels").glob("*.whl")
    names = [x for x in zipfile.ZipFile(wheel).namelist() if x.endswith(".cubin")]
    assert len(names) == len(variants.kernels(SM90))
