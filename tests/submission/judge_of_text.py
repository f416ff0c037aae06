"""The fixture `judge`, which judges the text of a kernel file."""

import pytest
from inline import in_this_process

from gemmlab.compile import load
from gemmlab.compile.directive import parse
from gemmlab.lab.submission import cases, judging, process
from gemmlab.lab.submission.judging import Options
from gemmlab.problems.problem import Shapes

# Fewer and smaller shapes than in production; most are ragged.
VECTOR = Shapes(small=((100,), (1,), (33,)), large=(), counted=(512,))
QUICK = cases.SHAPES | {
    "gemm": Shapes(((18, 17, 5), (1, 1, 1), (2, 3, 18)), (), (32, 32, 32)),
    "transpose": Shapes(((18, 17), (1, 40)), (), (64, 64)),
    **dict.fromkeys(("sum", "histogram", "vector-add"), VECTOR),
}


class Judge:
    """Judges without a GPU; with `apart`, in child processes as in production."""

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
        except Exception:  # an error on the command line, but a verdict in a file
            file.write_text(text.replace("//! gemmlab", f"//! gemmlab {' '.join(words)}", 1))
            given = parse([])
        return judging.judge_file(file, given, Options(**{"gpu": False, "seed": 1, **options}))


@pytest.fixture
def judge(tmp_path, monkeypatch):
    return Judge(tmp_path, monkeypatch)
