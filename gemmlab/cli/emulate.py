"""`gemmlab emulate`: a kernel file on the emulator, as its directive says."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np

    from gemmlab.lab.kernel_file import FileRun

_SHOWN = 4  # numbers of an array
_KEPT = "An array that may keep elements needs a fill: o:f32[n]=zeros."
TIER_NAMES = {"numpy": "NumPy", "native": "native"}


def emulate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .cu or .ptx file.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE",
            help="Words of a directive, in place of the file's own: entry=f grid=4 block=256 "
            "args=x:f32[n],n n=1000 smem=0 problem=gemm layout=row.",
        ),
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Show what each line cost.")] = False,
    by_ptx: Annotated[
        bool, typer.Option("--ptx", help="With --lines: lines of the PTX, not of the source.")
    ] = False,
    by_sass: Annotated[
        bool,
        typer.Option("--sass", help="Show where the machine code differs from its PTX."),
    ] = False,
    order: Annotated[
        str, typer.Option(help="Order of warps and blocks: in-order, reversed, or a seed.")
    ] = "in-order",
    tier: Annotated[
        str,
        typer.Option(help="auto, numpy, or native (by LLVM): see `gemmlab docs emulator`."),
    ] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random arrays.")] = 0,
    arch: Annotated[str | None, typer.Option(help="GPU architecture to compile for.")] = None,
    check: Annotated[
        str | None,
        typer.Option(help="Checks to run: all, or A,B; see `gemmlab docs checks`."),
    ] = None,
    max_instructions: Annotated[
        int | None,
        typer.Option(help="Instructions of a warp after which the kernel counts as endless."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON on stdout, and nothing else.")
    ] = False,
) -> None:
    """Run a kernel file on the emulator and count; needs no GPU.

    The file says how it is called in a comment at its top, "//! gemmlab block=256 grid=4 args=…";
    the same words can be given here. The exit code is 1 where a problem was named and the result is
    wrong, 4 where the kernel did something that is not allowed or a check found something.
    """
    from gemmlab.errors import EmulationError, InputError
    from gemmlab.lab import kernel_file
    from gemmlab.lab.directives.directive import parse

    if by_ptx and not lines:
        raise InputError("--ptx goes with --lines")
    how: dict[str, Any] = {"order": int(order) if order.lstrip("-").isdigit() else order}
    how["check"] = None if check is None else check.split(",")
    how["max_instructions"] = max_instructions
    how |= {"tier": tier}
    # What the kernel itself prints is in nobody's way there.
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
        # Of a launch that was stopped they would be zeros.
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
            out.print(_KEPT)
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
    """The first numbers of an array, as it is after the run."""
    first = ", ".join(f"{value:.6g}" for value in array[:_SHOWN].tolist())
    more = ", …" if array.size > _SHOWN else ""
    return f"{array.dtype}[{array.size}]: {first}{more}"
