"""`gemmlab docs`: prints every page, as Markdown or formatted for a terminal."""

import pytest

from gemmlab.cli import docs
from gemmlab.cli.app import main
from gemmlab.report import tables


@pytest.fixture
def gemmlab(capsys):
    def run(*args):
        with pytest.raises(SystemExit) as ended:
            main(["docs", *args])
        out = capsys.readouterr()
        return ended.value.code or 0, out.out, out.err

    return run


def test_pages_are_listed_by_name_and_title(gemmlab):
    code, out, _ = gemmlab()
    assert code == 0 and "\nmatmul                  Products of float32 matrices" in out


@pytest.mark.parametrize("name", ["checks", "checks.md", "docs/checks.md"])
def test_a_page_is_printed_as_it_is(gemmlab, name):
    assert gemmlab(name) == (0, docs.pages()["checks"].read_text(), "")


@pytest.mark.slow
def test_a_terminal_gets_a_page_laid_out(gemmlab, monkeypatch):
    console = tables.console()
    console.width = 80
    monkeypatch.setattr(type(console), "is_terminal", True)
    for name in docs.pages():
        code, out, err = gemmlab(name)
        assert code == 0 and not err and "```" not in out and "\n# " not in out


@pytest.mark.parametrize("name", ["nothing", "", "../README", "/etc/passwd"])
def test_no_other_file_is_shown(gemmlab, name):
    code, out, err = gemmlab(name)
    assert (code, out) == (2, "") and "available: api, architecture" in err


def test_an_install_without_pages_says_so(gemmlab, monkeypatch, tmp_path):
    monkeypatch.setattr(docs, "FOLDERS", (tmp_path,))
    code, _, err = gemmlab("checks")
    assert code == 3 and "pip install --force-reinstall gemmlab" in err
