"""`gemmlab docs`: prints every page, as Markdown or formatted for a terminal."""

from functools import partial

import pytest

from gemmlab.cli import docs
from gemmlab.report import tables


@pytest.fixture
def shown(gemmlab):
    return partial(gemmlab, "docs")


def test_pages_are_listed_by_name_and_title(shown):
    code, out, _ = shown()
    assert code == 0 and "\nmatmul                  Products of float32 matrices" in out


@pytest.mark.parametrize("name", ["checks", "checks.md", "docs/checks.md"])
def test_a_page_is_printed_as_it_is(shown, name):
    assert shown(name) == (0, docs.pages()["checks"].read_text(), "")


@pytest.mark.slow
def test_a_terminal_gets_a_page_laid_out(shown, monkeypatch):
    console = tables.console()
    console.width = 80
    monkeypatch.setattr(type(console), "is_terminal", True)
    for name in docs.pages():
        code, out, err = shown(name)
        assert code == 0 and not err and "```" not in out and "\n# " not in out


@pytest.mark.parametrize("name", ["nothing", "", "../README", "/etc/passwd"])
def test_no_other_file_is_shown(shown, name):
    code, out, err = shown(name)
    assert (code, out) == (2, "") and "available: api, architecture" in err


def test_an_install_without_pages_says_so(shown, monkeypatch, tmp_path):
    monkeypatch.setattr(docs, "FOLDERS", (tmp_path,))
    code, _, err = shown("checks")
    assert code == 3 and "pip install --force-reinstall gemmlab" in err
