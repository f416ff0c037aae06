"""`gemmlab emulate`: run a kernel file on the emulator, as its directive describes."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmlab.cli.options import (
    AsJson,
    Clock,
    Layout,
    PredictedGpu,
    Settings,
    Sms,
    WhatIf,
    complete_kernels,
    is_rung,
    model_of,
    refuse_settings,
    rung_of,
)

if TYPE_CHECKING:
    import numpy as np

    from gemmlab.kernels.rung import Rung
    from gemmlab.lab.directives import Directive
    from gemmlab.lab.kernel_file import FileRun
    from gemmlab.timing import Model

_SHOWN = 4  # elements shown per array
_FILL_HINT = "If elements may stay unwritten, give the array initial values: o:f32[n]=zeros."
_SIZES = "{} chosen to be quick and thorough; NAME=VALUE sets another size."
_CHECK_HINT = "Threads of this kernel communicate. --check all finds races and missing barriers."
TIER_NAMES = {"numpy": "NumPy", "native": "native"}


def emulate(
    kernel: Annotated[
        str,
        typer.Argument(
            metavar="FILE|RUNG",
            autocompletion=complete_kernels,
            help="A .cu, .ptx or .py (CuTe) file, or the name of a rung of one launch.",
        ),
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE",
            help="Values that override the file's directive: entry=f grid=4 block=256 "
            "args=x:f32[n],n n=1000 smem=0 problem=gemm layout=row; for a rung, sizes: m=64.",
        ),
    ] = None,
    layout: Layout = None,
    settings: Settings = None,
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
    predict: Annotated[
        bool,
        typer.Option(
            "--predict",
            help="Predict the time on a GPU instead, and why; see `gemmlab docs predicting`.",
        ),
    ] = False,
    gpu: PredictedGpu = None,
    sms: Sms = None,
    clock: Clock = None,
    what_if: WhatIf = None,
    as_json: AsJson = False,
) -> None:
    """Run a kernel file or a rung on the emulator and print its counters; needs no GPU.

    A directive at the top of the file describes the launch: "//! gemmlab block=256 grid=4 args=…".
    NAME=VALUE arguments override it. The exit code is 1 if a problem is named and the result is
    wrong, 4 if the kernel makes an error or a check finds one.
    """
    from gemmlab.compile.directive import parse
    from gemmlab.errors import EmulationError, InputError
    from gemmlab.lab import kernel_file

    if by_ptx and not lines:
        raise InputError("--ptx requires --lines")
    if gpu is not None and not predict:
        raise InputError("--gpu requires --predict")
    model = model_of(predict, gpu, sms, clock, what_if)
    if model is not None:
        _predict(kernel, parse(words or []), layout, settings, model, seed, as_json)
        return
    how: dict[str, Any] = {"order": int(order) if order.lstrip("-").isdigit() else order}
    how["check"] = None if check is None else check.split(",")
    how["max_instructions"] = max_instructions
    how |= {"tier": tier}
    # Keep the kernel's own output out of the JSON.
    printed = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    with printed:
        given = parse(words or [])
        if is_rung(kernel):
            rung = rung_of(kernel, layout, settings)
            done = kernel_file.run_rung(rung, given, arch=arch, seed=seed, **how)
        else:
            refuse_settings(kernel, layout, settings)
            done = kernel_file.run(Path(kernel), given, arch=arch, seed=seed, **how)
    if as_json:
        json.dump(_as_json(done, lines, by_sass, check is not None), sys.stdout, indent=2)
        print()
    else:
        _print(done, lines, by_ptx, by_sass, check is not None)
    if done.run.findings:
        raise typer.Exit(EmulationError.exit_code)
    if done.verdict is not None and not done.verdict.passed:
        raise typer.Exit(1)


def _predict(
    kernel: str,
    given: Directive,
    layout: str | None,
    settings: list[str] | None,
    model: Model,
    seed: int,
    as_json: bool,
) -> None:
    from gemmlab.core.symbols import demangled
    from gemmlab.lab import kernel_file
    from gemmlab.report import prediction, tables

    subject: kernel_file.KernelFile | Rung
    if is_rung(kernel):
        subject = rung_of(kernel, layout, settings)
    else:
        refuse_settings(kernel, layout, settings)
        subject = kernel_file.KernelFile.read(Path(kernel), given)
    artifact, call, found = kernel_file.predict(subject, given, model, seed)
    if as_json:
        json.dump(found.as_json(model), sys.stdout, indent=2)
        print()
        return
    out = tables.console()
    x, y, z = call.grid
    a, b, c = call.block
    name = demangled(artifact.entry)
    out.print(f"{name}: grid {x}×{y}×{z}, block {a}×{b}×{c}, {prediction.device(model)}")
    out.print()
    out.print(tables.facts(prediction.facts(found, model)))
    out.print()
    out.print(prediction.NOTE)


def _as_json(done: FileRun, lines: bool, by_sass: bool, checked: bool) -> dict[str, Any]:
    from gemmlab.report import machine_code

    machine, _ = machine_code.analysed(done)
    counted = machine.counters if machine else {}
    result: dict[str, Any] = {
        "entry": done.artifact.entry,
        "arch": done.artifact.arch,
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

    from gemmlab.core.symbols import demangled
    from gemmlab.report import findings, listing, machine_code, tables

    out = tables.console()
    x, y, z = done.call.grid
    a, b, c = done.call.block
    name, arch = demangled(done.artifact.entry), done.artifact.arch
    how = f"{arch}, {TIER_NAMES[done.run.tier]} tier"
    out.print(f"{name}: grid {x}×{y}×{z}, block {a}×{b}×{c}, {how}")
    if done.verdict is not None:
        out.print(f"{done.verdict.status}: {done.verdict.message}")
    if checked:
        out.print(findings.summary(done.run.findings))
        if done.case is not None and done.chosen:
            sizes = " ".join(f"{axis}={size}" for axis, size in done.case.shape.items())
            out.print(f"Checked at {sizes}. {_SIZES.format(', '.join(done.chosen))}")
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
    if not checked and done.run.program.communicates:
        out.print()
        out.print(_CHECK_HINT)


def _is_stopped(done: FileRun) -> bool:
    return any(finding.stops for finding in done.run.findings)


def _preview(array: np.ndarray) -> str:
    """Format an array's dtype, size and first elements."""
    first = ", ".join(f"{value:.6g}" for value in array[:_SHOWN].tolist())
    more = ", …" if array.size > _SHOWN else ""
    return f"{array.dtype}[{array.size}]: {first}{more}"
