"""The command line at a terminal: Ctrl-C at any moment, and never a second without output."""

import fcntl
import functools
import itertools
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

import pytest

from gemmlab.core import interrupts, processes, scratch, status

COMMAND = [sys.executable, "-m", "gemmlab"]
# Work that holds the GIL, as some compilers do.
DEAF = "import ctypes; ctypes.PyDLL(None).usleep(int({} * 1e6))"
SPLIT = "from gemmlab.cli import supervisor; from gemmlab.core import status; supervisor.split(); "


def start(command, **options):
    """Run in a process with SIGINT enabled, as at a terminal; background processes ignore it."""
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, preexec_fn=heed, **pipes | options)


def wait_until(true, seconds=20.0):
    stop = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < stop
        time.sleep(0.002)


def catches(process, number):
    """Whether the process has a handler for a signal."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    caught = int(text.split("SigCgt:")[1].split()[0], 16)
    return bool(caught >> (number - 1) & 1)


@pytest.mark.parametrize("delay", [0, 0.05, 0.3, 1.0, 2.0])
@pytest.mark.slow
def test_an_interrupt_at_any_moment_ends_it_without_a_traceback(tmp_path, delay):
    where = {**os.environ, "GEMMLAB_CACHE": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    with start([*COMMAND, "climb", "--size", "256", "--device", "emulated"], env=where) as running:
        wait_until(lambda: catches(running, signal.SIGHUP))
        time.sleep(delay)
        running.send_signal(signal.SIGINT)
        sent = time.monotonic()
        _, err = running.communicate(timeout=20)
    assert (running.returncode, "Traceback" in err) == (130, False), err
    assert time.monotonic() - sent < 5
    assert not list(tmp_path.glob(f"{scratch.PREFIX}*"))
    assert not running_with(tmp_path)


def running_with(folder):
    """Processes whose cache folder is this one."""
    return [*processes._marked(f"GEMMLAB_CACHE={folder / 'cache'}".encode())]


@pytest.mark.parametrize("killed", ["the working process", "the supervisor"])
@pytest.mark.slow
def test_a_killed_climb_leaves_no_process_behind(tmp_path, killed):
    where = {**os.environ, "GEMMLAB_CACHE": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    with start([*COMMAND, "climb", "--size", "32", "--device", "emulated"], env=where) as running:
        assert "naive: pass" in running.stderr.readline()  # a second process is compiling
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
        os.kill(int(children[0]) if killed == "the working process" else running.pid, 9)
        running.communicate(timeout=20)
    if killed == "the working process":
        assert running.returncode == 137
        assert not list(tmp_path.glob(f"{scratch.PREFIX}*"))
    wait_until(lambda: not running_with(tmp_path), 5)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.slow
def test_what_lets_no_python_run_ends_too(number):
    child = f"print('ready', flush=True); {DEAF.format(60)}"
    with start([sys.executable, "-c", SPLIT + child]) as running:
        assert running.stdout.readline() == "ready\n"
        running.send_signal(number)
        assert running.communicate(timeout=10) == ("", "")
    assert running.returncode == 128 + number


def test_what_came_from_it_ends_with_it():
    code = (
        "import subprocess\n"
        "found = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        "print(found.pid, flush=True); found.wait()"
    )
    with start([sys.executable, "-c", f"{SPLIT}\n{code}"]) as running:
        pid = int(running.stdout.readline())
        running.send_signal(signal.SIGINT)
        assert running.wait(20) == 130
    wait_until(lambda: not cmdline(pid), 5)


def test_it_ends_after_the_locks_of_what_came_from_it(tmp_path):
    """A process needs some time to free its memory, and closes its files only then."""
    code = (
        f"import fcntl, os, time; folder = os.open({str(tmp_path)!r}, os.O_RDONLY)\n"
        "fcntl.flock(folder, fcntl.LOCK_EX)\n"
        "if os.fork() == 0:\n"
        "    held = b'x' * (500 << 20)\n"
        "    print('ready', flush=True)\n"
        "time.sleep(60)"
    )
    with start([sys.executable, "-c", f"{SPLIT}\n{code}"]) as running:
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGINT)
        assert running.wait(20) == 130
        folder = os.open(tmp_path, os.O_RDONLY)
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(folder)


def cmdline(pid):
    """Empty for a zombie: a process that has exited but was not waited for."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.slow
def test_an_interrupted_climb_keeps_what_is_done(tmp_path):
    output = tmp_path / "records.json"
    command = [*COMMAND, "climb", "--size", "96", "--device", "emulated", "-o", str(output)]
    with start(command) as running:
        assert "naive: pass" in running.stderr.readline()
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=20)
    assert (running.returncode, "Traceback" in err) == (130, False), err
    done = [record["rung"] for record in json.loads(output.read_text())["records"]]
    assert done[0] == "naive" and f"interrupted after {len(done)} rungs" in err
    assert out.startswith("gemm 96×96×96") and len(done) < 10


def test_how_it_ended_is_told():
    with start([sys.executable, "-c", SPLIT + "import os; os.abort()"]) as running:
        assert running.communicate(timeout=20) == ("", "gemmlab: killed by a signal: Aborted\n")
    assert running.returncode == 134
    with start([sys.executable, "-c", SPLIT + "import sys; sys.exit(7)"]) as running:
        assert running.communicate(timeout=20) == ("", "")
    assert running.returncode == 7


def test_an_interrupt_in_a_program_of_ones_own_aborts_no_compiler():
    """The exception is delayed until the C++ call that cannot propagate it returns."""
    code = (
        "import os, signal\n"
        "from gemmlab.core import interrupts\n"
        "@interrupts.deferred()\n"
        "def work():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print('worked')\n"
        "try: work()\n"
        "except KeyboardInterrupt: print('interrupted')\n"
        "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)\n"
    )
    with start([sys.executable, "-c", code]) as running:
        assert running.communicate() == ("worked\ninterrupted\nTrue\n", "")


def test_handlers_of_signals_are_called_at_the_end():
    calls = []
    before = signal.signal(signal.SIGUSR1, lambda *_: calls.append("handled"))
    try:
        with interrupts.Deferred() as signals:
            signal.raise_signal(signal.SIGUSR1)
            calls.append("worked")
            signals.handle()
            signal.raise_signal(signal.SIGUSR1)
            calls.append("worked")
        assert calls == ["worked", "handled"] * 2
        signal.raise_signal(signal.SIGUSR1)
        assert calls == ["worked", "handled"] * 2 + ["handled"]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_the_current_folder_may_be_gone(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    command = 'cd "$0" && rmdir "$0" && exec "$1" -m gemmlab emulate naive'
    done = subprocess.run(
        ["sh", "-c", command, gone, sys.executable], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and done.stderr.startswith("gemmlab: ")
    assert "Traceback" not in done.stderr


def test_a_command_that_ends_does_not_look_for_garbage():
    code = (
        "import atexit, gc\n"
        "from gemmlab.core import processes\n"
        "for _ in range(3): processes.collect_seldom()\n"
        "atexit._run_exitfuncs()\n"
        "print(gc.get_freeze_count() > 1000, gc.get_threshold()[0] > 10_000)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"


def on_a_terminal(command, columns=80, keys=()):
    """Exit code, what was printed, and the longest time without anything, in seconds. `keys`: bytes
    to wait for, and the keys to press then."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    text, times, keys = b"", [time.monotonic()], [*keys]
    while True:
        try:
            part = os.read(terminal, 2**16)
        except OSError:
            break
        text += part
        if keys and keys[0][0] in text:
            os.write(terminal, keys.pop(0)[1])
        times.append(time.monotonic())
    os.close(terminal)
    gaps = [after - before for before, after in itertools.pairwise(times)]
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code, text.decode(), max(gaps, default=0)


@pytest.mark.slow
def test_silence_on_a_terminal_never_lasts_a_second():
    """The replacement text is erased at the end."""
    code = f"status.say('thinking \\x1b[31m 1'); {DEAF.format(1.6)}; print('done')"
    ended, text, gap = on_a_terminal([sys.executable, "-c", SPLIT + code], columns=40)
    assert (ended, gap < 1) == (0, True), gap
    assert "thinking ?[31m 1 1 s" in text
    assert text.endswith("\r\x1b[Kdone\r\n")


@pytest.mark.parametrize(("key", "code"), [(b"\x03", 130), (b"\x1c", 131)])
def test_keys_end_it(key, code):
    work = f"print('ready', flush=True); {DEAF.format(60)}"
    command = [sys.executable, "-c", SPLIT + work]
    ended, text, _ = on_a_terminal(command, keys=[(b"ready", key)])
    assert (ended, "Traceback" in text) == (code, False), text


@pytest.mark.slow
def test_a_terminal_that_does_not_say_its_width_has_80_columns():
    code = f"status.say('{'x' * 100}'); {DEAF.format(1)}"
    _, text, _ = on_a_terminal([sys.executable, "-c", SPLIT + code], columns=0)
    assert "x" * 77 in text and "x" * 78 not in text


@pytest.mark.parametrize("name", ["list", "judge", "emulate", "climb"])
@pytest.mark.slow
def test_commands_are_never_silent(tmp_path, monkeypatch, name):
    monkeypatch.setenv("GEMMLAB_CACHE", str(tmp_path))
    package = Path(__file__).parent.parent / "gemmlab"
    file = package / "lab" / "submission" / "starters" / "gemm.cu"
    args = {
        "judge": [str(file), "--emulated"],
        "emulate": [str(file), "m=96", "n=96", "k=96", "--check", "all"],
        "climb": ["--size", "32", "--rungs", "naive", "--device", "emulated"],
    }
    code, text, gap = on_a_terminal([*COMMAND, name, *args.get(name, [])])
    assert (code, gap < 1) == (0, True), (gap, text)


@pytest.mark.slow
def test_a_program_of_ones_own_is_told_of_long_work_on_a_terminal_only():
    work = "from gemmlab.core import status\nwith status.doing('compiling x'): {}"
    assert on_a_terminal([sys.executable, "-c", work.format(DEAF.format(0.2))])[:2] == (0, "")
    code = work.format(DEAF.format(1.8))
    with start([sys.executable, "-c", code]) as running:
        ended, text, gap = on_a_terminal([sys.executable, "-c", code])
        assert ended == 0 and "compiling x" in text and text.endswith("\r\x1b[K")
        assert 1 <= gap < 1.8
        assert running.communicate() == ("", "")


def test_a_line_of_status_fits_and_is_plain():
    now = time.monotonic()
    assert status.frame("x" * 100, now, 20)[1:] == " " + 17 * "x"
    assert status.frame("漢" * 100, now - 5, 20)[1:] == " " + 6 * "漢" + " 5 s"
    assert status.frame("a\nb\x1b[1m", now, 20)[1:] == " a?b?[1m"


def test_scratch_folders_go_with_their_process(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    leave = (
        "import os\nfrom gemmlab.core import scratch\n"
        "with scratch.folder() as own:\n"
        "    (own / 'file').touch(); print(own, flush=True)\n"
        "    {}\n"
    )
    dead = [sys.executable, "-c", leave.format("os._exit(0)")]
    alive = [sys.executable, "-c", leave.format("input()")]
    left = Path(subprocess.run(dead, capture_output=True, text=True, check=True).stdout.strip())
    assert left.is_dir()
    (tmp_path / "gemmlab-results").mkdir()  # the user's own folder
    with start(alive, stdin=subprocess.PIPE) as other:
        held = Path(other.stdout.readline().strip())
        with scratch.folder() as own:
            assert own.is_dir() and held.is_dir() and not left.exists()
        other.communicate("\n")
    assert [path.name for path in tmp_path.iterdir()] == ["gemmlab-results"]
