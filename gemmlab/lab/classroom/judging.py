"""Judge all submissions of a folder in parallel; those that have a grade already keep it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from gemmlab.compile.source import read
from gemmlab.core.packages import DISTRIBUTED
from gemmlab.errors import InputError
from gemmlab.lab.classroom.folder import Submitted
from gemmlab.lab.classroom.grades import Grade, graded
from gemmlab.lab.classroom.single import Job, judged
from gemmlab.lab.directives import Directive
from gemmlab.lab.environment import own_version
from gemmlab.lab.submission.judging import Options
from gemmlab.problems import files

Progress = Callable[[Grade], None]


def judge_all(
    submissions: Sequence[Submitted],
    words: Directive,
    options: Options,
    executor: Executor,
    known: Mapping[str, Grade],
    progress: Progress = lambda grade: None,
) -> list[Grade]:
    """Return the grades of all submissions. `progress` gets each new one when it is there.

    `known` are grades of an earlier run, by file: they stand if neither the submission, the
    options, the problem nor gemmlab's version changed, and the judge ran. A judge that fails costs
    only its submission.
    """
    found, waiting = list[Grade](), {}
    for one in submissions:
        key = _key(one, words, options)
        if one.title in known and known[one.title].key == key:
            found.append(known[one.title])
        else:
            waiting[executor.submit(judged, Job(one, words, options))] = one, key
    for future in as_completed(waiting):
        one, key = waiting[future]
        try:
            judgement = future.result()
        except Exception as error:  # a worker of another machine was lost
            judgement = {"verdict": "not run", "message": f"{type(error).__name__}: {error}"}
        # Another run tries again what was not judged.
        kept = "" if judgement["verdict"] == "not run" else key
        found.append(graded(one.title, judgement, one.digest, kept))
        progress(found[-1])
    return found


def here(processes: int) -> AbstractContextManager[Executor]:
    """Return the executor of this machine: a thread for each judging process."""
    return ThreadPoolExecutor(processes)


@contextmanager
def elsewhere(address: str) -> Iterator[Executor]:
    """Connect to the scheduler of Dask.distributed; its workers must have gemmlab installed.

    If any worker has the resource GPU, a submission takes one. Raises MissingDependencyError, and
    InputError if there is no scheduler.
    """
    distributed = DISTRIBUTED.load()
    try:
        client = distributed.Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise InputError(f"no Dask scheduler at {address}: {error}") from error
    with client:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        gpus = any(worker.get("resources", {}).get("GPU") for worker in workers)
        with client.get_executor(pure=False, resources={"GPU": 1} if gpus else {}) as executor:
            yield executor


def _key(one: Submitted, words: Directive, options: Options) -> str:
    parts = [one.name, one.fault, one.digest, repr(words), repr(options), own_version()]
    if words.problem and words.problem.endswith(files.SUFFIX):
        parts.append(read(Path(words.problem)))
    return hashlib.sha256("\n".join(parts).encode(errors="surrogateescape")).hexdigest()[:16]
