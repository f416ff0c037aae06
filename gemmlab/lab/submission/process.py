"""Run a task in a child process with limits, and clean up all its processes and files.

The child leads a session, so that it can be killed together with its descendants; those that left
the session are found by a variable in their environment. Its folder is removed when the task ends.
Its output is drained so that it cannot block, and truncated to a few thousand bytes. It answers
through a pipe: a file in its folder could be exchanged for another one.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemmlab.core import processes, scratch
from gemmlab.core.sandbox import support
from gemmlab.lab.submission import isolation
from gemmlab.lab.submission.confinement import Confinement
from gemmlab.lab.submission.listening import BEGUN, Listener
from gemmlab.lab.submission.steps import STATUSES, Status

__all__ = ["BEGUN", "Limits", "TaskResult", "run"]

MARK = "GEMMLAB_TASK"  # environment variable of the child and its descendants
REQUEST = "request"  # name in the child's folder
MESSAGE = 4000  # characters of a failure's message that are kept
DONE = "done"  # key of the last answer of a completed task


@dataclass(frozen=True)
class Limits:
    """The limits of a task on the submission `file`.

    `memory_bytes` None means unlimited. `runs_file` if the task executes code of the file on the
    host: then its answers are not trusted. `gpu` is the only one that the
    process sees, by its name in CUDA_VISIBLE_DEVICES; None: all. `sandbox` confines the process:
    see isolation.py.
    """

    file: Path
    seconds: float = 120.0
    memory_bytes: int | None = 8 * 2**30
    runs_file: bool = True
    on_gpu: bool = False
    gpu: str | None = None
    sandbox: bool = True
    problem: Path | None = None  # a file that the process also reads


@dataclass
class TaskResult:
    """The answers of a task in order, and how it ended: `status` is None if it completed."""

    answers: list[dict[str, Any]] = field(default_factory=list)
    status: Status | None = None
    message: str = ""
    output: str = ""


def run(task: str, request: Any, limits: Limits) -> TaskResult:
    """Run the task of tasks.py with this name; its failures become a status, not an exception."""
    mark = uuid.uuid4().hex
    with scratch.folder() as folder:
        policy, before = None, list[str]()
        if limits.sandbox and support().complete:
            policy = isolation.policy(
                limits.file, folder, limits.runs_file, limits.on_gpu, limits.problem
            )
            before = support().prefix(policy, str(folder))
        confinement = Confinement(
            parent=None if before else os.getpid(),
            memory_bytes=limits.memory_bytes,
            policy=policy,
            with_landlock=not before,
        )
        # The child reads the first part before it imports what the second consists of.
        parts = pickle.dumps(confinement) + pickle.dumps((task, request))
        (folder / REQUEST).write_bytes(parts)
        answers, writing = os.pipe()
        try:
            child = subprocess.Popen(
                [
                    *before,
                    *[sys.executable, "-P", "-m", f"{__package__}.child", str(folder)],
                    str(writing),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[writing],
                start_new_session=True,
                cwd=folder,
                env=_environment(folder, mark, limits),
            )
            os.close(writing)
            try:
                heard = Listener(child, answers, folder).listen(limits.seconds)
            finally:
                _kill(child, mark)
        finally:
            os.close(answers)
    *others, last = heard.answers or [{}]
    if heard.excess:
        return TaskResult(heard.answers, "resource limit", heard.excess, heard.output)
    if DONE in last:
        return TaskResult(others, None, "", heard.output)
    if "error" in last:
        failures = [name for name in STATUSES if name not in ("pass", "skipped")]
        given: Any = last["error"]  # may be unhashable, so `failures` is a list
        status: Status = given if given in failures else "crashed"
        return TaskResult(others, status, str(last.get("message"))[:MESSAGE], heard.output)
    if not heard.in_time:
        message = f"not done in {limits.seconds:g} s"
        return TaskResult(heard.answers, "time limit", message, heard.output)
    return TaskResult(heard.answers, "crashed", _exit_message(child.returncode), heard.output)


def _environment(folder: Path, mark: str, limits: Limits) -> dict[str, str]:
    own = isolation.environment(processes.environment(), folder, limits.runs_file)
    visible = {} if limits.gpu is None else {"CUDA_VISIBLE_DEVICES": limits.gpu}
    return own | visible | {MARK: mark}


def _kill(child: subprocess.Popen[bytes], mark: str) -> None:
    """Kill the child and its descendants."""
    processes.end_all(child.pid, MARK, mark)
    child.wait()
    assert child.stdout is not None
    child.stdout.close()


def _exit_message(code: int) -> str:
    if code >= 0:
        return f"the process ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"the process was killed by {signal.Signals(-code).name}"
    return f"the process was killed by signal {-code}"
