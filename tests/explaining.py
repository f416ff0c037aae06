"""What tests of explanations share."""

from __future__ import annotations

import io

from rich.console import Console

from gemmlab import problems
from gemmlab.hardware import specs
from gemmlab.kernels import ladder
from gemmlab.lab.explain import explain
from gemmlab.report import explanation as page

H200 = specs.product("H200")


def explained(name, *sizes, gpu=H200):
    rung = ladder.find(name)
    problem = problems.find(rung.problem)
    return explain(problem, rung, dict(zip(problem.axes, sizes, strict=True)), gpu)


def printed(explanation, width):
    text = io.StringIO()
    page.show(explanation, Console(width=width, file=text, highlight=False))
    return text.getvalue()


def row(explanation, name):
    return next(row for row in explanation.rows if row.name == name)
