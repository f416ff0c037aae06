"""The shape of the house: who may import whom, what an import costs, how long a file may be."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "gemmlab"
FILES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 500

# Each part of the package and the parts that it may import, itself included without saying.
LAYERS = {
    "errors": set(),
    "store": set(),
    "problems": {"errors"},
    "hardware": {"errors"},
    "tensor_map": {"errors"},
    "emulator": {"errors", "hardware", "tensor_map", "store"},
    "kernels": {"errors", "problems"},
    "ladder": {"errors", "kernels"},
    "compile": {"errors", "store", "problems", "kernels", "ladder", "emulator"},
    "sass": {"errors", "store", "compile", "emulator"},
    "devices": {"errors", "compile", "emulator", "sass", "hardware", "tensor_map"},
    "judge": {"errors", "problems", "compile", "devices"},
    "chain": {"kernels", "compile", "devices", "tensor_map"},
    "linalg": {"errors", "problems", "hardware", "kernels", "compile", "devices", "chain"},
    "directives": {"errors", "problems"},
    "listing": set(),
    "records": {"errors"},
    "metrics": {"hardware", "records"},
    "steps": {"metrics", "records"},
    "tables": {"metrics", "records"},
    "bench": {
        *{"errors", "problems", "hardware", "kernels", "ladder", "compile", "devices", "judge"},
        *{"records", "tables", "environment"},
    },
    "submission": {
        *{"errors", "problems", "hardware", "compile", "devices", "judge", "directives"},
        *{"bench", "metrics", "records", "tables", "environment"},
    },
    "views": {"errors", "compile", "hardware", "kernels"},
    "explain": {
        *("errors", "problems", "kernels", "ladder", "compile", "devices", "emulator", "hardware"),
        "tables",
    },
    "environment": {"errors", "compile", "devices", "emulator"},
    "report": {"errors", "metrics", "records", "steps", "tables", "bench"},
}
# What ties the parts together may import all of them.
TOP = {"__init__", "__main__", "cli", "climb", "commands", "files"}


def part(path):
    """The part of the package that a file belongs to: its folder, or its own name."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_parts(path):
    """Parts of gemmlab that a file imports anywhere in it, type checking included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "gemmlab":
            names = [f"gemmlab.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            names = [node.module]
        else:
            continue
        yield from (name.split(".")[1] for name in names if name.startswith("gemmlab."))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    own = part(path)
    if own in TOP:
        return
    allowed = LAYERS[own] | {own}
    assert set(imported_parts(path)) <= allowed


def test_layers_have_no_cycle():
    done = set()
    while len(done) < len(LAYERS):
        ready = {name for name, below in LAYERS.items() if name not in done and below <= done}
        assert ready, f"cycle among {set(LAYERS) - done}"
        done |= ready


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_are_short(path):
    assert len(path.read_text().splitlines()) <= MAX_LINES


def modules_after(statement):
    """Top-level modules that a fresh interpreter has loaded after a statement."""
    code = f"import sys; {statement}; print(*{{m.split('.')[0] for m in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_loads_numpy_alone():
    loaded = modules_after("import gemmlab") - modules_after("import numpy")
    third_party = loaded - set(sys.stdlib_module_names) - {"gemmlab"}
    assert not {name for name in third_party if not name.startswith("_")}


def test_the_command_line_starts_without_compiler_and_driver():
    loaded = modules_after("import gemmlab.cli")
    assert not loaded & {"cutlass", "cuda"}


def test_pinned_tools_are_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = dict(pin.split("==") for pin in project["optional-dependencies"]["dev"])
    assert f"rev: v{pins['ruff']}" in (ROOT / ".pre-commit-config.yaml").read_text()
