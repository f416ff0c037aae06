"""A kernel file with its directive: the input of every step of the judge."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from gemmlab import problems
from gemmlab.core.expressions import evaluate
from gemmlab.errors import InputError, ShapeError, UnknownNameError
from gemmlab.kernels.ladder import Reference
from gemmlab.lab.directives import Directive
from gemmlab.lab.directives.call import check_sizes, layout_of, shape_of, sizes_of
from gemmlab.lab.judge.buffers import FINITE
from gemmlab.lab.judge.precision import CLASSES
from gemmlab.problems import files
from gemmlab.problems.problem import Problem


@dataclass(frozen=True)
class Submission:
    """A kernel file to judge; picklable. `ptx` and `entry` are empty until it is compiled."""

    path: Path
    directive: Directive
    arch: str
    seed: int
    shapes: tuple[tuple[int, ...], ...] = ()  # additional test shapes
    rung: Reference | None = None  # `path` has the PTX of this rung, which determines the launch
    ptx: str = ""
    entry: str = ""

    @property
    def problem(self) -> Problem:
        return problems.find(self.directive.problem or "")

    @property
    def problem_file(self) -> Path | None:
        """The file of a user's own problem."""
        name = self.directive.problem or ""
        return Path(name) if name.endswith(files.SUFFIX) else None

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
        """Return a shape that the kernel accepts, for sizes in the order of the axes.

        Axes that must be equal get their geometric mean, so that the work stays about the same.
        All sizes are rounded up to the kernel's multiples.
        """
        shape = dict(zip(self.problem.axes, sizes, strict=True))
        steps = dict(zip(self.problem.axes, self.multiples(), strict=True))
        if same := self.directive.equal:
            mean = round(math.prod(shape[axis] for axis in same) ** (1 / len(same)))
            step = math.lcm(*(steps[axis] for axis in same))
            shape |= dict.fromkeys(same, mean)
            steps |= dict.fromkeys(same, step)
        return {axis: -(-size // steps[axis]) * steps[axis] for axis, size in shape.items()}

    @property
    def rule(self) -> str:
        """The rule that a shape must satisfy, for messages; "" if it accepts all."""
        words = self.directive
        rules = [
            f"only accepts multiples of {','.join(words.multiple)}" if words.multiple else "",
            f"only accepts equal {', '.join(words.equal)}" if words.equal else "",
        ]
        return " and ".join(filter(None, rules))

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
        if unknown := [axis for axis in words.equal if axis not in axes]:
            raise UnknownNameError(f"equal={unknown[0]} is no axis; axes: {', '.join(axes)}")
        timed_shape = self.timed_shape(1)
        if len({timed_shape[axis] for axis in words.equal}) > 1:
            sizes = ", ".join(f"{axis}={timed_shape[axis]}" for axis in words.equal)
            raise ShapeError(f"{sizes} cannot be timed: equal={','.join(words.equal)}")
        for (axis, timed), step in zip(timed_shape.items(), self.multiples(), strict=True):
            if timed < 1 or timed % step:
                raise ShapeError(
                    f"{axis}={words.sizes[axis]} cannot be timed: it must be a positive multiple "
                    f"of {step}"
                )
        _ = self.layout


_NEEDED = {
    "problem": f"it is one of {', '.join(problems.NAMES)}; or judge with --problem FILE.py",
    "grid": "blocks in x,y,z, such as grid=ceil_div(n,32),ceil_div(m,32)",
    "block": "threads in x,y,z, such as block=32,32",
}
