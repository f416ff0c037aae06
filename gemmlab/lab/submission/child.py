"""What process.run starts: takes on its limits, runs one task, tells what comes of it."""

from __future__ import annotations

import json
import pickle
import resource
import sys
from pathlib import Path
from typing import Any

from gemmlab.core.processes import die_with_parent
from gemmlab.lab.submission.process import ANSWERS, DONE, REQUEST

FILE_BYTES = 2**30  # of any file it writes


def main(folder: Path, parent: int) -> None:
    # A judge that is killed cannot end us; a kernel that hangs would keep the GPU for ever.
    die_with_parent(parent)
    task, request, memory_bytes = pickle.loads((folder / REQUEST).read_bytes())
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    if memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    with (folder / ANSWERS).open("w", encoding="utf-8", buffering=1) as answers:

        def tell(answer: dict[str, Any]) -> None:
            answers.write(json.dumps(answer) + "\n")

        try:
            from gemmlab.lab.submission import tasks

            for answer in getattr(tasks, task)(request):
                tell(answer)
            tell({DONE: True})
        except BaseException as error:  # whatever the file's code raises, SystemExit too
            from gemmlab.lab.submission.steps import status_of

            words = str(error) or type(error).__name__
            status = status_of(error)
            if status == "crashed":
                words = f"{type(error).__name__}: {words}"
            tell({"error": status, "message": words[:2000]})


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
