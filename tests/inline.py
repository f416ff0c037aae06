"""Run a task of the judge in this process: fast, but only for kernels that terminate."""

import json

from gemmlab.lab.submission import process, tasks
from gemmlab.lab.submission.steps import status_of


def in_this_process(task, request, _limits):
    """A replacement for `process.run`."""
    answers = []
    try:
        for answer in getattr(tasks, task)(request):
            answers.append(json.loads(json.dumps(answer)))
    except Exception as error:
        return process.TaskResult(answers, status_of(error), str(error))
    return process.TaskResult(answers)
