"""docs/api.md agrees with the docstrings, and the examples in the docstrings run.

The code is parsed, not imported, so PyTorch need not be installed.
"""

import doctest
import runpy
from pathlib import Path

import numpy as np
import pytest

import gemmlab
import gemmlab.sass

pytestmark = pytest.mark.slow  # the package is parsed as a whole
ROOT = Path(__file__).parent.parent
script = runpy.run_path(str(ROOT / "scripts" / "write-api-page"))


@pytest.fixture(scope="module")
def package():
    return script["load"]()


def public(package, modules):
    """The public objects of the modules, and their methods."""
    for name in modules:
        for _, found in script["public"](package, name):
            yield found
            yield from getattr(found, "functions", {}).values()


def test_the_page_is_up_to_date(package, caplog):
    written = script["page"](package)
    assert not caplog.records, "a docstring names a parameter that does not exist"
    fresh = script["PAGE"].read_text() == written
    assert fresh, "docstrings have changed: run scripts/write-api-page"


def test_every_public_name_has_a_docstring(package):
    for name in script["MODULES"]:
        for title, found in script["public"](package, name):
            assert found.docstring, title


def test_parameters_and_errors_are_listed_in_sections(package):
    for found in public(package, script["MODULES"]):
        if not found.is_function or not found.docstring or found.name in script["INTERNAL"]:
            continue
        taken = {parameter.name for parameter in found.parameters} - {"self", "cls"}
        sections = [x.value for x in found.docstring.parsed if x.kind.value == "parameters"]
        listed = {parameter.name.lstrip("*") for section in sections for parameter in section}
        assert not listed or listed == taken, f"{found.path}: Args names some parameters alone"
        assert "Raises " not in found.docstring.value, f"{found.path}: errors outside of Raises:"


def test_examples_run(package, capsys):
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    modules = [name for name in script["MODULES"] if name != "gemmlab.torch"]
    for found in public(package, modules):
        text = found.docstring.value if found.docstring else ""
        names = {"gemmlab": gemmlab, "np": np}
        path, line = str(found.filepath), found.lineno
        runner.run(parser.get_doctest(text, names, found.path, path, line))
    assert runner.tries > 10
    assert not runner.failures, capsys.readouterr().out
