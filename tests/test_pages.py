"""Commands in docs/ print what the pages show; listings with a title are parts of examples/.

A block ```console is a session: lines after "$ " are commands, the others their output. All
sessions of a page run in order in a folder with a copy of examples/. In the output, "…" matches any
text of a line, and alone any number of lines. Only stdout is compared; with "2>&1" also stderr.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gemmlab.cli.app import main

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
PAGES = {page.name: page.read_text() for page in sorted((ROOT / "docs").glob("*.md"))}
SESSION = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
LISTING = re.compile(r'^```\w+ title="examples/([^"]+)"\n(.*?)^```', re.DOTALL | re.MULTILINE)


def steps(page: str) -> list[tuple[str, str]]:
    """Return the commands of a page, each with the output that the page shows."""
    text = "".join(f"\n{session}" for session in SESSION.findall(page))
    found = (part.partition("\n") for part in re.split(r"^\$ ", text, flags=re.MULTILINE))
    return [(command, shown) for command, _, shown in found if command]


def agrees(shown: str, printed: str) -> bool:
    """Return whether an output is what a page shows. Blanks at the ends of lines do not count."""
    parts = [
        r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\n"
        for line in map(str.rstrip, shown.strip("\n").splitlines())
    ]
    lines = "".join(f"{line.rstrip()}\n" for line in printed.strip("\n").splitlines())
    return re.fullmatch("".join(parts), lines) is not None


EXPLAINED: dict[str, str] = {}  # what commands of earlier pages and sessions printed


class Shell:
    """Runs commands: gemmlab in this process, others in Bash, with this Python as `python`."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys, self._status = capsys, 0

    def run(self, command: str) -> str:
        """Return what the command prints. `echo $?` prints the status of the one before.

        What `gemmlab explain` prints depends on its arguments alone, so it runs once for each.
        """
        if command == "echo $?":
            return str(self._status)
        first, _, rest = command.partition(" | ")
        if first in EXPLAINED:
            out = EXPLAINED[first]
        else:
            out = self._gemmlab(first) if first.startswith("gemmlab ") else self._bash(first, "")
        if first.startswith("gemmlab explain ") and "2>&1" not in first:
            EXPLAINED[first] = out
        return self._bash(rest, out) if rest else out

    def _gemmlab(self, command: str) -> str:
        words = shlex.split(command.removesuffix(" 2>&1"))[1:]
        with pytest.raises(SystemExit) as ended:
            main(words)
        self._status = int(ended.value.code or 0)
        printed = self._capsys.readouterr()
        return printed.out + printed.err if command.endswith(" 2>&1") else printed.out

    def _bash(self, command: str, text: str) -> str:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", command],
            input=text,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PATH": path},
        )
        return done.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("judged_here")
@pytest.mark.parametrize("name", [name for name, page in PAGES.items() if steps(page)])
def test_commands_print_what_the_page_shows(name, capsys, monkeypatch, tmp_path):
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    shell = Shell(capsys)
    for command, shown in steps(PAGES[name]):
        printed = shell.run(command)
        assert agrees(shown, printed), f"$ {command}\n{printed}"


@pytest.mark.parametrize("name", [name for name, page in PAGES.items() if LISTING.search(page)])
def test_listings_are_parts_of_the_examples(name):
    for file, text in LISTING.findall(PAGES[name]):
        assert text in (EXAMPLES / file).read_text(), file


def test_the_table_of_the_tutorial_has_what_its_commands_print():
    page = PAGES["tutorial-fast.md"]
    printed = "".join(shown for _, shown in steps(page))
    rows = re.findall(r"^\| `\w+\.cu` \|(.*)\|$", page, re.MULTILINE)
    numbers = [number for row in rows for number in re.findall(r"[\d,]{4,}", row)]
    assert len(rows) == 5 and len(numbers) == 14
    assert [number for number in numbers if number not in printed] == []


def test_every_example_is_on_a_page():
    files = [path.relative_to(ROOT) for path in EXAMPLES.rglob("*.*")]
    assert [str(file) for file in files if str(file) not in "".join(PAGES.values())] == []


def test_another_output_is_found():
    page = "```console\n$ echo a | cat\na … c\n…\nz\n```\n"
    assert steps(page) == [("echo a | cat", "a … c\n…\nz\n")]
    [(_, shown)] = steps(page)
    assert agrees(shown, "a b c\nx\ny\nz\n") and agrees(shown, "a b c  \nz")
    assert not any(agrees(shown, other) for other in ("a b d\nz\n", "a b c\n", "a b c\nz\nw\n", ""))
    assert agrees("", "") and not agrees("", "x")
