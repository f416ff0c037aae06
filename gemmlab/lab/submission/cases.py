"""The test cases of a submission: ragged shapes, every input family, fresh random inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gemmlab.lab.judge.precision import WIDE_FAMILIES
from gemmlab.lab.submission.submission import Submission
from gemmlab.problems.problem import Case, Shape

Sizes = tuple[int, ...]

EMULATED = 2**22  # product of the sizes; larger shapes that the user adds run on a GPU only


@dataclass(frozen=True)
class Shapes:
    """The shapes of one problem, in the order of its axes.

    The first shape in `small` is tried with every input family.
    """

    small: tuple[Sizes, ...]  # for the emulator and a GPU
    large: tuple[Sizes, ...]  # for a GPU only
    counted: Sizes  # for the counters; large enough that partial tiles contribute little


_VECTOR = Shapes(
    small=((1000,), (1,), (31,), (257,), (4099,)),
    large=((100_003,), (2**22 + 1,)),
    counted=(2**14,),
)
_LONG = ((20_011, 3, 2), (3, 20_011, 2), (2, 3, 20_011))
SHAPES = {  # some are long in a single axis: many tiles, or many iterations of a loop
    "gemm": Shapes(
        small=((33, 31, 17), (1, 1, 1), (260, 3, 5), (1, 261, 9), (2, 3, 131), (129, 65, 20)),
        large=((127, 129, 65), (1, 1000, 300), *_LONG, (1000, 513, 777), (1536, 1024, 2048)),
        counted=(256, 256, 64),
    ),
    "transpose": Shapes(
        small=((33, 31), (1, 1), (260, 2), (3, 261), (129, 65)),
        large=((1000, 777), (1, 5000), (20_011, 3), (4097, 2049)),
        counted=(512, 512),
    ),
    "sum": _VECTOR,
    "histogram": _VECTOR,
    "vector-add": _VECTOR,
}


def cases(submission: Submission, large: bool) -> Iterator[Case]:
    """Yield the first shape with every family, then the other shapes with the first family.

    `large` adds the large shapes and the last shape with every family. All seeds differ.
    """
    problem = submission.problem
    shapes = SHAPES[problem.name]
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
    return submission.fitted(SHAPES[submission.problem.name].counted)
