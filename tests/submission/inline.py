"""A task of the judge without its process: quick, for kernels that are known to end."""

import json

from gemmlab.lab.submission import process, tasks
from gemmlab.lab.submission.steps import status_of


def in_this_process(task, request, limits):
    """What process.run does, here."""
    answers = []
    try:
        for answer in getattr(tasks, task)(request):
            answers.append(json.loads(json.dumps(answer)))
    except Exception as error:
        return process.TaskResult(answers, status_of(error), str(error))
    return process.TaskResult(answers)
