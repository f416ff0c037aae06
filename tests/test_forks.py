"""Work that two processes share."""

import os
import signal
import threading
import time

import pytest

from gemmlab.core import forks

WAIT_S = 10


@pytest.fixture(autouse=True)
def two_processors(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)


@pytest.fixture
def both(tmp_path, monkeypatch):
    """Work that ends when a second process has begun: its item and its process.

    Threads that libraries have started for other tests hold no lock that it needs.
    """
    monkeypatch.setattr(threading, "active_count", lambda: 1)

    def work(item):
        (tmp_path / str(os.getpid())).touch()
        until = time.monotonic() + WAIT_S
        while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < until:
            time.sleep(0.001)
        return item, os.getpid()

    return work


def test_two_processes_share_the_items_and_results_keep_their_order(both):
    found = forks.share(both, "abcde")
    assert [item for item, _ in found] == [*"abcde"]
    assert len({process for _, process in found}) == 2


def test_an_error_is_raised_here_wherever_it_was_met():
    def work(item):
        raise ValueError(f"{item} is wrong")

    with pytest.raises(ValueError, match="is wrong"):
        forks.share(work, "ab")


def test_items_of_a_process_that_fails_or_dies_are_worked_on_here(both):
    here = os.getpid()

    def work(item):
        both(item)
        if os.getpid() != here and item == "b":
            os.kill(os.getpid(), signal.SIGKILL)
        if os.getpid() != here:
            raise ValueError
        return item, os.getpid()

    for items in ("ab", "ba", "cd"):
        assert forks.share(work, items) == [(item, here) for item in items]


def test_a_process_with_threads_works_alone():
    """A fork lacks the threads, and would wait for the locks that they hold."""
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    try:
        assert set(forks.share(lambda _: os.getpid(), range(8))) == {os.getpid()}
    finally:
        over.set()
        other.join()
