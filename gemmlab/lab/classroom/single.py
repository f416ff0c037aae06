"""Judge one submission in a process of its own: what hangs or crashes the judge costs only it.

As a program it reads a pickled Job from stdin, which this package wrote, and writes the judgement
as JSON to stdout.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import Any

from gemmlab.core import processes, scratch
from gemmlab.errors import GemmlabError, SandboxError
from gemmlab.lab.classroom.folder import Submitted
from gemmlab.lab.directives import Directive
from gemmlab.lab.submission.judging import Options, judge_file

JUDGE_CPU_S = 300  # of the judge itself, which only reads texts


@dataclass(frozen=True)
class Job:
    """A submission to judge; `words` replace those of its directive."""

    submitted: Submitted
    words: Directive
    options: Options


def judged(job: Job) -> dict[str, Any]:
    """Return the judgement as JSON data; at least its verdict, and a message if it has no steps."""
    if job.submitted.fault:
        return {"verdict": "not run", "message": job.submitted.fault}
    command = [sys.executable, "-P", "-m", __name__, str(os.getpid())]
    done = subprocess.run(
        command, input=pickle.dumps(job), capture_output=True, env=processes.environment()
    )
    if done.returncode == -signal.SIGXCPU:
        message = f"the judge needed more than {JUDGE_CPU_S} s for the text of this file"
        return {"verdict": "time limit", "message": message}
    try:
        return dict(json.loads(done.stdout))
    except ValueError:
        lines = done.stderr.decode(errors="replace").splitlines() or ["no message"]
        return {"verdict": "crashed", "message": f"the judge failed: {lines[-1][:500]}"}


def main(parent: int) -> None:
    processes.die_with_parent(parent)
    resource.setrlimit(
        resource.RLIMIT_CPU, (JUDGE_CPU_S, resource.getrlimit(resource.RLIMIT_CPU)[1])
    )
    job: Job = pickle.load(sys.stdin.buffer)
    with scratch.folder() as folder:
        own = folder / "submission"
        for name, content in job.submitted.files.items():
            path = own / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        options = replace(job.options, gpus=_gpus() if job.options.gpu else ())
        try:
            kernel = own / job.submitted.kernel
            found = judge_file(kernel, job.words, options).as_json()
        except GemmlabError as error:
            status = "not run" if isinstance(error, SandboxError) else "bad directive"
            found = {"verdict": status, "message": str(error)}
        sys.stdout.write(json.dumps(found).replace(f"{own.resolve()}/", ""))


def _gpus() -> tuple[str, ...]:
    """Return this machine's GPUs, by their names in CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return tuple(filter(None, visible.split(",")))
    from cuda.bindings import driver

    try:
        (error,) = driver.cuInit(0)
        error, count = driver.cuDeviceGetCount() if not error else (error, 0)
    except RuntimeError:  # no driver
        return ()
    return tuple(map(str, range(count)))


if __name__ == "__main__":
    main(int(sys.argv[1]))
