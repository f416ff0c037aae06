"""The executed machine code as text and as JSON, for `gemmlab emulate`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table

from gemmlab import sass
from gemmlab.errors import CompileError, MissingDependencyError
from gemmlab.report import tables
from gemmlab.report.explanation import listed
from gemmlab.timing.facts import disassemble

if TYPE_CHECKING:
    from gemmlab.compile.artifact import Artifact
    from gemmlab.lab.explain.stalls import Stalls
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
            **executed._asdict(),
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


def with_stalls(artifact: Artifact, stalls: Stalls) -> str:
    """Return the machine code, with the share of the time of warps at each instruction, in percent,
    and the main reason why they wait there."""
    assert artifact.cubin
    lines = [f"stalls: {stalls.about}", listed(stalls.reasons), ""]
    for one in disassemble(artifact.cubin, artifact.entry).instructions:
        share = stalls.by_address.get(one.address, 0.0)
        shown = f"{100 * share:.2f}" if share else ""
        guard = f"@{one.guard} " if one.guard else ""
        why = stalls.main.get(one.address, "")
        code = f"{guard}{one.opcode} {one.operands}"
        lines.append(f"{shown:>6}  {why:18}  {one.address:04x}  {code}".rstrip())
    return "\n".join(lines)
