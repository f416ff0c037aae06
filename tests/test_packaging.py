"""Contents of releases: a wheel has the pages that messages name, an sdist has what tests need."""

import re
import tomllib
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from gemmlab.cli import docs
from gemmlab.core.packages import PACKAGES

ROOT = Path(__file__).parent.parent
SHOWN_BY = ROOT / "gemmlab" / "cli" / "docs.py"
SOURCES = [path for path in (ROOT / "gemmlab").rglob("*") if path.suffix in (".py", ".cu")]


def files_of(builder):
    """The paths that Hatchling would pack into a release."""
    return {Path(file.distribution_path) for file in builder(str(ROOT)).recurse_included_files()}


def test_an_sdist_has_all_that_tests_open():
    held = files_of(SdistBuilder) | {Path("pyproject.toml")}  # always added
    opened = {name for path in (ROOT / "tests").rglob("*.py") for name in named(path)}
    assert {"benchmarks", "docs", "gemmlab", "README.md"} <= opened
    for name in {*opened, "scripts", "tests"}:
        path = ROOT / name
        below = [path] if path.is_file() else [x for x in path.rglob("*") if x.is_file()]
        kept = {x.relative_to(ROOT) for x in below if "__pycache__" not in x.parts}
        assert kept and kept <= held, sorted(kept - held)[:3]


def named(path):
    """The entries of the project's root folder that a test names."""
    names = re.findall(r'(?:ROOT|parents\[2\]|parent) / "([^"]+)"', path.read_text())
    return [name for name in names if (ROOT / name).exists()]


def test_a_wheel_has_the_pages():
    held = {path.name for path in files_of(WheelBuilder) if path.parent == Path("gemmlab/docs")}
    assert {f"{name}.md" for name in docs.pages()} <= held


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_package_is_installed_by_the_extra_that_its_message_names(package):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    by_default, extras = project["dependencies"], project["optional-dependencies"]
    brought = extras[package.extra] if package.extra else by_default
    assert [x for x in brought if re.match(rf"{re.escape(package.name)}(?![\w.-])", x)]


def test_texts_name_pages_that_an_install_has():
    pages = docs.pages().keys()
    for path in SOURCES:
        text = path.read_text()
        if path != SHOWN_BY:
            found = re.findall(r"docs/\w+|\w+\.md\b|scripts/\w+", text)
            assert not found, f"{path}: name a page: gemmlab docs"
        assert set(re.findall(r"`gemmlab docs ([\w-]+)`", text)) <= pages, path
