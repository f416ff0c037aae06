"""What a submission is tried on: ragged shapes, every input family, inputs nobody saw before."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gemmlab.lab.judge.precision import WIDE_FAMILIES
from gemmlab.lab.submission.submission import Submission
from gemmlab.problems.problem import Case, Shape

Sizes = tuple[int, ...]

EMULATED = 2**22  # product of the sizes: larger shapes that were asked for wait for a GPU


@dataclass(frozen=True)
class Shapes:
    """Of one problem, in the order of its axes. The first of `small` sees every family."""

    small: tuple[Sizes, ...]  # for the emulator
    large: tuple[Sizes, ...]  # for a GPU, which is tried on both
    counted: Sizes  # what counters are told of: large enough that edges weigh little


_VECTOR = Shapes(
    small=((1000,), (1,), (31,), (257,), (4099,)),
    large=((100_003,), (2**22 + 1,)),
    counted=(2**14,),
)
_LONG = ((20_011, 3, 2), (3, 20_011, 2), (2, 3, 20_011))
SHAPES = {  # among them what is long in one axis alone: many tiles, or turns of a loop
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
    """Each shape on the first family, the first shape on all; every case has its own seed."""
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
    """Those that hold numbers of the class that the kernel wants to be judged in."""
    narrow = submission.precision == "fp16"
    own = submission.problem.families
    return [family for family in own if not (narrow and family in WIDE_FAMILIES)]


def counted_shape(submission: Submission) -> Shape:
    return submission.fitted(SHAPES[submission.problem.name].counted)
