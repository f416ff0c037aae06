"""Judge a text as a file."""

import json

import pytest

from gemmlab.compile import load
from gemmlab.directives.directive import parse
from gemmlab.submission import cases, judging, process, tasks
from gemmlab.submission.judging import Options
from gemmlab.submission.steps import status_of

# Fewer and smaller than a user's, each with something ragged.
VECTOR = cases.Shapes(small=((100,), (1,), (33,)), large=(), counted=(512,))
QUICK = cases.SHAPES | {
    "gemm": cases.Shapes(((18, 17, 5), (1, 1, 1), (2, 3, 18)), (), (32, 32, 32)),
    "transpose": cases.Shapes(((18, 17), (1, 40)), (), (64, 64)),
    **dict.fromkeys(("sum", "histogram"), VECTOR),
}


def in_this_process(task, request, limits):
    """What process.run does, without the process: quick, for kernels that are known to end."""
    answers = []
    try:
        for answer in getattr(tasks, task)(request):
            answers.append(json.loads(json.dumps(answer)))
    except Exception as error:
        return process.Ended(answers, status_of(error), str(error))
    return process.Ended(answers)


class Judge:
    """Without a GPU; `apart`, in processes as a user does."""

    def __init__(self, folder, monkeypatch):
        self._folder, self._monkeypatch = folder, monkeypatch

    def file(self, text, suffix=".cu"):
        file = self._folder / f"kernel{suffix}"
        file.write_text(text)
        return file

    def artifact(self, text):
        return load(self.file(text))

    def __call__(self, text, *words, suffix=".cu", apart=False, **options):
        if not apart:
            self._monkeypatch.setattr(process, "run", in_this_process)
            self._monkeypatch.setattr(cases, "SHAPES", QUICK)
        file = self.file(text, suffix)
        try:
            given = parse(list(words))
        except Exception:  # the command line refuses those; in a file they are a verdict
            file.write_text(text.replace("//! gemmlab", f"//! gemmlab {' '.join(words)}", 1))
            given = parse([])
        return judging.judge_file(file, given, Options(**{"gpu": False, "seed": 1, **options}))


@pytest.fixture
def judge(tmp_path, monkeypatch):
    return Judge(tmp_path, monkeypatch)
