"""Notebooks: the magics, what results look like, progress, and the tutorial, executed."""

import atexit
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import gemmlab
from gemmlab import problems
from gemmlab.core import status
from gemmlab.devices.emulated import EmulatedDevice
from gemmlab.hardware import specs
from gemmlab.kernels import ladder
from gemmlab.lab.climb import climb
from gemmlab.lab.explain import explain
from gemmlab.lab.judge.judge import compare
from gemmlab.lab.submission.steps import Judgement, Step

IPython = pytest.importorskip("IPython")  # of the extra `notebook`
TUTORIAL = Path(__file__).parent.parent / "docs" / "tutorial.ipynb"
COPY = """\
//! gemmlab args=x:f32[n],y:f32[n],n n=64 block=64 grid=1
extern "C" __global__ void copy(const float* x, float* y, int n) {
  y[threadIdx.x] = x[threadIdx.x];
}
"""


@pytest.fixture
def shell(tmp_path, monkeypatch):
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    made = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))
    made.run_line_magic("load_ext", "gemmlab.notebook")
    return made


def run(shell, source):
    """The value of a cell, which must not fail."""
    done = shell.run_cell(source, store_history=True)
    done.raise_error()
    return done.result


def html_of(shell, value):
    return shell.display_formatter.format(value)[0]["text/html"]


def test_cells_leave_no_files_when_the_session_ends(tmp_path, monkeypatch, request):
    at_exit: list[Callable[[], None]] = []
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(atexit, "register", at_exit.append)
    run(request.getfixturevalue("shell"), f"%%cu\n{COPY}")
    assert [path.suffix for path in temporary.glob("*/cell-*")] == [".cu"]
    for close in at_exit:
        close()
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_tutorial_runs(shell):
    notebook = json.loads(TUTORIAL.read_text())
    cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    results = [run(shell, cell) for cell in cells[1:]]
    assert results[2] == {1: 512, 2: 1024, 4: 2048, 8: 4096}
    assert "no barrier between" in results[-1] and "__syncthreads()" in results[-1]
    shown = html_of(shell, results[0])
    assert shown.startswith("<iframe srcdoc=") and "svg" in shown and "strided" in shown
    explained = html_of(shell, results[1])
    assert "A100" in explained and "<iframe" in explained and "svg" in explained
    assert "minimum time to move the data" in explained and "n = 4,096" in explained
    assert shell.user_ns["strided"].signature.startswith("strided(float32 *x")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_cells_of_ptx_words_and_mistakes(shell, capsys):
    from IPython.core.error import UsageError

    ptx = gemmlab.load(COPY).ptx
    launch = "args=x:f32[n],y:f32[n],n n=32 block=32 grid=1"
    shown = run(shell, f"%%ptx {launch}\n{ptx}")
    assert shown.run.counters["smsp__inst_executed_op_global_ld.sum"] == 1
    assert "copy(" in repr(shown)
    assert run(shell, "%%cu\n" + COPY.partition("\n")[2]).startswith("copy(float32 *x")
    for line, why in (("--chek all", "--chek is no option"), ("n=-1", "elements")):
        with pytest.raises(UsageError, match=why):
            shell.run_cell_magic("cu", line, COPY)
    capsys.readouterr()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_cell_shows_what_it_is_doing(shell, monkeypatch):
    heard = []
    say = status.say

    def heard_too(text):
        heard.append(text)
        say(text)

    monkeypatch.setattr(status, "say", heard_too)
    run(shell, f"%%cu\n{COPY}")
    assert heard[:1] == ["compiling"] and "emulating" in heard
    texts: list[str] = []
    with status.listening(texts.append):
        status.say("one")
        status.detail("two")
        with status.doing("three"):
            pass
    status.say("not heard")
    assert texts[:3] == ["one", "one: two", "one: three"] and "not heard" not in texts


def test_results_have_html_and_short_texts():
    arrays = [np.zeros(64, np.float32), np.zeros(64, np.float32)]
    done = gemmlab.emulate(gemmlab.load(COPY), grid=1, block=64, args=[*arrays, 64])
    assert ": 0" not in repr(done) and "<td style='text-align:left'>8</td>" in done._repr_html_()
    gemm = problems.find("gemm")
    shape = dict.fromkeys("mnk", 16)
    case = gemm.case(shape, "row", "normal", 0)
    [record] = climb(gemm, case, [ladder.find("naive")], EmulatedDevice())
    assert "naive on emulated" in record._repr_html_()
    wrong = compare(np.zeros(2), np.array([1.0, 0.0]), np.ones(2), 1.0)
    assert "wrong answer" in wrong._repr_html_() and "expected 1" in wrong._repr_html_()
    found = explain(gemm, ladder.find("naive"), shape, specs.product("H200"))
    assert "least time of a launch" in found._repr_html_() and "no reuse" in found._repr_html_()
    judged = Judgement("k.cu", steps=[Step("compile", "compile error", "a mistake")])
    assert repr(judged) == "k.cu: compile error\ncompile: compile error, a mistake"
    assert "a mistake" in judged._repr_html_()
