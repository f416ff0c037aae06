"""The shape of the house: who may import whom, what an import costs, how long a file may be."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "gemmlab"
FILES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 500

# Each part of the package and the parts that it may import, itself included without saying; the
# page docs/architecture.md says what belongs where.
LAYERS = {
    "errors": set(),
    "core": {"errors"},
    "hardware": {"errors"},
    "problems": {"errors"},
    "ptx": {"errors"},
    "kernels": {"errors", "core", "problems"},
    "compile": {"errors", "core", "problems", "ptx", "kernels"},
    "emulator": {"errors", "core", "ptx"},
    "sass": {"errors", "core", "ptx", "compile", "emulator"},
    "devices": {"errors", "core", "hardware", "compile", "emulator", "sass"},
    "linalg": {"errors", "core", "hardware", "problems", "kernels", "compile", "devices"},
    "torch": {"errors", "core", "linalg"},
    "lab": {
        *{"errors", "core", "hardware", "problems", "ptx", "kernels"},
        *{"compile", "emulator", "sass", "devices", "linalg"},
    },
    "report": {"errors", "core", "hardware", "emulator", "sass", "lab"},
}
# What ties the parts together may import all of them.
TOP = {"__init__", "__main__", "cli"}

# The same for the parts of the lab.
LAB_LAYERS = {
    "records": set(),
    "metrics": {"records"},
    "changes": {"records", "metrics"},
    "directives": set(),
    "environment": set(),
    "views": set(),
    "explain": set(),
    "judge": set(),
    "kernel_file": {"directives", "judge"},
    "ahead": set(),
    "climb": {"ahead", "environment", "judge", "records"},
    "bench": {"environment", "judge", "records"},
    "submission": {"bench", "directives", "environment", "judge", "metrics", "records"},
}

# The same for the parts of the emulator. What they import for type checking alone is free: most get
# the machine that they work for as an argument.
EMULATOR_LAYERS = {
    "arithmetic": set(),
    "counters": {"arithmetic"},
    "memory": {"arithmetic", "counters"},
    "program": {"memory"},
    "synchronization": {"arithmetic", "memory", "program"},
    "tensor_cores": {"arithmetic", "memory"},
    "translation": {"arithmetic", "memory", "program", "synchronization", "tensor_cores"},
    "execution": {
        *{"arithmetic", "counters", "memory", "program", "synchronization", "tensor_cores"},
        "translation",
    },
    "checks": {
        *{"arithmetic", "memory", "program", "synchronization", "tensor_cores", "translation"},
        "execution",
    },
    "native": {
        *{"arithmetic", "counters", "memory", "program", "synchronization", "tensor_cores"},
        *{"translation", "execution"},
    },
    "tiers": {"arithmetic", "execution", "native"},
    "arguments": {"memory"},
    "run": {
        *{"arithmetic", "counters", "memory", "program", "translation", "execution", "checks"},
        *{"tiers", "arguments"},
    },
}


def part(path):
    """The part of the package that a file belongs to: its folder, or its own name."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path, for_types):
    """Full names that a file imports anywhere in it; those for type checking alone if wanted."""
    nodes = [*ast.walk(ast.parse(path.read_text()))]
    blocks = [x for x in nodes if isinstance(x, ast.If) and ast.unparse(x.test) == "TYPE_CHECKING"]
    skipped = set() if for_types else {inner for block in blocks for inner in ast.walk(block)}
    for node in nodes:
        if isinstance(node, ast.Import) and node not in skipped:
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node not in skipped:
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    own = part(path)
    if own in TOP:
        return
    found = {x.split(".")[1] for x in imports(path, for_types=True) if x.startswith("gemmlab.")}
    assert found <= LAYERS[own] | {own}


INNER = {"emulator": EMULATOR_LAYERS, "lab": LAB_LAYERS}
INNER_FILES = [path for path in FILES if part(path) in INNER]


@pytest.mark.parametrize("path", INNER_FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_inside_a_part_point_one_way(path):
    outer, own = path.relative_to(PACKAGE).with_suffix("").parts[:2]
    if own == "__init__":
        return
    head = f"gemmlab.{outer}."
    found = {x.split(".")[2] for x in imports(path, for_types=False) if x.startswith(head)}
    assert found <= INNER[outer][own] | {own}


@pytest.mark.parametrize("layers", [LAYERS, *INNER.values()], ids=["package", *INNER])
def test_layers_have_no_cycle(layers):
    done = set()
    while len(done) < len(layers):
        ready = {name for name, below in layers.items() if name not in done and below <= done}
        assert ready, f"cycle among {set(layers) - done}"
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


def test_the_command_line_starts_without_compiler_driver_and_numpy():
    loaded = modules_after("import gemmlab.cli.app")
    assert not loaded & {"cutlass", "cuda", "numpy", "rich"}


def test_pinned_tools_are_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = dict(pin.split("==") for pin in project["optional-dependencies"]["dev"])
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    assert re.findall(r"rev: v(.*)", hooks) == [pins["ruff"], pins["codespell"]]
    assert f"hatchling=={pins['hatchling']}" in (ROOT / ".ci" / "sdist").read_text()


# What may skip: a test that needs a GPU or a framework.
MAY_SKIP = {"machine.py", "test_torch.py", "test_on_gpu.py", "test_on_two_gpus.py"}
MAY_SKIP |= {"test_streams_on_gpu.py", "test_process.py"}
MAY_SKIP |= {"test_torch_on_gpu.py", "test_torch_operators.py", "test_torch_override.py"}


SKIPS = {f"pytest.{name}" for name in ("skip", "mark.skip", "mark.skipif", "importorskip")}


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("*.py")), ids=lambda path: path.name)
def test_what_breaks_is_not_skipped(path):
    nodes = ast.walk(ast.parse(path.read_text()))
    lines = [x.lineno for x in nodes if isinstance(x, ast.Attribute) and ast.unparse(x) in SKIPS]
    assert path.name in MAY_SKIP or not lines, "use machine.py's marks: needs_gpu, needs_native"
