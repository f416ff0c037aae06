"""An extension of IPython: kernels in the cells of a notebook, and pictures of results.

    %load_ext gemmlab.notebook

    %%cu n=1000 --check all
    //! gemmlab args=x:f32[n],y:f32[n],n block=256 grid=ceil_div(n,256)
    extern "C" __global__ void copy(const float* x, float* y, int n) { … }

`%%cu` and `%%ptx` compile the cell to the variable `kernel` (another with `--name`), emulate it as
its directive says, with the result in `run`, and show the page of `gemmlab report`. `--explain`
shows an explanation instead, for a GPU with `--gpu A100`. Runs, records, explanations and verdicts
are shown as tables and pictures.
"""

from __future__ import annotations

import atexit
import html
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmlab.core import scratch, status
from gemmlab.core.packages import VL_CONVERT
from gemmlab.errors import GemmlabError, InputError, MissingDependencyError

if TYPE_CHECKING:
    from gemmlab.lab.explain import Explanation
    from gemmlab.lab.submission.steps import Judgement
    from gemmlab.report.html.page import Page

_HEIGHT = 640  # pixels of a page in a notebook
_FLAGS, _VALUES = ("explain",), ("check", "gpu", "name")  # options of the cell magics


def load_ipython_extension(shell: Any) -> None:
    """Register the magics and the formatters; `%load_ext gemmlab.notebook` calls it."""
    session = ExitStack()
    folder = session.enter_context(scratch.folder())
    atexit.register(session.close)
    for language in ("cu", "ptx"):
        magic = partial(_run_cell, shell, folder, language)
        shell.register_magic_function(magic, "cell", language)
    formatter = shell.display_formatter.formatters["text/html"]
    formatter.for_type_by_name("gemmlab.lab.explain.explanation", "Explanation", _explanation)
    formatter.for_type_by_name("gemmlab.lab.submission.steps", "Judgement", _judgement)


class Shown:
    """A page of a report, shown in the notebook. `run` is the launch that it is of."""

    def __init__(self, page: Page, summary: str, run: Any = None) -> None:
        self.page, self.run, self._summary = page, run, summary

    def __repr__(self) -> str:
        return self._summary

    def _repr_html_(self) -> str:
        return _frame(self.page)


def _run_cell(shell: Any, folder: Path, language: str, line: str, cell: str) -> Any:
    """Compile and emulate one cell."""
    from IPython.core.error import UsageError

    path = folder / f"cell-{shell.execution_count}.{language}"
    path.write_text(cell, encoding="utf-8")
    try:
        with _progress():
            words, options = _options(line)
            return _launched(shell, path, words, options)
    except GemmlabError as error:
        raise UsageError(str(error)) from None


def _launched(shell: Any, path: Path, words: list[str], options: dict[str, str]) -> Any:
    from gemmlab.compile.directive import parse
    from gemmlab.hardware import specs
    from gemmlab.lab import explained_file
    from gemmlab.lab.explain import default_gpu, explained
    from gemmlab.lab.explain.pipeline import PipelineTrace
    from gemmlab.lab.kernel_file import KernelFile
    from gemmlab.report.html import kernel

    given = parse(words)
    file = KernelFile.read(path, given)
    status.say("compiling")
    artifact = file.compiled()
    shell.user_ns[options.get("name", "kernel")] = artifact
    if not file.directive.grid or not file.directive.block:
        return artifact.signature
    if "explain" in options:
        status.say("explaining")
        gpu = specs.product(options["gpu"]) if "gpu" in options else default_gpu()
        return explained(explained_file.subject(path, given), gpu)
    status.say("emulating")
    trace, check = PipelineTrace(), options.get("check")
    checks = None if check is None else check.split(",")
    done = file.launch(artifact, file.shape(), trace=trace, check=checks)
    shell.user_ns["run"] = done.run
    told = [artifact.signature, *(str(finding) for finding in done.run.findings)]
    if done.verdict is not None:
        told.append(f"{done.verdict.status}: {done.verdict.message}")
    return Shown(kernel.file(path.name, done, trace), "\n".join(told), done.run)


def _options(line: str) -> tuple[list[str], dict[str, str]]:
    """Return the words NAME=VALUE and the options of a cell magic's line."""
    words, options = list[str](), dict[str, str]()
    rest = shlex.split(line)
    while rest:
        word = rest.pop(0)
        name = word.removeprefix("--")
        if name == word:
            words.append(word)
        elif name in _FLAGS:
            options[name] = ""
        elif name in _VALUES and rest:
            options[name] = rest.pop(0)
        else:
            known = ", ".join(f"--{known}" for known in (*_FLAGS, *_VALUES))
            raise InputError(f"{word} is no option, or lacks its value; options: {known}")
    return words, options


def _explanation(found: Explanation) -> str:
    """An explanation with the pictures of the accesses."""
    from gemmlab.report.html import drawings, kernel
    from gemmlab.report.html.page import Section

    page = kernel.rung(found, None)
    if found.counted:
        drawn = [drawings.access(pattern, pattern.source) for pattern in found.counted.patterns]
        page = replace(page, sections=[*page.sections, Section("Memory accesses", "", drawn)])
    return _frame(page)


def _judgement(found: Judgement) -> str:
    from gemmlab.report.html import judgement

    return _frame(judgement.page(found.as_json()))


def _frame(page: Page) -> str:
    """Return a page as HTML for a notebook; without charts if their library is missing."""
    try:
        VL_CONVERT.load()
    except MissingDependencyError:
        page = replace(
            page,
            sections=[
                replace(section, parts=[part for part in section.parts if part.kind != "chart"])
                for section in page.sections
            ],
        )
    text = html.escape(page.markup())
    return f'<iframe srcdoc="{text}" style="width:100%;height:{_HEIGHT}px;border:0"></iframe>'


@contextmanager
def _progress() -> Iterator[None]:
    """Show what gemmlab is doing beside a moving bar, until the context ends."""
    from IPython import display

    def drawn(text: str) -> Any:
        return display.HTML(f"<progress></progress> {html.escape(text)}" if text else "")

    shown = display.display(drawn("starting"), display_id=True)
    with status.listening(lambda text: shown.update(drawn(text)) if shown else None):
        try:
            yield
        finally:
            if shown:
                shown.update(drawn(""))
