"""The README agrees with the records."""

import itertools
import re
import runpy
from pathlib import Path

import pytest

from gemmlab.core.figures import digits, percent
from gemmlab.errors import InputError
from gemmlab.kernels import ladder
from gemmlab.lab import views
from gemmlab.report.markdown import fill, table

ROOT = Path(__file__).parent.parent
NAMESPACES = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "readme"))


def test_readme_has_the_numbers_of_the_records():
    text = (ROOT / "README.md").read_text()
    assert SCRIPT["readme"](text) == text


# Writing the page on machine code compiles and disassembles kernels.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(x, marks=pytest.mark.slow) if x == "machine-code.md" else x
        for x in SCRIPT["PAGES"]
    ],
)
def test_pages_have_the_numbers_of_the_records(name):
    text = (ROOT / "docs" / name).read_text()
    assert SCRIPT["PAGES"][name](text) == text


@pytest.mark.parametrize("name", SCRIPT["measured"]())
def test_pages_have_the_tables_of_the_measurements(name):
    text = (ROOT / "docs" / name).read_text()
    assert fill(text, SCRIPT["measured"]()[name]) == text


@pytest.mark.parametrize(("word", "code"), [("-h", 0), ("docs/explain.md", 2), ("--check", 2)])
def test_the_script_that_writes_pages_takes_no_arguments(word, code, capsys, monkeypatch):
    monkeypatch.setattr(Path, "write_text", lambda *_: pytest.fail("a page was written"))
    with pytest.raises(SystemExit) as ended:
        SCRIPT["main"]([word])
    assert ended.value.code == code
    printed = capsys.readouterr()
    assert "usage: scripts/readme" in (printed.err if code else printed.out)


def test_the_page_on_flows_shows_the_code_of_a_flow():
    text = (ROOT / "docs" / "host-flows.md").read_text()
    shown = text.split("```python\n")[1].split("```")[0]
    assert shown.partition("\n")[2] in views.source(ladder.find("explicit"))


@pytest.mark.parametrize("name", SCRIPT["PICTURES"])
def test_a_picture_has_the_numbers_of_the_records(name):
    assert SCRIPT["PICTURES"][name]() == (ROOT / "docs" / name).read_text()


@pytest.mark.parametrize("name", ["ladder.svg", "matmul.svg"])
def test_the_words_of_a_picture_fit_into_it(name):
    drawn = (ROOT / "docs" / name).read_text()
    width = float(re.findall(r'<svg[^>]* width="(\d+)', drawn)[0])
    for letter, kind in ((0.68, "title"), (0.56, "about")):
        size = float(re.findall(rf"\.{kind} \{{ font: (?:600 )?(\d+)px", drawn)[0])
        words = re.findall(f'class="{kind}">(.*?)</text>', drawn)
        assert all(48 + letter * size * len(text) < width for text in words), words


def test_the_picture_of_the_ladder_has_each_rung_with_its_number():
    drawn = (ROOT / "docs" / "ladder.svg").read_text()
    rungs = [r for r in SCRIPT["cube"](4096, "row") if "launch" in r.details]
    shown = [f">{digits(r.tflops)} · {percent(r.percent_of_baseline)}<" for r in rungs]
    assert len(rungs) > 15 and all(text in drawn for text in shown)
    assert (
        "prefers-color-scheme: dark" in drawn
        and set(re.findall('="(http.*?)"', drawn)) <= NAMESPACES
    )


def test_commands_of_the_readme_use_files_that_those_before_them_wrote():
    block = (ROOT / "README.md").read_text().split("## Use")[1].split("```")[1]
    written = set[str]()
    for line in block.strip().splitlines():
        words = line.partition("   ")[0].split()
        assert words[0] == "gemmlab"
        files = {word for word in words if re.fullmatch(r"[\w/]+\.(cu|json)", word)}
        new = {after for before, after in itertools.pairwise(words) if before == "-o"}
        assert files - new <= written, line
        written |= new


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_fill_replaces_what_stands_between_the_markers():
    assert fill("a\n<!-- x -->\nold\n<!-- /x -->\nb", {"x": "new"}) == (
        "a\n<!-- x -->\nnew\n<!-- /x -->\nb"
    )
    with pytest.raises(InputError, match="no <!-- y -->"):
        fill("a", {"y": "new"})


def test_table():
    assert table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
