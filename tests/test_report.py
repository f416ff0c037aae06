"""The README agrees with the records."""

import itertools
import re
import runpy
from pathlib import Path

import pytest

from gemmlab.errors import InputError
from gemmlab.kernels import ladder
from gemmlab.lab import views
from gemmlab.report.markdown import fill, table

ROOT = Path(__file__).parent.parent
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "readme"))


def test_readme_has_the_numbers_of_the_records():
    text = (ROOT / "README.md").read_text()
    assert SCRIPT["readme"](text) == text


def test_the_page_on_flows_has_the_time_lines_of_the_records():
    text = (ROOT / "docs" / "host-flows.md").read_text()
    assert SCRIPT["host_flows"](text) == text
    shown = text.split("```python\n")[1].split("```")[0]
    assert shown.partition("\n")[2] in views.source(ladder.find("explicit"))


def test_picture_is_that_of_the_records():
    assert SCRIPT["picture"]() == (ROOT / "docs" / "climb.svg").read_text()


def test_commands_of_the_readme_use_files_that_those_before_them_wrote():
    block = (ROOT / "README.md").read_text().split("## Use")[1].split("```")[1]
    written = set()
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
