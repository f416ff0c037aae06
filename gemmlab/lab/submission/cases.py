"""The test cases of a submission: ragged shapes, every input family, fresh random inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gemmlab import problems
from gemmlab.lab.judge.precision import WIDE_FAMILIES
from gemmlab.lab.submission.submission import Submission
from gemmlab.problems.problem import Case, Problem, Shape, Shapes

EMULATED = 2**22  # product of the sizes; larger shapes that the user adds run on a GPU only

SHAPES = {name: problems.find(name).judged for name in problems.NAMES}


def shapes_of(problem: Problem) -> Shapes:
    """Return the shapes on which kernels of a problem are judged; it may be the user's."""
    return SHAPES.get(problem.name, problem.judged)


def cases(submission: Submission, large: bool) -> Iterator[Case]:
    """Yield the first shape with every family, then the other shapes with the first family.

    `large` adds the large shapes and the last shape with every family. All seeds differ.
    """
    problem = submission.problem
    shapes = shapes_of(problem)
    asked = (sizes for sizes in submission.shapes if large or math.prod(sizes) <= EMULATED)
    wanted = (*shapes.small, *(shapes.large if large else ()), *asked)
    fitted = list({sizes: submission.fitted(sizes) for sizes in wanted}.values())
    distinct = [shape for i, shape in enumerate(fitted) if shape not in fitted[:i]]
    plan = [(distinct[0], family) for family in families(submission)]
    plan += [(shape, problem.families[0]) for shape in distinct[1:]]
    if large:
        plan += [(distinct[-1], family) for family in families(submission)[1:]]
    for number, (shape, family) in enumerate(plan):
        yield problem.case(shape, submission.layout, family, submission.seed + number)


def families(submission: Submission) -> list[str]:
    """Return the input families that the requested precision class can represent."""
    narrow = submission.precision == "fp16"
    every = submission.problem.families
    return [family for family in every if not (narrow and family in WIDE_FAMILIES)]


def counted_shape(submission: Submission) -> Shape:
    return submission.fitted(shapes_of(submission.problem).counted)
