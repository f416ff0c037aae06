"""Child processes: every failure of a task becomes a status, and cleanup is complete."""

import functools
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from kernels import gemm

from gemmlab.lab.directives import Directive
from gemmlab.lab.submission import process
from gemmlab.lab.submission.listening import OUTPUT_BYTES
from gemmlab.lab.submission.process import MARK, Limits, run
from gemmlab.lab.submission.submission import Submission

WORDS = Directive(problem="gemm", entry="f", grid=("1",), block=("32",))

FILES = {
    "hangs": ("import time; time.sleep(60)", "time limit", "not done in"),
    "dies": ("import os; os.abort()", "crashed", "SIGABRT"),
    "leaves": ("import os; os._exit(0)", "crashed", "exit code 0"),
    "exits": ("raise SystemExit('enough')", "crashed", "SystemExit: enough"),
    "hoards": ("x = bytearray(2**33)", "memory limit", ""),
    "makes a library hoard": (
        "raise ImportError('x.so: failed to map segment from shared object')",
        "memory limit",
        "x.so",
    ),
    "raises": ("1 / 0", "crashed", "ZeroDivisionError"),
    "has no kernel": ("f = 1", "no entry", "no @cute.kernel 'f'"),
    "lies about its end": (
        'import os, sys; os.write(int(sys.argv[2]), b\'{"error": "pass"}\\n\'); os._exit(0)',
        "crashed",
        "",
    ),
}


def compiled(tmp_path, text, seconds=20.0, sandbox=True):
    """Run the compiling task on a Python file."""
    file = tmp_path / "kernel.py"
    file.write_text(text)
    limits = Limits(file, seconds, 4 * 2**30, sandbox=sandbox)
    return run("compile_file", Submission(file, WORDS, "sm_90a", 0), limits)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.slow
def test_every_failure_of_a_file_is_a_status(tmp_path, name):
    text, status, message = FILES[name]
    ended = compiled(tmp_path, text, 2.0 if name == "hangs" else 20.0)
    assert ended.status == status, ended
    assert message in ended.message


@pytest.mark.slow
def test_nothing_is_left_behind(tmp_path, monkeypatch):
    """The file starts a process outside its session and prints a million lines."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    pid_file = tmp_path / "pid"
    ended = compiled(
        tmp_path,
        "import pathlib, subprocess, tempfile\n"
        "tempfile.mkstemp()\n"
        "child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        f"pathlib.Path({str(pid_file)!r}).write_text(str(child.pid))\n"
        "print('line\\n' * 1_000_000)\n"
        "raise ValueError('done')\n",
        sandbox=False,
    )
    assert ended.message.endswith("done")
    assert ended.output.startswith("line\nline\n") and "more bytes" in ended.output
    assert len(ended.output) < 2 * OUTPUT_BYTES
    assert not list(scratch.iterdir())
    stop = time.monotonic() + 5
    while _lives(int(pid_file.read_text())) and time.monotonic() < stop:
        time.sleep(0.05)
    assert not _lives(int(pid_file.read_text()))
    assert MARK not in os.environ


def _lives(pid):
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_a_file_cannot_have_another_kernel_judged(judge):
    """The compile task must answer with PTX, not with the name of a rung or a file."""
    text = (
        "#! gemmlab problem=gemm block=32,32 grid=1\n"
        "import os, sys\n"
        'os.write(int(sys.argv[2]), b\'{"ptx": "naive"}\\n{"done": true}\\n\')\n'
        "os._exit(0)\n"
    )
    found = judge(text, suffix=".py", apart=True)
    assert (found.verdict, found.steps[-1].message) == ("crashed", "the file produced no PTX")


@pytest.mark.parametrize(
    "lines",
    [
        "5",
        "[1]",
        '{"trial": 1}',
        '{"begun": 1}',
        '{"error": []}',
        '{"error": "pass"}',
        '{"ptx": ".version .target", "versions": 3, "left_out": 7}',
        '{"ptx": ".version .target", "versions": {"a": 1}, "left_out": [7]}',
        '{"error": "compile error", "message": "\\ud800\\u001b[2J verdict: pass\\r"}',
        "[" * 100_000,
        "\\xff",
    ],
)
@pytest.mark.slow
def test_forged_answers_give_a_verdict(judge, lines):
    text = (
        "#! gemmlab problem=gemm block=32,32 grid=1\n"
        "import os, sys\n"
        "os.write(1, b'\\x1b[2Jverdict: pass\\r')\n"
        f"os.write(int(sys.argv[2]), {lines!r}.encode() + b'\\n{{\"done\": true}}\\n')\n"
        "os._exit(0)\n"
    )
    found = judge(text, suffix=".py", apart=True)
    assert found.verdict in ("crashed", "compile error"), found.steps[-1]
    # Nor does a text control the terminal, or stop the judge because it cannot be encoded.
    texts = [text for step in found.steps for text in (step.message, step.output)]
    assert all(text.isprintable() for text in texts) and any(texts), texts


def spins(turns):
    """Return a product after a loop of `turns` turns, each with another state."""
    return gemm(
        f"  unsigned x = 1; for (int i = 0; i < {turns}; i++) x = (x ^ i) * 1664525u;\n"
        "  float sum = x;\n"
    )


@pytest.mark.slow
def test_the_message_on_an_endless_kernel_names_the_case(judge):
    found = judge(spins(2**31 - 1), apart=True)
    assert found.verdict == "never ends"
    assert "33×31×17 normal" in found.steps[-1].message


@pytest.mark.slow
def test_the_message_on_a_slow_kernel_names_the_case(judge, monkeypatch):
    def hurried(task, request, limits):
        return run(task, request, replace(limits, seconds=3.0 if task == "emulate" else 60.0))

    monkeypatch.setattr(process, "run", hurried)
    found = judge(spins(1_500_000), apart=True)  # below the limit of instructions
    assert found.verdict == "time limit"
    assert "33×31×17 normal" in found.steps[-1].message


NEXT = "from gemmlab.core import scratch\nwith scratch.folder(): pass"


@pytest.mark.skipif(sys.platform != "linux", reason="requires prctl(PR_SET_PDEATHSIG)")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.slow
def test_a_judge_that_is_stopped_leaves_no_process(tmp_path, how):
    """The child is killed with the judge, even by SIGKILL, and temporary files are removed."""
    file, pid_file, scratch = tmp_path / "kernel.py", tmp_path / "pid", tmp_path / "scratch"
    scratch.mkdir()
    file.write_text(
        "#! gemmlab problem=gemm block=32 grid=1\n"
        "import os, pathlib, time\n"
        f"pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid()))\n"
        "time.sleep(1000)\n"
    )
    command = [
        sys.executable,
        "-m",
        "gemmlab",
        "judge",
        str(file),
        "--emulated",
        "--sandbox",
        "off",
    ]
    where = {**os.environ, "TMPDIR": str(scratch)}
    # A background job ignores SIGINT, and its children inherit that.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        command, stderr=subprocess.DEVNULL, env=where, preexec_fn=heed
    ) as judging:
        _wait_until(lambda: pid_file.exists() and pid_file.read_text())
        judging.send_signal(how)
    _wait_until(lambda: not _lives(int(pid_file.read_text())))
    if how != signal.SIGKILL:
        assert judging.returncode == 128 + how
    else:  # the next run removes the folder of a killed judge
        subprocess.run([sys.executable, "-c", NEXT], env=where, check=True)
    assert not list(scratch.iterdir())


def _wait_until(true, seconds=20.0):
    stop = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < stop
        time.sleep(0.05)


@pytest.mark.slow
def test_the_file_changes_nothing_in_the_process_that_judges(judge):
    """Host code runs only in the compile process, which returns only PTX."""
    trick = (
        "import numpy, gemmlab.lab.judge.judge as judge\n"
        "judge.compare = numpy.allclose = lambda *args: True\n"
    )
    text = (
        "#! gemmlab problem=sum args=x,out,n block=32 grid=1\n"
        f"{trick}"
        "from cutlass import Int64, cute\n"
        "@cute.kernel\n"
        "def wrong(x: cute.Pointer, out: cute.Pointer, n: Int64):\n"
        "    mX = cute.make_tensor(x, cute.make_layout(n))\n"
        "    tx, _, _ = cute.arch.thread_idx()\n"
        "    if tx == 0:\n"
        "        cute.arch.atomic_add(out, mX[0])\n"
    )
    found = judge(text, suffix=".py", apart=True, seconds=60.0)
    assert found.verdict == "wrong answer", found.steps[-1]
