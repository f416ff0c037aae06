"""A kernel file with its directive: the input of every step of the judge."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gemmlab import problems
from gemmlab.errors import InputError, ShapeError, UnknownNameError
from gemmlab.lab.directives import Directive
from gemmlab.lab.directives.call import check_sizes, layout_of, shape_of, sizes_of
from gemmlab.lab.directives.expressions import evaluate
from gemmlab.lab.judge.precision import CLASSES
from gemmlab.problems.problem import Problem

SUFFIXES = (".cu", ".cuh", ".ptx", ".py")
FINITE = 0x4B8DEAD1  # float32 1.9e7: initial output of a kernel that multiplies it by 0


@dataclass(frozen=True)
class Submission:
    """A kernel file to judge; picklable. `ptx` and `entry` are empty until it is compiled."""

    path: Path
    directive: Directive
    arch: str
    seed: int
    shapes: tuple[tuple[int, ...], ...] = ()  # additional test shapes
    ptx: str = ""
    entry: str = ""

    @property
    def problem(self) -> Problem:
        return problems.find(self.directive.problem or "")

    @property
    def layout(self) -> str:
        return layout_of(self.directive, self.problem)

    @property
    def precision(self) -> str:
        """The requested precision class."""
        return self.directive.precision or "ieee"

    @property
    def argument_words(self) -> tuple[str, ...]:
        """The words of args=; by default all the problem's arguments in their order."""
        every = tuple(parameter.name for parameter in self.problem.parameters)
        return self.directive.args or every

    @property
    def output_word(self) -> int | None:
        """The 32-bit pattern that fills the output before a launch; None for the judge's NaNs."""
        return FINITE if self.directive.output == "finite" else None

    def fitted(self, sizes: tuple[int, ...]) -> dict[str, int]:
        """Round sizes, in the order of the axes, up to multiples that the kernel accepts."""
        steps = self.multiples()
        return {
            axis: max(-(-size // step) * step, step if size else 0)
            for axis, size, step in zip(self.problem.axes, sizes, steps, strict=True)
        }

    def multiples(self) -> tuple[int, ...]:
        words = self.directive.multiple or ("1",) * len(self.problem.axes)
        return tuple(evaluate(word, {}) for word in words)

    def timed_shape(self, size: int) -> dict[str, int]:
        """Return the directive's sizes; `size`, rounded up by `fitted`, for the other axes."""
        return shape_of(self.directive, self.fitted((size,) * len(self.problem.axes)))

    def check(self) -> None:
        """Raise InputError, UnknownNameError or ShapeError for a missing or invalid word."""
        words = self.directive
        for name, example in _NEEDED.items():
            if not getattr(words, name):
                raise InputError(f"the directive has no {name}=…; {example}")
        axes = self.problem.axes
        for name, known in (("precision", CLASSES), ("output", ("nan", "finite"))):
            value = getattr(words, name)
            if value is not None and value not in known:
                raise UnknownNameError(f"unknown {name}={value}; choose {', '.join(known)}")
        if len(words.multiple) not in (0, len(axes)):
            raise InputError(
                f"multiple={','.join(words.multiple)} must have one number for each of "
                f"{', '.join(axes)}"
            )
        if any(step < 1 for step in self.multiples()):
            raise InputError(f"multiple={','.join(words.multiple)} must be positive")
        if words.cluster not in ((), ("1",)):
            raise InputError(
                f"cluster={','.join(words.cluster)}: the judge does not support clusters"
            )
        check_sizes(words, axes)
        sizes_of(words, dict.fromkeys(axes, 1))
        for (axis, timed), step in zip(self.timed_shape(1).items(), self.multiples(), strict=True):
            if timed < 1 or timed % step:
                raise ShapeError(
                    f"{axis}={words.sizes[axis]} cannot be timed: it must be a positive multiple "
                    f"of {step}"
                )
        _ = self.layout


_NEEDED = {
    "problem": f"it is one of {', '.join(problems.NAMES)}",
    "grid": "blocks in x,y,z, such as grid=ceil_div(n,32),ceil_div(m,32)",
    "block": "threads in x,y,z, such as block=32,32",
}
