"""The executed machine code as text and as JSON, for `gemmlab emulate`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table

from gemmlab import sass
from gemmlab.errors import CompileError, MissingDependencyError
from gemmlab.report import tables

if TYPE_CHECKING:
    from gemmlab.lab.kernel_file import FileRun

_SHOWN = 6  # PTX line numbers shown per row


def analysed(done: FileRun) -> tuple[sass.MachineCode | None, str]:
    """Return the machine code, or None, and a sentence on the source of the instruction counts."""
    if any(finding.stops for finding in done.run.findings):
        return None, ""
    try:
        machine = sass.analyse(done.artifact, done.run)
    except (CompileError, MissingDependencyError) as error:
        return None, f"Only PTX instructions are counted: {error}."
    origin = (
        "smsp__… counters count machine instructions; their basic blocks' execution counts are "
        "derived from the PTX's."
    )
    return machine, origin


def as_json(machine: sass.MachineCode) -> dict[str, Any]:
    """Return all basic blocks and all differences from the PTX as JSON data."""
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
    """Return a table of the memory accesses that ptxas changed, or a sentence if there are none."""
    if not machine.differences:
        return "The machine code has the same memory accesses as the PTX."
    headings = ["change by ptxas", "access", "PTX", "machine code", "PTX lines"]
    rows = []
    for row in machine.differences:
        lines = ", ".join(map(str, row.lines[:_SHOWN])) + (", …" if row.lines[_SHOWN:] else "")
        rows.append([row.what, row.access, f"{row.ptx:,}", f"{row.machine:,}", lines])
    return tables.plain_table(headings, rows)
