"""`gemmlab emulate`: run a kernel file on the emulator, as its directive describes."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmlab.cli.options import AsJson

if TYPE_CHECKING:
    import numpy as np

    from gemmlab.lab.kernel_file import FileRun

_SHOWN = 4  # elements shown per array
_FILL_HINT = "If elements may stay unwritten, give the array initial values: o:f32[n]=zeros."
TIER_NAMES = {"numpy": "NumPy", "native": "native"}


def emulate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .cu or .ptx file.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE",
            help="Values that override the file's directive: entry=f grid=4 block=256 "
            "args=x:f32[n],n n=1000 smem=0 problem=gemm layout=row.",
        ),
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Show the cost of each source line.")
    ] = False,
    by_ptx: Annotated[
        bool, typer.Option("--ptx", help="With --lines: of each PTX line instead.")
    ] = False,
    by_sass: Annotated[
        bool,
        typer.Option(
            "--sass", help="Show where memory accesses of the machine code differ from the PTX."
        ),
    ] = False,
    order: Annotated[
        str,
        typer.Option(help="Order of warps and blocks: in-order, reversed, or a seed to shuffle."),
    ] = "in-order",
    tier: Annotated[
        str,
        typer.Option(
            help="Emulator tier: auto, numpy, or native (compiled by LLVM); see "
            "`gemmlab docs emulator`."
        ),
    ] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random arrays.")] = 0,
    arch: Annotated[str | None, typer.Option(help="GPU architecture to compile for.")] = None,
    check: Annotated[
        str | None,
        typer.Option(help="Checks to run: all, or names A,B; see `gemmlab docs checks`."),
    ] = None,
    max_instructions: Annotated[
        int | None,
        typer.Option(help="Stop the kernel when a warp has executed this many instructions."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a kernel file on the emulator and print its counters; needs no GPU.

    A directive at the top of the file describes the launch: "//! gemmlab block=256 grid=4 args=…".
    NAME=VALUE arguments override it. The exit code is 1 if a problem is named and the result is
    wrong, 4 if the kernel makes an error or a check finds one.
    """
    from gemmlab.errors import EmulationError, InputError
    from gemmlab.lab import kernel_file
    from gemmlab.lab.directives.directive import parse

    if by_ptx and not lines:
        raise InputError("--ptx requires --lines")
    how: dict[str, Any] = {"order": int(order) if order.lstrip("-").isdigit() else order}
    how["check"] = None if check is None else check.split(",")
    how["max_instructions"] = max_instructions
    how |= {"tier": tier}
    # Keep the kernel's own output out of the JSON.
    printed = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    with printed:
        done = kernel_file.run(file, parse(words or []), arch=arch, seed=seed, **how)
    if as_json:
        json.dump(_as_json(done, lines, by_sass, check is not None), sys.stdout, indent=2)
        print()
    else:
        _print(done, lines, by_ptx, by_sass, check is not None)
    if done.run.findings:
        raise typer.Exit(EmulationError.exit_code)
    if done.verdict is not None and not done.verdict.passed:
        raise typer.Exit(1)


def _as_json(done: FileRun, lines: bool, by_sass: bool, checked: bool) -> dict[str, Any]:
    from gemmlab.report import machine_code

    machine, _ = machine_code.analysed(done)
    counted = machine.counters if machine else {}
    result: dict[str, Any] = {
        "entry": done.artifact.entry,
        "grid": done.call.grid,
        "block": done.call.block,
        "dynamic_smem_bytes": done.call.smem,
        "tier": done.run.tier,
        # The counters of a stopped launch are all zero.
        "counters": None if _is_stopped(done) else done.run.counters | counted,
    }
    if done.verdict is not None:
        result |= {"verdict": done.verdict.status, "message": done.verdict.message}
    if checked:
        result["findings"] = [dataclasses.asdict(finding) for finding in done.run.findings]
    if lines:
        result["ptx_lines"] = done.run.by_ptx_line()
        result["source_lines"] = done.run.by_source_line()
    if by_sass:
        result["machine_code"] = machine_code.as_json(machine) if machine else None
    return result


def _print(done: FileRun, lines: bool, by_ptx: bool, by_sass: bool, checked: bool) -> None:
    import numpy as np

    from gemmlab.report import findings, listing, machine_code, tables

    out = tables.console()
    x, y, z = done.call.grid
    a, b, c = done.call.block
    head = f"{done.artifact.entry}: grid {x}×{y}×{z}, block {a}×{b}×{c}, {done.artifact.arch}"
    out.print(f"{head}, {TIER_NAMES[done.run.tier]} tier")
    if done.verdict is not None:
        out.print(f"{done.verdict.status}: {done.verdict.message}")
    if checked:
        out.print(findings.summary(done.run.findings))
        kinds = {finding.kind for finding in done.run.findings}
        if "unwritten output" in kinds and done.verdict is None:
            out.print(_FILL_HINT)
    if _is_stopped(done):
        return
    out.print()
    if lines:
        costs = (
            listing.ptx_lines(done.artifact.ptx, done.run.by_ptx_line())
            if by_ptx
            else listing.source_lines(done.run.by_source_line())
        )
        out.print(listing.table(costs, out.width))
        return
    machine, origin = machine_code.analysed(done)
    counted = machine.counters if machine else {}
    counters = counted if by_sass and machine else done.run.counters | counted
    out.print(tables.facts({name: f"{value:,}" for name, value in counters.items() if value}))
    out.print(origin)
    if by_sass and machine:
        out.print()
        out.print(machine_code.differences(machine))
        return
    arrays = {
        name: _preview(arg)
        for name, arg in zip(done.call.names, done.call.args, strict=True)
        if isinstance(arg, np.ndarray)
    }
    if arrays:
        out.print()
        out.print(tables.facts(arrays))


def _is_stopped(done: FileRun) -> bool:
    return any(finding.stops for finding in done.run.findings)


def _preview(array: np.ndarray) -> str:
    """Format an array's dtype, size and first elements."""
    first = ", ".join(f"{value:.6g}" for value in array[:_SHOWN].tolist())
    more = ", …" if array.size > _SHOWN else ""
    return f"{array.dtype}[{array.size}]: {first}{more}"
