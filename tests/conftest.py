"""Hypothesis profiles, signals, garbage, and commands run in this process.

pytest puts this folder on the path, for `import machine`.
"""

import gc
import os
import signal
from collections.abc import Callable

import pytest
from hypothesis import settings
from machine import without_gpu

# gemmlab's own plug-in, which pytest finds by itself where gemmlab was installed with it.
pytest_plugins = ["gemmlab.testing", "processor_time", "pytester"]

# Emulated launches vary too much in time for a deadline. A test with settings of its own keeps its
# number of examples in every profile. --hypothesis-profile chooses another one.
settings.register_profile("fast", deadline=None, max_examples=20)
settings.register_profile("full", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "full")

# Tests that a shell starts in the background, or nohup, ignore these signals, and their child
# processes inherit that. Some tests send the signals.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(number) is signal.SIG_IGN:
        handler = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, handler)


# Else JAX takes three quarters of a GPU's memory in each process that runs tests.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


# Objects made before the tests begin, of frameworks and of the tests themselves, live to the end.
# If the garbage collector skips them, pytest collects the tests in three quarters of the time, and
# tests that make many objects, such as those of compilers, take a tenth less.
gc.disable()


def pytest_collection_finish() -> None:
    """Start the garbage collector."""
    gc.freeze()
    gc.set_threshold(100_000)
    gc.enable()


def pytest_sessionfinish() -> None:
    """Collect the garbage of the tests once. pytest does so ten times, after this: it walks over
    what is left then, which takes two seconds if that is everything."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def without_garbage(request: pytest.FixtureRequest) -> None:
    """Collect what earlier tests on a GPU have left: destroying their CUDA graphs while a test
    records one would end its recording, and PyTorch no longer collects before it records.

    Without a GPU there are no graphs, and to walk over all objects takes a quarter of a second."""
    if request.node.get_closest_marker("gpu") and not without_gpu():
        gc.collect()


@pytest.fixture
def rarely_native(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulator compiles only kernels that run for very long.

    All launches of a process count. Those of a file of tests add up to what compiling pays off for,
    and then the file is almost done.
    """
    from gemmlab.emulator import tiers

    monkeypatch.setattr(tiers, "WORTH_COMPILING", 100 * tiers.WORTH_COMPILING)
    # After which native code finds out whether a launch ends.
    for module in ("gemmlab.emulator.tiers", "gemmlab.emulator.checks.launch"):
        monkeypatch.setattr(f"{module}.LONG_SECONDS", 60.0)


@pytest.fixture
def gemmlab(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command in this process: exit code, stdout, stderr."""
    from gemmlab.cli.app import main

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(words)
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture
def judged_here(monkeypatch):
    """`gemmlab judge` takes its steps in this process, not each in a process of its own."""
    from inline import in_this_process

    from gemmlab.lab.submission import process

    monkeypatch.setattr(process, "run", in_this_process)


@pytest.fixture
def command(gemmlab, tmp_path, monkeypatch):
    """Run a command in an empty folder; its exit code must be `code`: the output, in one line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")  # tables leave out columns on a narrow terminal

    def run(*words: str, code: int = 0) -> str:
        ended, out, err = gemmlab(*words)
        assert ended == code, out + err
        return " ".join((out + err).split())

    return run
