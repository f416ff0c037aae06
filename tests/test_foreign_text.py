"""Names and messages of other programs are printed literally, never as Rich markup."""

import json
from pathlib import Path

import pytest

from gemmlab.cli.app import main
from gemmlab.report import tables

NAME = "[bold]a:x:[red].cu"
WORDS = "root:x:0:0 [bold]b[/bold] [/] :smile: [link=x]y"
KERNEL = """\
//! gemmlab args=x:f32[n]=zeros n=8 block=32 grid=1
extern "C" __global__ void k(float* x) {{ if (threadIdx.x < {}) x[threadIdx.x] = 1; {} }}
"""
GEMM = "//! gemmlab problem=gemm block=32 grid=1\n"


@pytest.fixture
def gemmlab(capsys, tmp_path, monkeypatch):
    """Run a command in a folder with an odd name; return the exit code and the whole output."""
    folder = tmp_path / "[i]:x:"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "300")

    def run(*args):
        with pytest.raises(SystemExit) as ended:
            main(args)
        out = capsys.readouterr()
        return ended.value.code or 0, out.out + out.err

    return run


@pytest.mark.slow
def test_of_a_compiler(gemmlab):
    text = f'{GEMM}#error {WORDS}\nextern "C" __global__ void k() {{}}\n'
    Path(NAME).write_text(text)
    for command in ("judge", "emulate"):
        code, out = gemmlab(command, NAME, "problem=gemm")
        assert code and WORDS in out and NAME in out


def test_of_a_kernel(gemmlab):
    Path(NAME).write_text(KERNEL.format(8, f'if (x[0] < 0) printf("{WORDS}\\n");'))
    code, out = gemmlab("emulate", NAME, "--lines")
    assert code == 0 and WORDS in out
    Path(NAME).write_text(KERNEL.format(9, ""))
    code, out = gemmlab("emulate", NAME, "--check", "all")
    assert code == 4 and f"{NAME}:2" in out


def test_of_a_file_of_records(gemmlab):
    gemmlab("climb", "--size", "8", "--rungs", "naive", "--device", "emulated", "-o", "a.json")
    climb = json.loads(Path("a.json").read_text())
    record = climb["records"][0]
    record |= {"rung": "[bold]:x:[/]", "problem": ":x:[/b]", "verdict": "[red]:smile:"}
    Path("b.json").write_text(json.dumps(climb))
    _, out = gemmlab("compare", "b.json", "b.json")
    assert all(record[name] in out for name in ("rung", "problem", "verdict")), out


def test_of_a_path(gemmlab, monkeypatch):
    monkeypatch.setenv("GEMMLAB_CACHE", str(Path(":x:[bold]cache").absolute()))
    code, out = gemmlab("env")
    assert code == 0 and "[i]:x:/:x:[bold]cache" in out


@pytest.mark.parametrize("command", ["climb", "explain", "show", "new", "docs", "judge", "nothing"])
def test_of_the_command_line(gemmlab, command):
    words = WORDS.replace(":", "")  # a colon separates a ladder's name from a rung's
    code, out = gemmlab(*([] if command == "nothing" else [command]), words)
    assert code == 2 and words in out


def test_in_a_picture():
    svg = tables.picture(lambda out: out.print(WORDS), 80, "title", "name")
    assert "root:x:0:0" in svg and ":smile:" in svg


def test_consoles_are_made_in_one_place():
    package = Path(tables.__file__).parents[1]
    files = [path.name for path in package.rglob("*.py") if " Console(" in path.read_text()]
    assert files == ["tables.py"]
