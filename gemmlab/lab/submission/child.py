"""The child process of `process.run`: sets its limits, runs one task, writes its answers."""

from __future__ import annotations

import json
import pickle
import resource
import sys
from pathlib import Path
from typing import Any

from gemmlab.core.processes import die_with_parent
from gemmlab.lab.submission.process import ANSWERS, DONE, REQUEST

FILE_BYTES = 2**30  # largest file that the process may write


def main(folder: Path, parent: int) -> None:
    # A judge that is killed cannot stop this process, and a kernel that hangs would block the GPU.
    die_with_parent(parent)
    task, request, memory_bytes = pickle.loads((folder / REQUEST).read_bytes())
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    if memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    with (folder / ANSWERS).open("w", encoding="utf-8", buffering=1) as answers:

        def write(answer: dict[str, Any]) -> None:
            answers.write(json.dumps(answer) + "\n")

        try:
            from gemmlab.lab.submission import tasks

            for answer in getattr(tasks, task)(request):
                write(answer)
            write({DONE: True})
        except BaseException as error:  # the file's code may raise anything, including SystemExit
            from gemmlab.lab.submission.steps import status_of

            message = str(error) or type(error).__name__
            status = status_of(error)
            if status == "crashed":
                message = f"{type(error).__name__}: {message}"
            write({"error": status, "message": message[:2000]})


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
