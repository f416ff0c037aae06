"""The child process of `process.run`: confines itself, runs one task, writes its answers.

It imports no package before it is confined.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

from gemmlab.lab.submission.confinement import Confinement


def main(folder: Path, answers: int) -> None:
    with (folder / "request").open("rb") as request:
        confinement: Confinement = pickle.load(request)
        confinement.enter()
        task, asked = pickle.load(request)
    with os.fdopen(answers, "w", encoding="utf-8", buffering=1) as told:

        def write(answer: dict[str, Any]) -> None:
            told.write(json.dumps(answer) + "\n")

        try:
            from gemmlab.core import processes
            from gemmlab.lab.submission import tasks

            processes.collect_seldom()
            for answer in getattr(tasks, task)(asked):
                write(answer)
            write({"done": True})
        except BaseException as error:  # the file's code may raise anything, including SystemExit
            from gemmlab.lab.submission.steps import status_of

            message = str(error) or type(error).__name__
            status = status_of(error)
            if status == "crashed":
                message = f"{type(error).__name__}: {message}"
            write({"error": status, "message": message[:2000]})


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
