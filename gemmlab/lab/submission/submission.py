"""A file and how it is called: what every step of the judge starts from."""

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
FINITE = 0x4B8DEAD1  # a float32 of 1.9e7, for the output of a kernel that multiplies it by 0


@dataclass(frozen=True)
class Submission:
    """Can be sent from process to process. `ptx` is empty until the file is compiled."""

    path: Path
    directive: Directive
    arch: str
    seed: int
    shapes: tuple[tuple[int, ...], ...] = ()  # to be tried besides the judge's own
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
        """The class that the kernel wants to be judged in."""
        return self.directive.precision or "ieee"

    @property
    def argument_words(self) -> tuple[str, ...]:
        """What the kernel takes: without args= all of the problem's arguments in their order."""
        own = tuple(parameter.name for parameter in self.problem.parameters)
        return self.directive.args or own

    @property
    def output_word(self) -> int | None:
        """What fills the output before a launch, where it is not the judge's usual NaNs."""
        return FINITE if self.directive.output == "finite" else None

    def fitted(self, sizes: tuple[int, ...]) -> dict[str, int]:
        """A shape of about these sizes that the kernel takes: multiples of what it says."""
        steps = self.multiples()
        return {
            axis: max(-(-size // step) * step, step if size else 0)
            for axis, size, step in zip(self.problem.axes, sizes, steps, strict=True)
        }

    def multiples(self) -> tuple[int, ...]:
        words = self.directive.multiple or ("1",) * len(self.problem.axes)
        return tuple(evaluate(word, {}) for word in words)

    def timed_shape(self, size: int) -> dict[str, int]:
        """The sizes that the directive gives, and about `size` for the other axes."""
        return shape_of(self.directive, self.fitted((size,) * len(self.problem.axes)))

    def check(self) -> None:
        """Raise InputError or UnknownNameError for a word that is missing or means nothing."""
        words = self.directive
        for name, example in _NEEDED.items():
            if not getattr(words, name):
                raise InputError(f"the directive does not say {name}=…; {example}")
        axes = self.problem.axes
        for name, known in (("precision", CLASSES), ("output", ("nan", "finite"))):
            value = getattr(words, name)
            if value is not None and value not in known:
                raise UnknownNameError(f"no {name}={value}; there is: {', '.join(known)}")
        if len(words.multiple) not in (0, len(axes)):
            raise InputError(f"multiple={','.join(words.multiple)}: one number for each of {axes}")
        if any(step < 1 for step in self.multiples()):
            raise InputError(f"multiple={','.join(words.multiple)}: must be positive")
        if words.cluster not in ((), ("1",)):
            raise InputError(f"cluster={','.join(words.cluster)}: clusters are not judged yet")
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
