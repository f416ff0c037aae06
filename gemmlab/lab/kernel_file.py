"""Run the kernel of a user's file once on the emulator, launched as its directive says."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gemmlab import problems, timing
from gemmlab.compile import Artifact, cute_file, load, source
from gemmlab.compile.architectures import DEFAULT, check_architecture
from gemmlab.compile.cute import compile_rung
from gemmlab.core import status
from gemmlab.core.expressions import evaluate
from gemmlab.core.symbols import demangled
from gemmlab.devices.emulated import emulate
from gemmlab.errors import InputError
from gemmlab.kernels.ladder import label
from gemmlab.kernels.rung import Geometry, Rung
from gemmlab.lab import judge, predicted
from gemmlab.lab.directives import Directive, read
from gemmlab.lab.directives.call import (
    Call,
    bind,
    call_of_rung,
    check_rung,
    check_sizes,
    check_words,
    launch_of,
    layout_of,
    prepare,
    shape_of,
    sizes_of,
)
from gemmlab.lab.directives.dimensions import with_indices
from gemmlab.lab.judge import Verdict
from gemmlab.lab.judge.buffers import FINITE, filled
from gemmlab.problems.problem import Case, Problem, Shape

if TYPE_CHECKING:
    from gemmlab.emulator import Run


@dataclass(frozen=True)
class FileRun:
    """A run and its result; no verdict without a problem, or if a finding ended the launch."""

    artifact: Artifact
    call: Call
    run: Run
    verdict: Verdict | None = None
    case: Case | None = None  # of the problem that the directive names
    problem: str = ""  # its name; "" without one
    chosen: tuple[str, ...] = ()  # axes whose size was chosen for checks


@dataclass(frozen=True)
class KernelFile:
    """A user's file and the directive that describes its launches."""

    path: Path
    text: str
    directive: Directive

    @classmethod
    def read(cls, path: Path, words: Directive) -> KernelFile:
        """Read a file; `words` replace those of its directive.

        Raises UnknownNameError if it does not exist, InputError if it cannot be read.
        """
        text = source.read(path)
        return cls(path, text, read(text).overridden(words))

    @property
    def problem(self) -> Problem | None:
        """The problem that the directive names. Raises UnknownNameError if there is none."""
        name = self.directive.problem
        return None if name is None else problems.find(name)

    @property
    def layout(self) -> str:
        """The name of the problem's layout; "" without a problem."""
        return layout_of(self.directive, self.problem) if self.problem else ""

    def shape(self, checked: bool = False) -> dict[str, int]:
        """Return the sizes: of the problem's axes, or all that the directive defines.

        With `checked`, axes without a size have one at which checks are quick and thorough.
        """
        if self.problem is None:
            check_sizes(self.directive)
            return sizes_of(self.directive)
        axes = self.problem.axes
        check_sizes(self.directive, axes)
        usual = dict.fromkeys(axes, self.problem.default_size)
        return shape_of(self.directive, self._small() if checked else usual)

    def _small(self) -> dict[str, int]:
        """Return a size with several blocks and several steps of each, as the kernel demands."""
        assert self.problem
        found = dict(zip(self.problem.axes, self.problem.judged.counted, strict=True))
        if same := self.directive.equal:
            found |= dict.fromkeys(same, max(found[axis] for axis in same if axis in found))
        steps = dict(zip(self.problem.axes, self.directive.multiple, strict=False))
        for axis, step in steps.items():
            least = evaluate(step, {})
            found[axis] = -(-found[axis] // least) * least
        return found

    def compiled(self, arch: str | None = None) -> Artifact:
        """Compile the kernel. Raises as `gemmlab.load`."""
        if self.path.suffix == cute_file.SUFFIX:
            check_architecture(arch or DEFAULT)
            return cute_file.load_file(self.path, self.directive, arch or DEFAULT)
        return load(self.path, entry=self.directive.entry, arch=arch)

    def geometry(self, shape: Shape, seed: int = 0) -> Geometry:
        """Return the launch at a shape. `seed` matters only if it depends on the inputs' layout."""
        problem, known = self.problem, dict(shape)
        if problem and self.directive.names() & {p.name for p in problem.parameters} - set(shape):
            known |= problem.case(shape, self.layout, problem.families[0], seed).scalars
        grid, block, smem, _ = launch_of(self.directive, sizes_of(self.directive, known))
        return Geometry(grid, block, smem)

    def least_bytes(self, shape: Shape) -> int:
        """Return the bytes of the inputs and outputs, each moved once."""
        if self.problem is not None:
            return self.problem.min_bytes(shape)
        return sum(arg.nbytes for arg in prepare(self.directive).args if hasattr(arg, "nbytes"))

    def check_launch(self, artifact: Artifact) -> None:
        """Raise InputError if the directive gives no grid or block."""
        if not self.directive.grid or not self.directive.block:
            raise InputError(_missing_launch(self.path, artifact))

    def launch(
        self,
        artifact: Artifact,
        shape: Shape,
        *,
        seed: int = 0,
        family: str | None = None,
        **how: Any,
    ) -> FileRun:
        """Emulate one launch at a shape. `how` is passed to `gemmlab.emulate`."""
        self.check_launch(artifact)
        problem = self.problem
        if problem is None:
            call = prepare(self.directive, seed)
            return FileRun(artifact, call, _emulated(artifact, call, [], self.text, how))
        case = problem.case(shape, self.layout, family or problem.families[0], seed)
        images = judge.arrays(problem, case)
        call = bind(self.directive, problem, case, {**images, **case.scalars})
        results = [images[p.name] for p in problem.parameters if p.kind == "output"]
        if self.directive.output == "finite":  # the kernel may read them
            for result in results:
                result.view(np.uint8)[:] = filled(FINITE, result.nbytes)
            results = []
        ran = _emulated(artifact, call, results, self.text, how)
        if any(finding.stops for finding in ran.findings):
            return FileRun(artifact, call, ran, None, case, problem.name)
        verdict = judge.judge_arrays(images, problem, case)
        return FileRun(artifact, call, ran, verdict, case, problem.name)


def run(
    path: Path,
    options: Directive,
    *,
    arch: str | None = None,
    seed: int = 0,
    family: str | None = None,
    **how: Any,
) -> FileRun:
    """Compile the file and emulate one launch. `how` is passed to `gemmlab.emulate`.

    Raises InputError or UnknownNameError that names the directive's invalid word, CompileError for
    the file, and LaunchError and EmulationError as `gemmlab.emulate` does.
    """
    file = KernelFile.read(path, options)
    artifact = file.compiled(arch)
    status.say(f"emulating {demangled(artifact.entry)}")
    checked = how.get("check") is not None
    done = file.launch(artifact, file.shape(checked), seed=seed, family=family, **how)
    return replace(done, chosen=_chosen(done, file.directive)) if checked else done


def _chosen(done: FileRun, directive: Directive) -> tuple[str, ...]:
    axes = done.case.shape if done.case else ()
    return tuple(axis for axis in axes if axis not in directive.sizes)


def run_rung(
    rung: Rung, options: Directive, *, arch: str | None = None, seed: int = 0, **how: Any
) -> FileRun:
    """Compile a rung and emulate one launch; `options` may have sizes. `how` as for `run`.

    Raises InputError and UnknownNameError for other words and for a rung of several launches, and
    as `run`.
    """
    check_rung(rung, options)
    problem = problems.find(rung.problem)
    check_sizes(options, problem.axes)
    usual = dict.fromkeys(problem.axes, problem.default_size)
    small = dict(zip(problem.axes, problem.judged.counted, strict=True))
    is_checked = how.get("check") is not None and not rung.requires(rung.config, small)
    shape = shape_of(options, small if is_checked else usual)
    if broken := rung.requires(rung.config, shape):
        raise InputError(broken)
    artifact = compile_rung(rung, arch or DEFAULT)
    status.say(f"emulating {label(rung)}")
    case = problem.case(shape, rung.layout, problem.families[0], seed)
    images = judge.arrays(problem, case)
    call = call_of_rung(rung, problem, case, {**images, **case.scalars})
    results = [images[p.name] for p in problem.parameters if p.kind == "output"]
    ran = _emulated(artifact, call, results, "", how)
    stopped = any(finding.stops for finding in ran.findings)
    verdict = None if stopped else judge.judge_arrays(images, problem, case)
    done = FileRun(artifact, call, ran, verdict, case, problem.name)
    return replace(done, chosen=_chosen(done, options)) if is_checked else done


def predict(
    kernel: KernelFile | Rung, options: Directive, model: timing.Model, seed: int = 0
) -> tuple[Artifact, Call, timing.Prediction]:
    """Predict how long a launch takes on a GPU, for which the kernel is compiled.

    options: may have a rung's sizes. Raises PredictionError for a kernel that the model does not
    follow, and as `run` and `run_rung`.
    """
    if isinstance(kernel, KernelFile):
        artifact, problem, shape = kernel.compiled(model.target), kernel.problem, kernel.shape()
        kernel.check_launch(artifact)
        call = prepare(kernel.directive, seed) if problem is None else None
    else:
        check_words(kernel, options)
        problem, call = problems.find(kernel.problem), None
        check_sizes(options, problem.axes)
        shape = shape_of(options, dict.fromkeys(problem.axes, problem.default_size))
        broken = kernel.lacks(model.target) or kernel.requires(kernel.config, shape)
        if broken:
            raise InputError(broken)
        artifact = compile_rung(kernel, model.target)
    status.say(f"predicting {demangled(artifact.entry)}")
    if call is None:
        assert problem is not None
        if not isinstance(kernel, KernelFile):
            family = predicted.family(problem, problem.families[0])
            case = problem.case(shape, kernel.layout, family, seed)
            return artifact, *predicted.predict(kernel, case, model)
        case = problem.case(shape, kernel.layout, problem.families[0], seed)
        call = bind(
            kernel.directive, problem, case, {**judge.arrays(problem, case), **case.scalars}
        )
    found = timing.predict(
        artifact, call.grid, call.block, call.args, call.smem, model, call.cluster
    )
    return artifact, call, found


def _missing_launch(path: Path, artifact: Artifact) -> str:
    """Return the error message for a file without a grid or block."""
    return (
        f"{path} does not give the grid and block of {artifact.signature}: add "
        "grid=… block=… args=… to the command, or to a comment at the top of the file, "
        "//! gemmlab block=256 grid=ceil_div(n,256) args=x:f32[n],n n=1000"
    )


def _emulated(
    artifact: Artifact, call: Call, results: list[np.ndarray], text: str, how: dict[str, Any]
) -> Run:
    """Emulate one launch.

    The kernel must write the arrays in `results`, and those with the fill `empty`, before it reads
    them. text: of the file.
    """
    ran = emulate(
        artifact,
        grid=call.grid,
        block=call.block,
        args=call.args,
        dynamic_smem=call.smem,
        cluster=call.cluster if math.prod(call.cluster) > 1 else None,  # None: as compiled
        uninitialized=[*results, *call.filled("empty")],
        outputs=call.filled(None),
        **how,
    )
    findings = tuple(
        replace(f, message=with_indices(call.named(f.message), text)) for f in ran.findings
    )
    return replace(ran, findings=findings)
