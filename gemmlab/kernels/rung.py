"""The record that every kernel file ends with: all that is known of a kernel but its result."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

from gemmlab.problems.problem import Parameter

Dim3 = tuple[int, int, int]

ONLY_LAYOUT = "row"  # of a kernel whose configuration has none to choose


class Geometry(NamedTuple):
    """How a kernel is launched."""

    grid: Dim3
    block: Dim3
    dynamic_smem_bytes: int = 0


@dataclass(frozen=True)
class Rung:
    """One step of a ladder.

    `config` is a frozen dataclass, with a field `layout` where the problem has more than one; the
    kernel takes it as its last, compile-time parameter. `geometry(config, shape)` depends on
    nothing else; a grid with a 0 in it means that there is nothing to launch. `requires(config,
    shape)` returns the rule a shape breaks, or None. `course_name` is the rung's own name in the
    course layout. `reproducible` says that the order of its additions is fixed: the same bits
    every time. `workspace(config, shape)` is for a kernel that takes, as its last pointer, device
    memory to pass numbers from block to block: that many bytes, zero before the first launch.
    `flow` is what the host does around the kernel, where that is the rung's subject
    (kernels/flow.py): it launches the kernel itself, on the whole of a shape or on parts of it.
    `launches(config, shape, args)` is for a rung of several kernels: all launches in order, its own
    kernel's among them, for the problem's arguments and the workspace by name. Its kernel takes
    `parameters`, not the problem's. `arch` is the one architecture whose instructions it uses; None
    for a kernel that any architecture runs.
    """

    name: str
    problem: str
    change: str  # what is new since the rung before, in at most eight words
    kernel: Callable[..., None]
    config: Any
    geometry: Callable[[Any, Mapping[str, int]], Geometry]
    requires: Callable[[Any, Mapping[str, int]], str | None] = lambda config, shape: None
    course_name: str | None = None
    reproducible: bool = True
    workspace: Callable[[Any, Mapping[str, int]], int] | None = None
    flow: Callable[..., None] | None = None
    launches: Callable[[Any, Mapping[str, int], Mapping[str, Any]], tuple[Any, ...]] | None = None
    parameters: tuple[Parameter, ...] | None = None
    arch: str | None = None

    def lacks(self, arch: str) -> str | None:
        """What the rung needs and an architecture does not have: "needs sm_90a"; None: nothing."""
        return None if self.arch in (None, arch) else f"needs {self.arch}"

    @property
    def layout(self) -> str:
        """The layout that its configuration has."""
        return getattr(self.config, "layout", ONLY_LAYOUT)

    @property
    def program(self) -> Callable[..., None] | None:
        """Its flow, with its configuration: `program(host, *arrays)`."""
        return self.flow and partial(self.flow, self.config)

    @property
    def modules(self) -> tuple[ModuleType, ...]:
        """The files that it is written in, its own one first."""
        parts = (self.flow, self.launches, self.kernel)
        written = (inspect.getmodule(part) for part in parts if part)
        return tuple(dict.fromkeys(module for module in written if module))

    @property
    def lesson(self) -> str:
        """The docstring of the rung's own file."""
        return inspect.getdoc(self.modules[0]) or ""
