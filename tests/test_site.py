"""The pages as a web site: each page has its place; a broken link fails the build, also in CI."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = {page.name for page in (ROOT / "docs").glob("*.md")}


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder / "site")],
        cwd=folder,
        capture_output=True,
        text=True,
    )


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    return tmp_path


@pytest.mark.slow
def test_the_site_has_every_page(copy):
    done = build(copy)
    assert done.returncode == 0, done.stderr
    built = {path.parent.name for path in (copy / "site").rglob("index.html")}
    assert {name.removesuffix(".md") for name in PAGES - {"index.md"}} <= built


@pytest.mark.slow
def test_broken_links_fail_the_build(copy):
    page = copy / "docs" / "start.md"
    page.write_text(f"{page.read_text()}\n[page](nowhere.md), [section](checks.md#nowhere)\n")
    done = build(copy)
    assert done.returncode != 0
    assert "'nowhere.md'" in done.stderr and "'checks.md#nowhere'" in done.stderr


def test_continuous_integration_builds_the_site_strictly():
    steps = re.findall(r"run: (.*)", (ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert "mkdocs build --strict" in steps


def test_readers_come_to_internals_last():
    order = re.findall(r"- ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert set(order) == PAGES and len(order) == len(PAGES)
    assert order[:2] == ["index.md", "start.md"]
    assert order[-5:] == [
        "from-source-to-verdict.md",
        "emulator.md",
        "machine-code.md",
        "fp16x3.md",
        "architecture.md",
    ]
