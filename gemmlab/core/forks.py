"""Work that forks of this process share: they have its memory, so that nothing is sent to them."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from multiprocessing import current_process, get_all_start_methods, get_context
from multiprocessing.connection import Connection
from typing import TypeVar

from gemmlab.core.processes import die_with_parent

Item = TypeVar("Item")
Result = TypeVar("Result")
_PROCESSES = 2  # each has what it computes in memory


def share(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return what `work` returns for each item, computed in two processes if there are two
    processors. They take the items in order; the first should be the longest.

    The work must have no effect other than its result and must not use a GPU; its result must be
    picklable. A process with threads does all work itself, because a fork lacks them and would wait
    for their locks; so does a daemon process.
    """
    if min(len(items), _processors(), _PROCESSES) < 2 or not _can_fork():
        return [work(item) for item in items]
    context = get_context("fork")
    following = context.Value("i", 0)
    found: dict[int, Result] = {}

    def work_on(found: dict[int, Result]) -> None:
        while True:
            with following.get_lock():
                number = following.value
                following.value += 1
            if number >= len(items):
                return
            found[number] = work(items[number])

    def serve(parent: int, results: Connection) -> None:
        die_with_parent(parent)
        gc.freeze()  # what the parent has made is the parent's to finalize
        done: dict[int, Result] = {}
        with contextlib.suppress(Exception):  # the parent repeats the item and raises
            work_on(done)
        results.send(done)

    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=serve, args=(os.getpid(), theirs))
    with warnings.catch_warnings():  # of threads of libraries, which the work does not use
        warnings.simplefilter("ignore")
        process.start()
    theirs.close()
    try:
        work_on(found)
        with contextlib.suppress(EOFError):  # the process was killed
            found |= ours.recv()
    except BaseException:
        process.kill()
        raise
    finally:
        process.join()
        ours.close()
    return [found[i] if i in found else work(item) for i, item in enumerate(items)]


def _can_fork() -> bool:
    alone = threading.active_count() == 1 and not current_process().daemon
    return alone and "fork" in get_all_start_methods()


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
