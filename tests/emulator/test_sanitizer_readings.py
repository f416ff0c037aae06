"""The claims of docs/checks.md about compute-sanitizer match its reports on an H200."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_checks import CORRECT, MARK, PLANTED

ROOT = Path(__file__).parents[2]
READINGS = json.loads((ROOT / "tests" / "readings" / "sanitizer.json").read_text())
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


@pytest.mark.parametrize("kernel", READINGS["kernels"], ids=lambda kernel: kernel["file"])
def test_readings_are_of_these_kernels(kernel):
    path = Path(__file__).parent / kernel["file"]
    assert path in [*PLANTED, *CORRECT]
    lines = enumerate(path.read_text().splitlines(), 1)
    bugs = [(m[1], k) for k, text in lines if (m := MARK.search(text))]
    assert bugs == ([(kernel["bug"], kernel["line"])] if kernel["bug"] else [])


def test_false_alarms_that_the_page_names():
    page = (ROOT / "docs" / "checks.md").read_text()
    for kernel in READINGS["kernels"]:
        if kernel["bug"] is None and any(kernel[tool] for tool in TOOLS):
            assert Path(kernel["file"]).stem in page
