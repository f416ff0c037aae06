"""Functions in fresh processes: `python -m benchmarks.children MODULE FUNCTION WORD …`."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from gemmlab.core import built
from gemmlab.errors import StateError

ROOT = Path(__file__).resolve().parents[1]


def command(module: str, function: str, *words: str) -> list[str]:
    """The command that calls benchmarks.MODULE.FUNCTION with some words."""
    return [sys.executable, "-m", "benchmarks.children", module, function, *words]


def call(module: str, function: str, *words: str) -> Any:
    """What the function returns in a fresh process, by way of JSON."""
    return _printed(command(module, function, *words))


def main(module: str, *words: str) -> Any:
    """What the module prints as a program, from JSON."""
    return _printed([sys.executable, "-m", f"benchmarks.{module}", *words])


def _printed(words: list[str]) -> Any:
    done = subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def check_kernels() -> None:
    """Raise StateError if products would compile their kernels while they are timed."""
    manifests = [built.read(folder) for folder in built.FOLDER.glob("*")]
    if not any(manifest and not manifest.changed() for manifest in manifests):
        raise StateError(
            f"{built.FOLDER} has no kernels of this source, so their compilation would be timed; "
            "run scripts/build-kernels first"
        )


if __name__ == "__main__":
    module, function, *words = sys.argv[1:]
    print(json.dumps(getattr(importlib.import_module(f"benchmarks.{module}"), function)(*words)))
