"""A second process that takes the steps of an emulated climb from the last one backward, while this
process takes them from the first one forward.

A step compiles a rung, emulates it and judges the result, on one processor. Each process claims a
step before it takes it; they meet somewhere in the middle. No result depends on the second process:
if it fails, this one takes the steps whose records are missing.
"""

from __future__ import annotations

import os
import pickle
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from gemmlab import problems
from gemmlab.core import scratch
from gemmlab.devices.emulated import EmulatedDevice
from gemmlab.kernels import ladder
from gemmlab.kernels.rung import Rung
from gemmlab.lab.ahead import listed, missing
from gemmlab.lab.records import Record
from gemmlab.lab.second import Second, asked, has_processor
from gemmlab.problems.problem import Case, Problem
from gemmlab.timing import Model

# Rungs left to compile. With fewer, all are compiled and emulated before a second Python has
# imported what it needs.
WORTH_STARTING = 4

Take = Callable[[Problem, Case, Rung, EmulatedDevice, Model | None], Record]


class FromLast:
    """Shares the steps of one climb with a second process.

    At the first rung that is not compiled, `record` starts the process if there is a second
    processor, and at least WORTH_STARTING of the rungs behind it must be compiled, too. A context
    manager: leaving it kills the process.
    """

    def __init__(
        self,
        problem: Problem,
        case: Case,
        rungs: Sequence[Rung],
        device: EmulatedDevice,
        model: Model | None,
        module: str,
    ) -> None:
        """module: whose `main` takes the steps, with `take_steps`."""
        self._problem, self._case, self._rungs = problem, case, rungs
        self._device, self._model, self._module = device, model, module
        self._second: Second | None = None
        self._folder = Path()  # of the claims
        self._records: dict[int, Record] = {}
        self._resources = ExitStack()

    def __enter__(self) -> FromLast:
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def record(self, index: int, wait: Callable[[], None]) -> Record | None:
        """Return the record of the rung at `index`; None: this process has to take the step.

        wait: called before this waits for the second process.
        """
        if self._second is None:
            self._start(index)
        if self._second is None or _claim(self._folder, index):
            return None
        if index not in self._records:
            wait()
        while index not in self._records and not self._second.has_ended:
            for line in self._second.lines():
                number, record = pickle.loads(b64decode(line))
                self._records[number] = record
        return self._records.get(index)

    def _start(self, first: int) -> None:
        """Start the process if it is worth it; it takes no step up to `first`."""
        rungs, shape, device = self._rungs, self._case.shape, self._device
        if next(missing(rungs[first : first + 1], shape, device.arch), None) is None:
            return
        behind = rungs[first + 1 :]
        if len([*missing(behind, shape, device.arch)]) < WORTH_STARTING or not has_processor():
            return
        known = problems.find(self._problem.name) is self._problem
        if not known or not all(map(listed, behind)):
            return
        case = self._case
        request = (
            str(self._resources.enter_context(scratch.folder())),
            (case.shape, case.layout, case.family, case.seed),
            (device.arch, device.tier, device.check),
            self._model,
            {first + 1 + i: ladder.reference(rung) for i, rung in enumerate(behind)},
        )
        self._folder = Path(request[0])
        with suppress(OSError):
            self._second = Second(self._module, request)
            self._resources.callback(self._second.end)


def take_steps(take: Take) -> None:
    """In the second process: take steps from the last to the first that is claimed already."""
    with asked() as ((folder, drawn, device, model, references), answers):
        arch, tier, check = device
        emulated = EmulatedDevice(arch, tier, check, machine_code=True)
        case: Any = None
        for index in reversed(references):
            if not _claim(Path(folder), index):
                return
            rung = ladder.referred(references[index])
            problem = problems.find(rung.problem)
            case = case or problem.case(*drawn)
            record = take(problem, case, rung, emulated, model)
            print(b64encode(pickle.dumps((index, record))).decode(), file=answers)


def _claim(folder: Path, index: int) -> bool:
    """Whether no process has claimed the step before; now this one has."""
    try:
        os.close(os.open(folder / str(index), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True
