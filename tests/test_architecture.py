"""What an import costs, how long a file may be, what may skip. Who may import whom is checked by
import-linter, by the contracts in pyproject.toml."""

import ast
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "gemmlab"
# Formulas that have been built are not written by hand.
FILES = sorted(x for x in PACKAGE.rglob("*.py") if PACKAGE / "built" not in x.parents)
MAX_LINES = 500


def test_files_are_short():
    lengths = {str(path): len(path.read_text().splitlines()) for path in FILES}
    assert {path: length for path, length in lengths.items() if length > MAX_LINES} == {}


def modules_after(statement):
    """Top-level modules that a fresh interpreter has loaded after a statement."""
    code = f"import sys; {statement}; print(*{{m.split('.')[0] for m in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_loads_numpy_alone():
    loaded = modules_after("import gemmlab") - modules_after("import numpy")
    third_party = loaded - set(sys.stdlib_module_names) - {"gemmlab"}
    assert not {name for name in third_party if not name.startswith("_")}


def test_the_command_line_starts_without_compiler_driver_and_numpy():
    loaded = modules_after("import gemmlab.cli.app")
    assert not loaded & {"cutlass", "cuda", "numpy", "rich"}


def test_pinned_tools_are_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    dev = project["optional-dependencies"]["dev"]
    pins = dict(pin.split("==") for pin in dev if "==" in pin)
    assert f"hatchling=={pins['hatchling']}" in (ROOT / ".ci" / "sdist").read_text()


# Files whose tests may be skipped: these need a GPU or a framework.
MAY_SKIP = {"machine.py", "test_jax.py", "test_torch.py", "test_on_gpu.py", "test_on_two_gpus.py"}
MAY_SKIP |= {"test_streams_on_gpu.py", "test_process.py"}
MAY_SKIP |= {
    "test_torch_contenders.py",
    "test_torch_meshes.py",
    "test_torch_meshes_on_gpus.py",
    "test_torch_pulling.py",
    "test_torch_replays.py",
    "test_torch_streaming.py",
    "test_torch_on_gpu.py",
    "test_torch_operators.py",
    "test_torch_override.py",
    "test_own_problems.py",
    "test_notebook.py",
}


SKIPS = {f"pytest.{name}" for name in ("skip", "mark.skip", "mark.skipif", "importorskip")}


def skips(path):
    """The lines of a file that skip a test."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return [x.lineno for x in nodes if isinstance(x, ast.Attribute) and ast.unparse(x) in SKIPS]


def test_what_breaks_is_not_skipped():
    found = {path.name: skips(path) for path in sorted((ROOT / "tests").rglob("*.py"))}
    others = {name: lines for name, lines in found.items() if lines and name not in MAY_SKIP}
    assert others == {}, "use machine.py's marks: needs_gpu, needs_native"


def test_mutations_break_what_is_there():
    """Of each, the text stands once in its file, and its tests exist."""
    for one in runpy.run_path(str(ROOT / "scripts" / "mutate"))["MUTATIONS"]:
        assert (PACKAGE / one.file).read_text().count(one.old) == 1, one.name
        assert all((ROOT / name).is_file() for name in one.tests.split()), one.name
