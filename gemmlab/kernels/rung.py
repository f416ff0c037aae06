"""The record at the end of every kernel file: name, configuration and geometry of a kernel."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

from gemmlab.problems.problem import Parameter

Dim3 = tuple[int, int, int]

ONLY_LAYOUT = "row"  # of kernels whose configuration has no layout


class Geometry(NamedTuple):
    """Launch geometry: blocks, threads per block, bytes of dynamic shared memory."""

    grid: Dim3
    block: Dim3
    dynamic_smem_bytes: int = 0


def _number(arch: str) -> int:
    """The number in the name of an architecture, 90 in "sm_90a"."""
    return int("".join(filter(str.isdigit, arch)))


@dataclass(frozen=True)
class Rung:
    """One step of a ladder.

    change: what is new since the previous rung, in at most eight words.
    config: a frozen dataclass, the kernel's last, compile-time parameter. It has a field `layout`
        if the problem has several.
    geometry(config, shape): of the launch; a grid that contains a 0 launches nothing.
    requires(config, shape): the rule that a shape breaks, or None.
    course_name: the rung's name in the course layout, if it has its own there.
    reproducible: whether additions have a fixed order, and so results the same bits in every run.
    workspace(config, shape): for a kernel whose last pointer is device memory through which blocks
        exchange data: bytes, zeroed before the first launch.
    flow: the host side, if it is the rung's subject (`kernels/flow.py`). It launches the kernel
        itself, on the whole shape or on parts of it.
    launches(config, shape, args, arch): for a rung of several kernels, all launches in order, given
        the problem's arguments and the workspace by name. `kernel` is one of them and takes
        `parameters` instead of the problem's.
    rewrite(cubin, entry): a pass over the machine code, which returns the cubin to launch. It must
        prove that it changes no result (`cubin/proof.py`).
    rewritten: the name of the rung whose kernel `rewrite` changes. It is compiled once for both.
    teaches: the function whose file has the lesson; None: the first of `flow`, `launches`,
        `rewrite` and `kernel`.
    arch: the architecture that the kernel needs: "sm_90a", with a letter, means that one alone;
        "sm_90" means that one or a later one; None means any.
    choices: values to try by field of the configuration, for `gemmlab tune`. Those that break a
        rule of the configuration are left out.
    settings: the fields in which the configuration differs from the ladder's (`settings.py`).
    pending: a rung whose hardware readings are still to be added: it is new, or its kernel has
        changed since it was read.
    """

    name: str
    problem: str
    change: str
    kernel: Callable[..., None]
    config: Any
    geometry: Callable[[Any, Mapping[str, int]], Geometry]
    requires: Callable[[Any, Mapping[str, int]], str | None] = lambda config, shape: None
    course_name: str | None = None
    reproducible: bool = True
    workspace: Callable[[Any, Mapping[str, int]], int] | None = None
    flow: Callable[..., None] | None = None
    launches: Callable[[Any, Mapping[str, int], Mapping[str, Any], str], tuple[Any, ...]] | None = (
        None
    )
    parameters: tuple[Parameter, ...] | None = None
    rewrite: Callable[[bytes, str], bytes] | None = None
    rewritten: str | None = None
    teaches: Callable[..., None] | None = None
    arch: str | None = None
    choices: Mapping[str, tuple[Any, ...]] = field(default_factory=dict, compare=False)
    settings: Mapping[str, Any] = field(default_factory=dict, compare=False)
    pending: bool = False

    def lacks(self, arch: str) -> str | None:
        """What an architecture lacks to run the rung, such as "needs sm_90a"; None if nothing."""
        if self.arch in (None, arch):
            return None
        if self.arch[-1].isdigit():
            later = _number(arch) >= _number(self.arch)
            return None if later else f"needs {self.arch} or later"
        return f"needs {self.arch}"

    @property
    def layout(self) -> str:
        """The layout of its configuration."""
        return getattr(self.config, "layout", ONLY_LAYOUT)

    @property
    def program(self) -> Callable[..., None] | None:
        """Its flow, bound to its configuration: `program(host, *arrays)`."""
        return self.flow and partial(self.flow, self.config)

    @property
    def modules(self) -> tuple[ModuleType, ...]:
        """The modules of its functions, the file with its lesson first."""
        functions = (self.teaches, self.flow, self.launches, self.rewrite, self.kernel)
        modules = (inspect.getmodule(function) for function in functions if function)
        return tuple(dict.fromkeys(module for module in modules if module))

    @property
    def lesson(self) -> str:
        """The docstring of the rung's file."""
        return inspect.getdoc(self.modules[0]) or ""
