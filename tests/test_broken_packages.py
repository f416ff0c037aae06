"""A broken installed package: a one-sentence error; commands that do not need it still work."""

import importlib.metadata
import json
import os
import subprocess
import sys

import pytest

from gemmlab.core import packages
from gemmlab.errors import InputError, MissingDependencyError

REINSTALL = "run: pip install --force-reinstall 'nvidia-cutlass-dsl==4.8.1'"
# The code of the broken `cutlass`, and the expected message.
BREAKAGES = {
    "a library is missing": (
        "raise ImportError('libcute.so: cannot open shared object file')",
        "ImportError: libcute.so: cannot open shared object file",
    ),
    "a part is missing": ("import cutlass.base_dsl", "ModuleNotFoundError: No module named"),
    "another package is missing": ("import no_such_package", "No module named 'no_such_package'"),
    "its library is of another Python": (
        "raise AttributeError('type object has\\nno attribute x')",
        "AttributeError: type object has no attribute x",
    ),
    "it is no Python": ("def (", "SyntaxError: "),
}
KERNEL = """\
//! gemmlab block=32 grid=1 args=x:f32[32]
extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2.0f; }
"""


def broken_package(folder, text):
    """Let Python import a broken `cutlass` from this folder, in child processes too."""
    (folder / "cutlass").mkdir()
    (folder / "cutlass" / "__init__.py").write_text(text)
    # The real package's .pth file precedes PYTHONPATH; this code runs after it.
    (folder / "sitecustomize.py").write_text(f"import sys; sys.path.insert(0, {str(folder)!r})")
    return folder


@pytest.fixture
def broken(tmp_path):
    return broken_package(tmp_path, BREAKAGES["a library is missing"][0])


def gemmlab(folder, *args):
    command = [sys.executable, "-m", "gemmlab", *args]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.mark.parametrize(("text", "said"), BREAKAGES.values(), ids=list(BREAKAGES))
@pytest.mark.slow
def test_what_needs_it_says_so_in_one_sentence(tmp_path, text, said):
    done = gemmlab(broken_package(tmp_path, text), "climb", "--device", "emulated")
    assert (done.returncode, done.stdout) == (MissingDependencyError.exit_code, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(
        "gemmlab: nvidia-cutlass-dsl 4.8.1 (compiles the rungs) is installed but"
    )
    assert said in line and line.endswith(REINSTALL)


@pytest.mark.parametrize("args", [["list"], ["show", "naive"], ["explain", "naive"]])
@pytest.mark.slow
def test_every_command_of_the_rungs_says_the_same(broken, args):
    done = gemmlab(broken, *args)
    assert done.returncode == MissingDependencyError.exit_code
    assert done.stderr.endswith(f"{REINSTALL}\n") and done.stderr.count("\n") == 1


@pytest.mark.slow
def test_what_does_without_goes_on(broken):
    file = broken / "kernel.cu"
    file.write_text(KERNEL)
    done = gemmlab(broken, "emulate", str(file))
    assert done.returncode == 0 and "twice: grid" in done.stdout, done.stderr
    made = gemmlab(broken, "new", "sum", "-o", str(broken / "sum.cu"))
    assert made.returncode == 0, made.stderr


WITHOUT_LLVMLITE = """
import importlib.metadata, sys

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "llvmlite":
            raise ImportError("libLLVM.so: cannot open shared object file")

sys.meta_path.insert(0, Nothing())
find = importlib.metadata.version

def version(name):
    if name == "llvmlite" and MISSING:
        raise importlib.metadata.PackageNotFoundError(name)
    return find(name)

importlib.metadata.version = version
"""


@pytest.mark.parametrize("missing", [True, False])
@pytest.mark.slow
def test_without_llvmlite_kernels_run_without_native_code(tmp_path, missing):
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_LLVMLITE.replace("MISSING", str(missing)))
    (tmp_path / "kernel.cu").write_text(KERNEL)
    done = gemmlab(tmp_path, "emulate", str(tmp_path / "kernel.cu"))
    assert done.returncode == 0 and "NumPy tier" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_env_tells_that_it_is_broken_and_what_mends_it(broken):
    done = gemmlab(broken, "env", "--json")
    [dsl] = [p for p in json.loads(done.stdout)["packages"] if p["name"] == "nvidia-cutlass-dsl"]
    assert dsl["version"] == "4.8.1" and dsl["trouble"].endswith(REINSTALL)
    assert f"run: {dsl['install']}" == REINSTALL
    text = gemmlab(broken, "env").stdout
    assert "4.8.1, broken" in text and "libcute.so: cannot open" in text
    assert f"\n{dsl['install']}\n  installs or repairs nvidia-cutlass-dsl" in text


@pytest.mark.slow
def test_a_kernel_file_in_its_language_is_not_judged(broken):
    file = str(broken / "sum.py")
    assert gemmlab(broken, "new", "sum", "--lang", "cute", "-o", file).returncode == 0
    done = gemmlab(broken, "judge", file, "--json")
    judged = json.loads(done.stdout)
    assert done.returncode == 1 and judged["verdict"] == "not run", done.stderr
    assert judged["steps"][-1]["message"].endswith(REINSTALL)


def test_a_working_directory_that_is_gone_is_no_broken_package(monkeypatch):
    def gone():
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "getcwd", gone)
    monkeypatch.setattr(importlib, "import_module", lambda name: gone())
    with pytest.raises(InputError, match="working directory cannot be used: No such file"):
        packages.CUTE_DSL.load()


def test_a_missing_package_names_the_install():
    absent = packages.Package("gemmlab-has-no-such", "nothing", "gemmlab_has_no_such", "cu13")
    with pytest.raises(MissingDependencyError, match=r"is not installed; run: pip install 'gemml"):
        absent.load()
    plain = packages.Package("gemmlab-has-no-such", "nothing", "gemmlab_has_no_such")
    with pytest.raises(MissingDependencyError, match="run: pip install 'gemmlab-has-no-such'"):
        plain.load()


@pytest.mark.parametrize("version", ["4.8.1", "4.3.0"])
def test_modules_that_do_not_fit_another_version_are_its_fault(monkeypatch, version):
    """With the pinned version of cutlass, an import error in a kernel is gemmlab's bug."""
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    expected = MissingDependencyError if version != "4.8.1" else AttributeError
    with pytest.raises(expected, match="no attribute 'gone'"), packages.CUTE_DSL.importing():
        raise AttributeError("module 'cutlass' has no attribute 'gone'")
