"""How `gemmlab emulate` tells what was executed of the machine code."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table

from gemmlab import sass
from gemmlab.errors import CompileError, MissingDependencyError
from gemmlab.report import tables

if TYPE_CHECKING:
    from gemmlab.lab.kernel_file import FileRun

_SHOWN = 6  # lines of PTX that a row names


def analysed(done: FileRun) -> tuple[sass.MachineCode | None, str]:
    """The machine code, and where the counts of instructions come from."""
    if any(finding.stops for finding in done.run.findings):
        return None, ""
    try:
        machine = sass.analyse(done.artifact, done.run)
    except (CompileError, MissingDependencyError) as error:
        return None, f"Instructions are counted of PTX alone: {error}."
    origin = "smsp__… instructions are of the machine code, its blocks counted by way of the PTX's."
    return machine, origin


def as_json(machine: sass.MachineCode) -> dict[str, Any]:
    """Every basic block, and every difference from the PTX."""
    code = machine.code
    blocks = [
        {
            "address": code.instructions[block.first].address,
            "instructions": len(code.inside(block)),
            **asdict(executed),
        }
        for block, executed in zip(code.blocks, machine.counted.blocks, strict=True)
    ]
    return {"blocks": blocks, "differences": [asdict(row) for row in machine.differences]}


def differences(machine: sass.MachineCode) -> Table | str:
    """A row for each way in which memory is accessed that is not the PTX's."""
    if not machine.differences:
        return "Its memory accesses are those of the PTX, one for one."
    headings = ["what ptxas did", "access", "PTX", "machine code", "lines of PTX"]
    rows = []
    for row in machine.differences:
        lines = ", ".join(map(str, row.lines[:_SHOWN])) + (", …" if row.lines[_SHOWN:] else "")
        rows.append([row.what, row.access, f"{row.ptx:,}", f"{row.machine:,}", lines])
    return tables.plain_table(headings, rows)
