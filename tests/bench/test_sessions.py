"""What is kept when a measurement ends early: each case has a process and is kept at once."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from test_numbers import BASE

from gemmlab.errors import DeviceError
from gemmlab.lab.bench import record, roofs, session
from gemmlab.lab.bench.circumstances import Circumstances
from gemmlab.lab.bench.job import Job, Outcome
from gemmlab.lab.bench.protocol import Protocol

HERE = Path(__file__).parent
SHARED = Circumstances({}, roofs.datasheet("NVIDIA H200", "sm_90a", 132, 0, 0), Protocol(), {}, "")


def job(n):
    return Job("gemm", {"m": n, "n": n, "k": n}, "row", "normal", 0, (), (), "gemmlab bench")


def work(job, _protocol, _probe, circumstances):
    """Stands in for the GPU, in the measuring process: its result tells the cases before it."""
    size = job.shape["m"]
    if size == 13:
        os._exit(3)
    if size == 1000:
        print("waiting", os.getpid(), flush=True)
        time.sleep(60)
    earlier = circumstances or SHARED
    shared = replace(earlier, versions={"cases": f"{earlier.versions.get('cases', '')}I"})
    records = [replace(BASE, shape=job.shape, samples=len(shared.versions["cases"]))]
    return Outcome(records, circumstances=shared)


def measure(folder, *sizes):
    """Also run by the programs below, in a process that gets a signal."""
    session._work = work
    kept = []

    def keep(found):
        kept.append(found)
        record.write(folder, found.records)

    outcome = session.measure_jobs([job(n) for n in sizes], Protocol(), "sm_90a", keep)
    return outcome, kept


@pytest.fixture
def worked(monkeypatch, tmp_path):
    monkeypatch.setattr(session, "_work", work)
    return lambda *sizes: (*measure(tmp_path, *sizes), record.read(tmp_path))


@pytest.mark.slow
def test_each_case_is_kept_when_it_is_measured_and_told_what_the_run_shares(worked):
    outcome, kept, written = worked(8, 16)
    assert [found.samples for found in outcome.records] == [1, 2]
    assert [found.records for found in kept] == [[one] for one in outcome.records]
    assert sorted(written, key=lambda found: found.samples) == outcome.records
    assert outcome.ended_by is None


@pytest.mark.slow
def test_a_case_whose_process_dies_ends_the_measurement(worked):
    outcome, _, written = worked(8, 13, 16)
    assert isinstance(outcome.ended_by, DeviceError)
    assert "gemm 13×13×13, row, normal: the measuring process died" in str(outcome.ended_by)
    assert outcome.records == written and [found.shape["m"] for found in written] == [8]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_the_cases_that_were_measured(tmp_path, number):
    program = (
        f"import sys; sys.path.insert(0, {str(HERE)!r})\n"
        "from pathlib import Path; import test_sessions\n"
        f"outcome, _ = test_sessions.measure(Path({str(tmp_path)!r}), 8, 1000, 16)\n"
        "print(repr(outcome.ended_by), len(outcome.records))\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        assert running.stdout is not None
        child = int(running.stdout.readline().split()[1])  # the second case is being measured
        assert [found.shape["m"] for found in record.read(tmp_path)] == [8]
        if number == signal.SIGINT:  # the keyboard's goes to all processes
            os.killpg(running.pid, number)
        else:
            running.send_signal(number)
        out, err = running.communicate(timeout=20)
    if number == signal.SIGINT:
        assert (out, err, running.returncode) == ("KeyboardInterrupt() 1\n", "", 0)
    else:
        assert running.returncode == -number
    assert [found.shape["m"] for found in record.read(tmp_path)] == [8]
    for _ in range(100):
        if not Path(f"/proc/{child}/cmdline").exists() or not words_of(child):
            break
        time.sleep(0.05)
    else:
        pytest.fail("the measuring process goes on")


def words_of(process):
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""
