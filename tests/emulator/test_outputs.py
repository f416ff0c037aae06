"""Partly unwritten outputs are reported if they are mistakes, and only then."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import gemmlab
from gemmlab.cli.app import main
from gemmlab.compile.directive import parse
from gemmlab.emulator import Finding
from gemmlab.errors import InputError
from gemmlab.lab import kernel_file

SOURCE = Path(__file__).parent / "outputs.cu"


class Case(NamedTuple):
    name: str
    words: list[str]
    message: str | None  # start of the expected message
    line: int


def cases() -> list[Case]:
    found, words = list[Case](), list[str]()
    for number, text in enumerate(SOURCE.read_text().splitlines(), 1):
        if text.startswith("//! "):
            words = text.split()[1:]
        if head := re.match(r"KERNEL (\w+)\(", text):
            found.append(Case(head[1], words, None, 0))
        if mark := re.search(r"// expect: (.*)", text):
            found[-1] = found[-1]._replace(message=mark[1], line=number)
    return found


CASES = {case.name: case for case in cases()}


def findings(case: Case) -> tuple[Finding, ...]:
    words = parse([*case.words, f"entry={case.name}"])
    return kernel_file.run(SOURCE, words, check=["uninitialized", "outputs"]).run.findings


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_findings_of_outputs(case: Case) -> None:
    found = findings(case)
    if case.message is None:
        assert found == ()
        return
    (only,) = found
    assert only.kind == "unwritten output" and only.message.startswith(case.message)
    assert only.site.source is not None and only.site.source.endswith(f"outputs.cu:{case.line}")


@pytest.mark.parametrize("fill", ["", "=zeros", "=empty"])
def test_the_command_says_how_elements_may_be_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, fill: str
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    words = ["entry=guard", f"args=x:f32[n],o:f32[n]{fill},n", "n=64", "block=32", "grid=2"]
    with pytest.raises(SystemExit) as ended:
        main(["emulate", str(SOURCE), *words, "--check", "all"])
    out = capsys.readouterr().out
    is_found = fill != "=zeros"
    assert (ended.value.code or 0) == (4 if is_found else 0)
    assert ("4 of 64 elements of o" in out) == is_found
    assert ("give the array initial values" in out) == is_found


@pytest.mark.parametrize("how", ["outputs", "uninitialized"])
def test_arrays_from_python_are_outputs_where_they_are_declared(how: str) -> None:
    artifact = gemmlab.load(SOURCE, entry="guard")
    x, y = np.ones((2, 64), np.float32)
    args = [x, y, np.int32(64)]

    def run(**declared: Any) -> tuple[Finding, ...]:
        return gemmlab.emulate(
            artifact, grid=2, block=32, args=args, check="all", **declared
        ).findings

    assert run() == ()
    (found,) = run(**{how: [y]})
    assert found.message.startswith("4 of 64 elements of argument 1 are never written (60, ")
    with pytest.raises(InputError, match="not an argument"):
        run(**{how: [np.ones(64, np.float32)]})


def test_an_array_without_elements_is_no_output() -> None:
    words = ["entry=guard", "args=x:f32[n],y:f32[n],n", "n=0", "block=32", "grid=1"]
    assert kernel_file.run(SOURCE, parse(words), check="outputs").run.findings == ()
