"""`gemmlab export`: write a problem in the format of other benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    problem: Annotated[
        str,
        typer.Argument(
            metavar="PROBLEM", help="A problem from `gemmlab list` without unsigned data."
        ),
    ],
    folder: Annotated[
        Path, typer.Option("-o", "--output", help="Folder to write to; created if missing.")
    ],
    solution: Annotated[
        Path | None,
        typer.Option(
            help="Also export this kernel file as solution.json. Its directive must have problem= "
            "and entry=."
        ),
    ] = None,
) -> None:
    """Export a problem to FlashInfer-Bench and SOL-ExecBench.

    Writes a definition and workloads, and a solution if a kernel file is given.
    """
    from gemmlab import problems
    from gemmlab.compile import source
    from gemmlab.lab.records import make_folder
    from gemmlab.lab.submission import flashinfer

    work = problems.find(problem)
    files = {"definition.json": [flashinfer.definition(work)]}
    files["workload.jsonl"] = flashinfer.workloads(work)
    if solution:
        files["solution.json"] = [flashinfer.solution(work, solution, source.read(solution))]
    make_folder(folder)
    for name, content in files.items():
        flashinfer.write(folder / name, content)
        print(folder / name)
